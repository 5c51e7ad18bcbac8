"""The pause after a batch that had nothing to do: it ends as soon as a change is in Kafka.

Each slot has heartbeats, so without a pause an idle stream is a batch a second or more, each of
which only stores a later frontier.  Spark takes the batch as done after the pause.  A kill in it
repeats a batch without steps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tidegate.lineage.frontier import EndOffsets
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.plan import Plan

_LOOK_EVERY_S = 0.2
_LOOKS_SHARE = 10
"""The pause between two looks is at least this many times as long as one look.

So thousands of topics are looked at less often.
"""


class IdleWait:
    """Waits after a batch, where neither its plan nor its state has anything to do."""

    def __init__(
        self,
        interval_s: float,
        have_changes: Callable[[EndOffsets], bool],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Wait `interval_s` at most; `have_changes` says whether there are some after offsets."""
        self._interval_s = interval_s
        self._have_changes = have_changes
        self._monotonic = monotonic
        self._awaited_us = BEFORE_EVERYTHING_US

    def expect(self, watermark_us: int) -> None:
        """Do not wait, now or later, before the watermark has reached a time."""
        self._awaited_us = max(self._awaited_us, watermark_us)

    def after(self, plan: Plan, state: State, stopping: threading.Event) -> float:
        """Block until there are changes, the interval is over or `stopping` is set.

        Returns the seconds that this took.
        """
        if plan.steps or state.stream_has_ended or not state.is_settled:
            return 0.0
        began_s = self._monotonic()
        pause_s = 0.0
        while not stopping.wait(pause_s):
            looked_s = self._monotonic()
            is_over = (
                looked_s - began_s >= self._interval_s or state.watermark_us < self._awaited_us
            )
            if is_over or self._have_changes(plan.end_offsets):
                break
            now_s = self._monotonic()
            left_s = began_s + self._interval_s - now_s
            pause_s = min(max(_LOOK_EVERY_S, _LOOKS_SHARE * (now_s - looked_s)), max(left_s, 0.0))
        return self._monotonic() - began_s
