"""The slots of one epoch as their owners have published them: a fold of the whole progress topic.

It is the frontier of a reader that reads no data, so a parent leaves the view only after its
children have entered it.  A slot's lowest watermark leaves out stream partitions that cannot move,
and slots whose newest heartbeat is of version 1, which does not record what is stopped.

A stream partition that its slot does not hold has finished, or has not been announced.  Its marker
proves that it has finished.  Without a marker the watermark of the whole fleet decides: the parent
that named it has read on by then, so an open stream partition would be known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidegate.lineage.frontier import EndOffsets, Frontier, ProgressRow
from tidegate.lineage.keyed_heap import KeyedHeap
from tidegate.lineage.slot_tokens import SlotTokens
from tidegate.lineage.subscription import ProgressOnly
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    MOVE_OUTS,
    PartitionFinished,
    PartitionGap,
    ProgressBody,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    StreamControl,
)
from tidegate.schemas.topics import slot_of


class PublishedView:
    """The frontier of one epoch without data, and the stream partitions that finished beyond it."""

    def __init__(self, progress_topic: str) -> None:
        """Start without records."""
        self._topic = progress_topic
        self._frontier = Frontier(ProgressOnly(progress_topic))
        self._watermark_us: int | None = None
        self._finished = KeyedHeap()
        """Ends of finished stream partitions that the watermark has not passed."""

    def fold(self, rows: Iterable[ProgressRow], *, reached: EndOffsets) -> None:
        """Fold records of the epoch, the records of each slot by offset, each once.

        Raises ProtocolError where they contradict the protocol.
        """
        rows_of_view = [self._kept(row) for row in rows]
        self._frontier.fold(rows_of_view, reached=reached)
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
        return _without_data(row, body, self._topic)


class FleetView:
    """The slots of one epoch; only `fold` changes it."""

    def __init__(
        self, *, epoch: str, progress_topic: str, slots: int, with_moves: bool = False
    ) -> None:
        """Start without records; `has_published` needs `with_moves`."""
        self._published = PublishedView(progress_topic) if with_moves else None
        self._epoch = epoch
        self._topic = progress_topic
        self._frontier = Frontier(ProgressOnly(progress_topic))
        self._folded_through = [-1] * slots
        self.slots = tuple(SlotTokens() for _ in range(slots))
        """By number; read only."""
        self.control: StreamControl | None = None
        """The last control request of an operator; None if there was none."""

    def fold(self, rows: Iterable[ProgressRow], *, reached: Mapping[int, int]) -> None:
        """Fold records, the records of each slot by offset, with the next offset of every slot.

        Records of another epoch, and records that were folded before, are ignored.  Raises
        ProtocolError where the records contradict the protocol.
        """
        own_rows = [own_row for row in rows if (own_row := self._own(row)) is not None]
        folded_rows = [folded for row in own_rows if (folded := self._kept(row)) is not None]
        offsets = {self._topic: reached}
        self._frontier.fold(folded_rows, reached=offsets)
        if self._published is not None:
            self._published.fold(own_rows, reached=offsets)

    def lowest_us(self, slot: int) -> int | None:
        """Return the lowest watermark that can move in a slot; None if there is none."""
        view = self._frontier.view(slot)
        if view is None or self.slots[slot].version == 1:
            return None
        slowest = view.slowest()
        return None if slowest is None else slowest.watermark_us

    def announced_us(self, slot: int) -> int | None:
        """Return the lowest watermark announced after a slot's heartbeat in effect, if any."""
        view = self._frontier.view(slot)
        announced = None if view is None else view.slowest_announced()
        return None if announced is None else announced.watermark_us

    def has_published(self, token: str, at_us: int) -> bool:
        """Whether a stream partition has published everything before its move-out at an instant.

        True only where the records prove it; any worker may own the stream partition.
        """
        published = self._published
        if published is None:
            raise InvariantViolation("what is published is not followed", token=token)
        tokens = self.slots[slot_of(token, len(self.slots))].tokens
        snapshot = None if tokens is None else tokens.get(token)
        if snapshot is None or published.has_marker(token):
            return published.has_finished(token, at_us)
        has_moved_out = any(name == MOVE_OUTS for name, _ in snapshot.boundary)
        return snapshot.watermark_us >= (at_us - 1 if has_moved_out else at_us)

    @property
    def has_stopped(self) -> bool:
        """Whether a stream partition of the fleet is stopped."""
        return any(slot.has_stopped for slot in self.slots)

    @property
    def gaps(self) -> tuple[PartitionGap, ...]:
        """The accepted gaps, by time."""
        return self._frontier.gaps

    @property
    def is_complete(self) -> bool:
        """Whether each slot has a heartbeat in effect."""
        views = [self._frontier.view(slot) for slot in range(len(self.slots))]
        return all(view is not None and view.current is not None for view in views)

    def _own(self, row: ProgressRow) -> ProgressRow | None:
        """Return the record if it is new and of the epoch; otherwise None."""
        if row.offset <= self._folded_through[row.slot]:
            return None
        self._folded_through[row.slot] = row.offset
        return row if row.record.epoch == self._epoch else None

    def _kept(self, row: ProgressRow) -> ProgressRow | None:
        """Fold a record of the epoch; return the record for the frontier, or None."""
        if isinstance(row.record.body, StreamControl):
            self.control = row.record.body
        body = self.slots[row.slot].fold(row.record, offset=row.offset)
        if body is None:
            return None
        return _without_data(row, body, self._topic)


def _without_data(row: ProgressRow, body: ProgressBody, progress_topic: str) -> ProgressRow:
    """Return a row with a body whose vector has the progress topic only.

    Vectors grow with the data topics, and no data topic is read here.
    """
    if isinstance(body, SlotProgress | SlotChanges | SlotWatermark):
        entries = tuple(entry for entry in body.vector if entry.topic == progress_topic)
        body = replace(body, vector=entries)
    return replace(row, record=replace(row.record, body=body))
