"""Watches for running queries that have become silent.

A stream partition without changes sends a heartbeat at each interval, so that a query that returns
nothing for many of them hangs: its connection may look alive all the same.  Bytes of a message that
is not complete count as something: on a slow link a large one takes longer than many heartbeats.

Silence is measured in the time that the worker was awake.  A worker that stood still, or that
waited for a broker, has heard nothing in that time from any query; it must not repeat them all.
"""

from __future__ import annotations

from collections import OrderedDict

from tidegate.producer.core.stream_partition import StreamPartition

_HEARTBEATS_MISSED = 10
_SILENCE_MIN_US = 5_000_000
"""A pause of the service, or a busy host, is no stall."""
_TICK_MAX_US = 1_000_000


def stall_after_us(heartbeat_ms: int) -> int:
    """Return after how much silence a query hangs that asked for these heartbeats."""
    return max(_HEARTBEATS_MISSED * heartbeat_ms * 1_000, _SILENCE_MIN_US)


class StallWatch:
    """Since when each running query is silent; `limit_us` is how long one may be."""

    def __init__(self, limit_us: int) -> None:
        """Start without a query."""
        self._limit_us = limit_us
        self._ticked_us: int | None = None
        self._awake_us = 0
        # Not a dict: looking at its first entry costs as much as was removed in front of it.
        self._heard: OrderedDict[int, tuple[StreamPartition, int]] = OrderedDict()
        """By query; the one that is silent for longest comes first."""

    def hear(self, query_id: int, partition: StreamPartition) -> None:
        """Record that a query started or went on, or that something of it was handled."""
        self._heard.pop(query_id, None)
        self._heard[query_id] = partition, self._awake_us

    def forget(self, query_id: int) -> None:
        """Expect nothing of a query: it ended, or it waits for this worker."""
        self._heard.pop(query_id, None)

    def tick(self, now_us: int) -> None:
        """Let time pass; all that readers had delivered before was handled."""
        if self._ticked_us is not None:
            self._awake_us += min(now_us - self._ticked_us, _TICK_MAX_US)
        self._ticked_us = now_us

    def stalled(self) -> list[StreamPartition]:
        """Return the stream partitions whose queries are silent for too long."""
        found = []
        for partition, heard_us in self._heard.values():
            if self._awake_us - heard_us < self._limit_us:
                break
            found.append(partition)
        return found
