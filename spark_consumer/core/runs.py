"""When a run ends because it has caught up, and when it starts its query again.

A run that was replaced while it was paused may continue inside Spark, which does not look for a
younger run: it writes `commits/N` of the batch that it finished, and `offsets/N+1`.  Then the gate
refuses it.  Spark ends the query of the rightful run when that query comes to the same file.

The rightful run may restart its query and use the files unchanged.  Every run commits a batch after
its state is stored, so the query continues with a batch whose predecessor has a state.  The batch
reads the offsets in `offsets` when the query starts, and executes its plan, which is stored once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidegate.lineage.frontier import Frontier
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.spark_consumer.core.batch_state import State

_REPORT_EVERY_S = 30.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """What keeps a run from its end.

    `behind_s` is how far the watermark lies before the begin of the run, None without a watermark;
    `idle_s` how long ago the last batch ended, and `batch_s` how long the running one has taken,
    None between two; `waits_for` says it in words.
    """

    behind_s: float | None
    idle_s: float
    batch_s: float | None
    waits_for: str


class CaughtUp:
    """Takes each state; all times are in seconds and never go back."""

    def __init__(self, begun_us: int, *, now_s: float) -> None:
        """Begin without a state; `begun_us` is when the run began."""
        self._begun_us = begun_us
        self._state: State | None = None
        self._batch_at_s = now_s
        self._reported_at_s = now_s

    @property
    def state(self) -> State | None:
        """The newest state."""
        return self._state

    @property
    def is_reached(self) -> bool:
        """Whether the watermark has passed the begin of the run, or the stream has ended.

        The mirror then has every release: the plan that reaches this end merges it.
        """
        state = self._state
        return (
            state is not None
            and (state.stream_has_ended or state.watermark_us >= self._begun_us)
            and state.mirror_release is None
        )

    def resume(self, state: State | None) -> None:
        """Take the state that was stored last, perhaps by an earlier run; None before the first."""
        if state is not None and (self._state is None or self._state.batch < state.batch):
            self._state = state

    def finish_batch(self, state: State, *, now_s: float) -> None:
        """Take the state after a batch."""
        self._state = state
        self._batch_at_s = now_s

    def is_due(self, *, now_s: float) -> bool:
        """Whether it is time to log what the run waits for; True once in half a minute."""
        is_due = not self.is_reached and now_s - self._reported_at_s >= _REPORT_EVERY_S
        if is_due:
            self._reported_at_s = now_s
        return is_due

    def waiting(
        self, frontier: Frontier | None, *, now_s: float, batch_s: float | None = None
    ) -> Waiting:
        """Return how far the run is from its end, and what it waits for.

        `frontier` is the state's; `batch_s` is the seconds that the running batch has taken.
        """
        watermark = None if frontier is None else frontier.watermark()
        idle_s = now_s - self._batch_at_s
        behind_s = None
        if watermark is not None:
            behind_s = round((self._begun_us - watermark.us) / US_PER_SECOND, 1)
        if batch_s is not None:
            text = f"the running batch, for {batch_s:.0f} s; what it has read is not counted yet"
        elif watermark is None:
            text = "the first progress records of every slot: has the fleet a worker?"
        else:
            text = f"stream partition {watermark.slowest}, which is the slowest"
            if idle_s >= _REPORT_EVERY_S:
                text += "; the fleet has written nothing new: do its workers run?"
        busy_s = None if batch_s is None else round(batch_s, 1)
        return Waiting(behind_s, round(idle_s, 1), busy_s, text)


_TEXTS_OF_SPARK = (
    "[CONCURRENT_STREAM_LOG_UPDATE]",
    "Multiple streaming queries are concurrently using",
)
"""The first text if Spark finds the file before it writes its own, the second if after."""

_RESTARTS_MAX = 5
_WITHIN_S = 600.0


def is_late_write(text: str) -> bool:
    """Whether Spark's text of a failure says that another run has written to Spark's logs."""
    return any(phrase in text for phrase in _TEXTS_OF_SPARK)


class QueryRestarts:
    """Decides whether a run starts its query again.

    A replaced run writes two files at most.  More conflicts have another cause, which no take-over
    stops, and end the run.
    """

    def __init__(self, *, restarts_max: int = _RESTARTS_MAX, within_s: float = _WITHIN_S) -> None:
        """Allow `restarts_max` starts in any `within_s` seconds."""
        self._restarts_max = restarts_max
        self._within_s = within_s
        self._at_s: deque[float] = deque()

    def may_restart(self, *, now_s: float) -> bool:
        """Return whether the query may be started again now; `now_s` never goes back."""
        while self._at_s and now_s - self._at_s[0] >= self._within_s:
            self._at_s.popleft()
        if len(self._at_s) >= self._restarts_max:
            return False
        self._at_s.append(now_s)
        return True
