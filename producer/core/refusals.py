"""When stream partitions were stopped, so that their queries are not repeated too soon.

A stopped stream partition is tried again by the next owner of its slot, or by this worker when it
takes the slot over again.  A fleet that rebalances often would otherwise repeat a refused query,
or read up to the same undecodable record, with every rebalance.
"""

from __future__ import annotations


class Refusals:
    """The tokens that were stopped within the last `pause_us`; monotonic times."""

    def __init__(self, pause_us: int) -> None:
        """Start without one."""
        self._pause_us = pause_us
        self._stopped_us: dict[str, int] = {}
        """By token, the oldest first."""

    def add(self, token: str, now_us: int) -> None:
        """Record that a token was stopped now."""
        self._stopped_us.pop(token, None)
        self._stopped_us[token] = now_us
        while now_us - self._stopped_us[oldest := next(iter(self._stopped_us))] >= self._pause_us:
            del self._stopped_us[oldest]

    def query_not_before_us(self, token: str) -> int:
        """Return when the token may be queried again; 0 without a reason to wait."""
        stopped_us = self._stopped_us.get(token)
        return 0 if stopped_us is None else stopped_us + self._pause_us
