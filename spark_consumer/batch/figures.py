"""Figures of a batch: computed when it has ended, kept for a while, logged, and set as metrics."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidegate.schemas.instants import US_PER_SECOND
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.plan import MergeMirror, Plan, WriteRelease
from tidegate.spark_consumer.core.sink_names import MIRRORS

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from tidegate.spark_consumer.metrics import ConsumerMetrics


KEPT = 100
"""Batches whose figures are kept: Spark keeps as many reports of progress."""

SINK_STEP = "sink-"
"""The begin of the name of each step that writes to a sink."""

_OBSERVED = "tidegate"

_NOT_OBSERVED = {"batch", "watermark_us", "phase_seconds", "release_delays_seconds", "sinks"}
"""Fields with other names, own rows, or several values."""


@dataclass(frozen=True, slots=True)
class SinkFigures:
    """What one sink took in the batch, how long that took, and its newest release."""

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
        for step, step_s in seconds.items():
            phases["sinks" if step.startswith(SINK_STEP) else step] += step_s
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
        observed = {
            name: value for name, value in asdict(self).items() if name not in _NOT_OBSERVED
        }
        is_known = self.watermark_lag_seconds is not None
        watermark = self.watermark_us / US_PER_SECOND if is_known else None
        return {
            _OBSERVED: {"watermark_timestamp_seconds": watermark, **observed},
            f"{_OBSERVED}_phase_seconds": dict(self.phase_seconds),
            **{f"{_OBSERVED}_sink_{name}": asdict(sink) for name, sink in self.sinks.items()},
        }


def sinks_stand_at(state: State) -> dict[str, int]:
    """Return the newest release that each sink has; -1 for one that has none."""
    newest = state.next_release - 1
    return {name: state.mirrored if name in MIRRORS else newest for name in state.sinks}


class RecentFigures:
    """The figures of the last batches, by number; one thread writes, any may read."""

    def __init__(self) -> None:
        """Start without batches."""
        self._figures: OrderedDict[int, BatchFigures] = OrderedDict()

    def add(self, figures: BatchFigures) -> None:
        """Take the figures of a batch, in the place of an earlier attempt's."""
        self._figures[figures.batch] = figures
        while len(self._figures) > KEPT:
            self._figures.popitem(last=False)

    def of(self, batch: int) -> BatchFigures | None:
        """Return a batch's figures; None if it is not one of the last, or has not ended."""
        return self._figures.get(batch)


_NOTHING = -1
"""The release of a mirror before its first one."""


class SinkWork:
    """Counts over the batches of one process."""

    def __init__(self) -> None:
        """Start without releases: those that earlier processes wrote have unknown sizes."""
        self._unmerged: dict[int, int] = {}

    def take(self, plan: Plan, changes_of: Mapping[int, int]) -> dict[str, tuple[int, int]]:
        """Return the releases and changes that each sink took while a plan was executed.

        `changes_of` has the number of changes of each of its releases.  The changes of a release
        that an earlier process wrote are missing from what a mirror took.
        """
        releases: dict[str, int] = defaultdict(int)
        changes: dict[str, int] = defaultdict(int)
        mirrors = [name for name in plan.sinks if name in MIRRORS]
        for step in plan.steps:
            match step:
                case WriteRelease():
                    number = step.bounds.number
                    if set(mirrors).difference(step.sinks):
                        self._unmerged[number] = changes_of[number]
                    for sink in step.sinks:
                        releases[sink] += 1
                        changes[sink] += changes_of[number]
                case MergeMirror():
                    for mirror in mirrors:
                        after = _NOTHING if mirror in step.joining else step.after
                        releases[mirror] += step.through - after
                        changes[mirror] += self._between(after, step.through)
                    kept = self._unmerged.items()
                    self._unmerged = {
                        release: rows for release, rows in kept if release > step.through
                    }
                case _:
                    pass
        return {sink: (releases[sink], changes[sink]) for sink in plan.sinks}

    def _between(self, after: int, through: int) -> int:
        return sum(rows for release, rows in self._unmerged.items() if after < release <= through)


SUMMARY_SECONDS = 60.0


