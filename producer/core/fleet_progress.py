"""What a worker knows of the whole fleet: the fold of the progress topic, and what is new in it.

Adapters pass in what they read and how far; the report says how far each slot is, as its owner has
published it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.core.events import FleetRead

if TYPE_CHECKING:
    from tidegate.schemas.progress import ProgressRecord

__all__ = ["FleetProgress"]

_REPEAT_AFTER_US = 1_000_000
"""A view that has not changed is reported again, since one that is not confirmed grows old."""


class FleetProgress:
    """All slots of a progress topic, read from their beginnings."""

    def __init__(self, *, epoch: str, topic: str, slots: int) -> None:
        """Start without records."""
        self.view = FleetView(epoch=epoch, progress_topic=topic, slots=slots)
        self._rows: list[ProgressRow] = []
        self._reached = dict.fromkeys(range(slots), 0)
        self._behind = set(range(slots))
        self._lowest: dict[int, int | None] = {}
        self._report_at_us = 0

    @property
    def is_at_end(self) -> bool:
        """Whether every slot was read to its end."""
        return not self._behind

    @property
    def position(self) -> int:
        """The sum of the next offsets of all slots."""
        return sum(self._reached.values())

    def add(self, slot: int, offset: int, record: ProgressRecord | None) -> None:
        """Take the record at the next offset of a slot; None: it only removes an earlier one."""
        self._reached[slot] = offset + 1
        self._behind.add(slot)
        if record is not None:
            self._rows.append(ProgressRow(slot, offset, record))

    def reach_end(self, slot: int, position: int) -> None:
        """Take note that a slot was read to its end, where its next offset is `position`."""
        self._reached[slot] = max(self._reached[slot], position)
        self._behind.discard(slot)

    def report(self, now_us: int) -> FleetRead | None:
        """Return what is new since the last report, if anything is.

        Raises ProtocolError where the records contradict the protocol.
        """
        if self._rows:
            rows, self._rows = self._rows, []
            self.view.fold(rows, reached=self._reached)
        elif now_us < self._report_at_us:
            return None
        found = {slot: self.view.lowest_us(slot) for slot in self._reached}
        changed = {
            slot: lowest_us
            for slot, lowest_us in found.items()
            if slot not in self._lowest or self._lowest[slot] != lowest_us
        }
        is_current = self.is_at_end and self.view.is_complete
        if not changed and not (is_current and now_us >= self._report_at_us):
            return None
        if is_current:
            self._report_at_us = now_us + _REPEAT_AFTER_US
        self._lowest = found
        return FleetRead(changed, is_current=is_current)
