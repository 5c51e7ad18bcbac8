"""How often it is reported that stream partitions wait for a query.

They may wait for hours, and begin and end to wait many times a second: once a minute is enough.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.producer.core import effects as do
from tidegate.producer.core.lifecycle import PartitionState

_EVERY_US = 60_000_000


class WaitingReport:
    """What was reported last, and when."""

    def __init__(self) -> None:
        """Start with nothing reported: nothing waits."""
        self._due_us: int | None = None
        self._is_waiting = False

    def report(self, states: Mapping[PartitionState, int], now_us: int) -> do.ReportWaiting | None:
        """Return a report if one is due: at most one a minute; the last one says that none waits.

        `states` says how many stream partitions are in each state.
        """
        queued = states.get(PartitionState.QUEUED, 0)
        paused = states.get(PartitionState.PAUSED, 0)
        held = states.get(PartitionState.HELD, 0)
        if not queued and not paused and not held and not self._is_waiting:
            return None
        if self._due_us is not None and now_us < self._due_us:
            return None
        self._is_waiting = queued + paused + held > 0
        self._due_us = now_us + _EVERY_US
        return do.ReportWaiting(queued, paused, states.get(PartitionState.RUNNING, 0), held)