class BatchLog:
    """Writes a `batch` line per finished batch and a `summary` line per minute.

    A batch without releases and late changes is logged at debug level: a quiet stream has many of
    them.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Take two clocks, both in seconds: one for intervals, one for the lag."""
        self._log = log
        self._monotonic = monotonic
        self._wall = wall
        self._since = monotonic()
        self._batches = 0
        self._input_rows = 0
        self._releases = 0

    def finished(self, state: State, plan: Plan, *, input_rows: int, copies: int) -> None:
        """Log a batch whose state is stored; `copies` records repeat a change and were left out."""
        matters = plan.releases or plan.late_rows
        (self._log.info if matters else self._log.debug)(
            "batch",
            batch=state.batch,
            watermark_us=state.watermark_us,
            releases=len(plan.releases),
            late=plan.late_rows,
            copies=copies,
            segments=len(state.segments),
            slowest=plan.slowest,
        )
        self._batches += 1
        self._input_rows += input_rows
        self._releases += len(plan.releases)
        if self._monotonic() - self._since >= SUMMARY_SECONDS:
            self._summarise(state, plan)

    def _summarise(self, state: State, plan: Plan) -> None:
        has_watermark = state.watermark_us > BEFORE_EVERYTHING_US
        lag = self._wall() - state.watermark_us / US_PER_SECOND
        self._log.info(
            "summary",
            batches=self._batches,
            input_rows=self._input_rows,
            releases=self._releases,
            watermark_us=state.watermark_us if has_watermark else None,
            lag_seconds=round(lag, 3) if has_watermark else None,
            waiting_changes=sum(segment.rows for segment in state.segments),
            slowest=plan.slowest,
        )
        self._since = self._monotonic()
        self._batches = self._input_rows = self._releases = 0


class BatchMetrics:
    """The metrics that batches set.

    The lag is computed at each scrape, so that it also grows while a batch hangs; it is NaN before
    the first watermark.
    """

    def __init__(self, metrics: ConsumerMetrics, *, wall: Callable[[], float] = time.time) -> None:
        """Take the metrics to set, and the wall clock in seconds since 1970."""
        self._metrics = metrics
        self._wall = wall
        self._watermark_us = BEFORE_EVERYTHING_US
        metrics.follow("watermark_lag_seconds", self._lag_s)

    def resume(self, state: State) -> None:
        """Set the metrics from the state of the last batch; called before the next batch ends."""
        self._set_watermark(state.watermark_us)
        self._metrics.set("waiting_changes", sum(segment.rows for segment in state.segments))
        self._metrics.set("waiting_segments", len(state.segments))
        self._metrics.set("mirror_releases_behind", state.next_release - 1 - state.mirrored)
        self._metrics.set("accepted_gaps", len(state.gaps))
        for sink, release in sinks_stand_at(state).items():
            self._metrics.set("sink_release", release, sink=sink)

    def finished(self, figures: BatchFigures) -> None:
        """Count a batch's work and set the gauges."""
        metrics = self._metrics
        self._set_watermark(figures.watermark_us)
        metrics.set("waiting_changes", figures.waiting_changes)
        metrics.set("waiting_segments", figures.waiting_segments)
        metrics.set("mirror_releases_behind", figures.mirror_releases_behind)
        metrics.set("accepted_gaps", figures.accepted_gaps)
        if figures.waiting_snapshots is not None:
            metrics.set("waiting_snapshots", figures.waiting_snapshots)
        if figures.finished_stream_partitions is not None:
            metrics.set("finished_stream_partitions", figures.finished_stream_partitions)
        metrics.add("batches_total")
        metrics.add("late_changes_total", figures.late_changes)
        metrics.add("copies_total", figures.copies)
        metrics.add("dead_letters_total", figures.dead_letters)
        metrics.add("mismatches_total", figures.mismatches)
        metrics.add("releases_total", figures.releases)
        metrics.add("released_changes_total", figures.released_changes)
        for seconds in figures.release_delays_seconds:
            metrics.observe("commit_to_release_seconds", seconds)
        for phase, seconds in figures.phase_seconds.items():
            metrics.add("batch_phase_seconds_total", seconds, phase=phase)
        for sink, taken in figures.sinks.items():
            metrics.set("sink_release", taken.release, sink=sink)
            metrics.add("sink_releases_total", taken.releases, sink=sink)
            metrics.add("sink_changes_total", taken.changes, sink=sink)
            metrics.add("sink_seconds_total", taken.seconds, sink=sink)

    def _set_watermark(self, watermark_us: int) -> None:
        self._watermark_us = watermark_us
        if watermark_us > BEFORE_EVERYTHING_US:
            self._metrics.set("watermark_timestamp_seconds", watermark_us / US_PER_SECOND)

    def _lag_s(self) -> float:
        if self._watermark_us <= BEFORE_EVERYTHING_US:
            return math.nan
        return self._wall() - self._watermark_us / US_PER_SECOND
