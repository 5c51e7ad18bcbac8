"""What a fleet has published of stream partitions that are open no more, or not yet.

A stream partition that its slot does not hold has finished, or has not been announced.  Its marker
says that it has finished.  Where that has expired, and where it may not have been announced, the
watermark of the whole fleet decides: who named it has read on by then, so that it is known if it is
still open.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidegate.lineage.frontier import EndOffsets, Frontier, ProgressRow
from tidegate.lineage.keyed_heap import KeyedHeap
from tidegate.lineage.subscription import ProgressOnly
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    PartitionFinished,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
)


class PublishedView:
    """The frontier of one epoch without its data, and those that finished beyond it."""

    def __init__(self, progress_topic: str) -> None:
        """Start without records."""
        self._topic = progress_topic
        self._frontier = Frontier(ProgressOnly(progress_topic))
        self._watermark_us: int | None = None
        self._finished = KeyedHeap()
        """Ends of those that finished and that the watermark has not passed."""

    def fold(self, rows: Iterable[ProgressRow], *, reached: EndOffsets) -> None:
        """Take records of the epoch, those of each slot by offset, each once.

        Raises ProtocolError where they contradict the protocol.
        """
        kept = [self._kept(row) for row in rows]
        self._frontier.fold(kept, reached=reached)
        watermark = self._frontier.watermark()
        if watermark is not None:
            self._watermark_us = watermark.us
            self._finished.pop_through(watermark.us)

    def has_marker(self, token: str) -> bool:
        """Whether a stream partition has finished beyond the fleet's watermark."""
        return token in self._finished.keys

    def has_finished(self, token: str, at_us: int) -> bool:
        """Whether a stream partition that its slot does not hold open has finished.

        Only for a time at or before its end, after its start.
        """
        if self.has_marker(token):
            return True
        return self._watermark_us is not None and self._watermark_us >= at_us - 1

    def _kept(self, row: ProgressRow) -> ProgressRow:
        body = row.record.body
        if isinstance(body, PartitionFinished) and body.chunk == 0:
            self._finished.set(body.token, body.end_ns // NS_PER_US)
        if isinstance(body, SlotProgress | SlotChanges | SlotWatermark):
            # The vector of a heartbeat grows with the data topics, of which nothing is read here.
            entries = tuple(entry for entry in body.vector if entry.topic == self._topic)
            body = replace(body, vector=entries)
        return replace(row, record=replace(row.record, body=body))
