"""All slots of one epoch, as their owners have published them: a fold of the whole progress topic.

It is the frontier of a reader that reads no data, so a parent leaves the view only after its
children have entered it.  What cannot move is left out of a slot's lowest watermark, and so are
slots whose newest heartbeat is of version 1, which does not say what is stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.slot_tokens import SlotTokens
from tidegate.lineage.subscription import ProgressOnly
from tidegate.schemas.progress import SlotChanges, SlotProgress, SlotWatermark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.schemas.progress import PartitionGap

__all__ = ["FleetView"]


class FleetView:
    """The slots of one epoch; only `fold` changes it."""

    def __init__(self, *, epoch: str, progress_topic: str, slots: int) -> None:
        """Start without records."""
        self._epoch = epoch
        self._topic = progress_topic
        self._frontier = Frontier(ProgressOnly(progress_topic))
        self._folded_through = [-1] * slots
        self.slots = tuple(SlotTokens() for _ in range(slots))
        """By number; read only."""

    def fold(self, rows: Iterable[ProgressRow], *, reached: Mapping[int, int]) -> None:
        """Take records, those of each slot by offset, and the next offset of every slot.

        Records of another epoch are passed over, and those that were taken before.  Raises
        ProtocolError where the records contradict the protocol.
        """
        kept = [found for row in rows if (found := self._kept(row)) is not None]
        self._frontier.fold(kept, reached={self._topic: reached})

    def lowest_us(self, slot: int) -> int | None:
        """Return the lowest watermark of what can move in a slot; None if there is nothing."""
        view = self._frontier.view(slot)
        if view is None or self.slots[slot].version == 1:
            return None
        slowest = view.slowest()
        return None if slowest is None else slowest.watermark_us

    def announced_us(self, slot: int) -> int | None:
        """Return the lowest watermark of what was announced after a slot's heartbeat in effect."""
        view = self._frontier.view(slot)
        announced = None if view is None else view.slowest_announced()
        return None if announced is None else announced.watermark_us

    @property
    def gaps(self) -> tuple[PartitionGap, ...]:
        """Accepted gaps, by time."""
        return self._frontier.gaps

    @property
    def is_complete(self) -> bool:
        """Whether each slot has a heartbeat in effect."""
        views = [self._frontier.view(slot) for slot in range(len(self.slots))]
        return all(view is not None and view.current is not None for view in views)

    def _kept(self, row: ProgressRow) -> ProgressRow | None:
        if row.offset <= self._folded_through[row.slot]:
            return None
        self._folded_through[row.slot] = row.offset
        if row.record.epoch != self._epoch:
            return None
        body = self.slots[row.slot].fold(row.record, offset=row.offset)
        if body is None:
            return None
        if isinstance(body, SlotProgress | SlotChanges | SlotWatermark):
            # The vector of a heartbeat grows with the data topics, of which nothing is read here.
            entries = tuple(entry for entry in body.vector if entry.topic == self._topic)
            body = replace(body, vector=entries)
        return replace(row, record=replace(row.record, body=body))
