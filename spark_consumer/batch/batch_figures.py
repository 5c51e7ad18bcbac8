"""The figures of a finished batch: for the metrics, and for the progress that Spark reports."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.schemas.instants import US_PER_SECOND
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.cadence import MIRRORS

KEPT = 100
"""Batches whose figures are kept: Spark keeps as many reports of progress."""

SINK_STEP = "sink-"
"""The begin of the name of each step that writes to a sink."""

_OBSERVED = "tidegate"

_NOT_OBSERVED = {"batch", "watermark_us", "phase_seconds", "release_delays_seconds", "sinks"}
"""What is named otherwise, or has rows of its own, or no single value."""


@dataclass(frozen=True, slots=True)
class SinkFigures:
    """What one sink took in the batch, how long that took, and the release that it stands at."""

    release: int
    releases: int
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What one batch did, and where it leaves the gate; named as the metrics are."""

    batch: int
    watermark_us: int
    watermark_lag_seconds: float | None
    """By the wall clock at the batch's end; None before the first watermark."""
    released_changes: int
    releases: int
    late_changes: int
    copies: int
    mismatches: int
    waiting_changes: int
    waiting_segments: int
    waiting_snapshots: int | None
    """None in a batch that repeats an earlier one: it reads no progress."""
    finished_stream_partitions: int | None
    """Likewise."""
    mirror_releases_behind: int
    accepted_gaps: int
    phase_seconds: Mapping[str, float]
    """Seconds by phase; all writing to sinks is one."""
    sinks: Mapping[str, SinkFigures]
    dead_letters: int = 0
    release_delays_seconds: Sequence[float] = ()
    """From commits to their releases: some of its changes, evenly spaced."""

    @classmethod
    def of(
        cls,
        loop: EffectLoop,
        *,
        seconds: Mapping[str, float],
        taken: Mapping[str, tuple[int, int]],
        now_us: int,
    ) -> BatchFigures:
        """Return the figures of a loop that has ended.

        `seconds` are those of its steps by name, `taken` the releases and changes that each sink
        took.
        """
        state, frontier = loop.state, loop.frontier
        is_known = state.watermark_us > BEFORE_EVERYTHING_US
        phases: dict[str, float] = defaultdict(float)
        for step, one in seconds.items():
            phases["sinks" if step.startswith(SINK_STEP) else step] += one
        lag_s = (now_us - state.watermark_us) / US_PER_SECOND
        return cls(
            batch=state.batch,
            watermark_us=state.watermark_us,
            watermark_lag_seconds=lag_s if is_known else None,
            released_changes=loop.released_rows,
            releases=len(loop.plan.releases),
            late_changes=loop.plan.late_rows,
            copies=loop.copies,
            mismatches=loop.recorded,
            waiting_changes=sum(segment.rows for segment in state.segments),
            waiting_segments=len(state.segments),
            waiting_snapshots=None if frontier is None else frontier.snapshots_waiting,
            finished_stream_partitions=None if frontier is None else frontier.finished_tokens,
            mirror_releases_behind=state.next_release - 1 - state.mirrored,
            accepted_gaps=len(state.gaps),
            dead_letters=loop.dead_letters,
            release_delays_seconds=[(now_us - us) / US_PER_SECOND for us in loop.released_times_us],
            phase_seconds=dict(phases),
            sinks={
                sink: SinkFigures(stands_at, *taken[sink], seconds.get(f"{SINK_STEP}{sink}", 0.0))
                for sink, stands_at in sinks_stand_at(state).items()
            },
        )

    def observed(self) -> dict[str, dict[str, Any]]:
        """Return them as observed metrics: flat rows by name, one for each sink."""
        own = {name: value for name, value in asdict(self).items() if name not in _NOT_OBSERVED}
        is_known = self.watermark_lag_seconds is not None
        watermark = self.watermark_us / US_PER_SECOND if is_known else None
        return {
            _OBSERVED: {"watermark_timestamp_seconds": watermark, **own},
            f"{_OBSERVED}_phase_seconds": dict(self.phase_seconds),
            **{f"{_OBSERVED}_sink_{name}": asdict(one) for name, one in self.sinks.items()},
        }


def sinks_stand_at(state: State) -> dict[str, int]:
    """Return the newest release that each sink has; -1 for one that has none."""
    newest = state.next_release - 1
    return {name: state.mirrored if name in MIRRORS else newest for name in state.sinks}


class RecentFigures:
    """The figures of the last batches, by number; one thread writes, any may read."""

    def __init__(self) -> None:
        """Start without batches."""
        self._of: OrderedDict[int, BatchFigures] = OrderedDict()

    def add(self, figures: BatchFigures) -> None:
        """Take the figures of a batch, in the place of an earlier attempt's."""
        self._of[figures.batch] = figures
        while len(self._of) > KEPT:
            self._of.popitem(last=False)

    def of(self, batch: int) -> BatchFigures | None:
        """Return a batch's figures; None if it is not one of the last, or has not ended."""
        return self._of.get(batch)
