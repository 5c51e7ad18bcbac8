"""How far the slots of other workers are, for the limit of the drift.

Own slots are known better than their records say, so only the others' count.  A view that was not
confirmed for some seconds counts for nothing: the drift is then limited within the worker.

So it is with mutable key ranges while a stream partition is stopped.  Another one may wait for its
move-out, and cannot move either, which no record says: it would hold up all others.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.producer.core import effects as do
from tidegate.producer.core.events import FleetRead
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.slot import Slot

STALE_AFTER_US = 5_000_000
"""A view is not used for longer after it was last read to the end of every slot."""
_LOOK_EVERY_US = 100_000


class FleetAlignment:
    """Passes the lowest watermark of the other workers' slots on to the scheduler."""

    def __init__(
        self, slots: Mapping[int, Slot], index: PartitionIndex, *, with_moves: bool = False
    ) -> None:
        """Start without a view; `slots` are the worker's own.

        With `with_moves` the fleet is followed for keys that move between stream partitions, too.
        """
        self._with_moves = with_moves
        self._slots = slots
        self._index = index
        self._lowest: dict[int, int] = {}
        """By slot; only slots with something that can move, own ones included."""
        self._has_stopped = False
        self._current_at_us: int | None = None
        self._look_at_us = 0

    def follow(self, epoch: str) -> list[do.Effect]:
        """Return what starts to follow the fleet; nothing if nothing waits for others."""
        is_wanted = self._index.limits_drift or self._with_moves
        return [do.FollowFleet(epoch, self._with_moves)] if is_wanted else []

    def handle(self, event: FleetRead, now_us: int) -> None:
        """Take in how far the fleet's slots are."""
        for slot, lowest_us in event.lowest_us.items():
            if lowest_us is None:
                self._lowest.pop(slot, None)
            else:
                self._lowest[slot] = lowest_us
        self._has_stopped = event.has_stopped
        if event.is_current:
            self._current_at_us = now_us
        self._look_at_us = now_us

    def look(self, now_us: int) -> None:
        """Tell the scheduler what it has to compare with, if that may have changed."""
        if not self._index.limits_drift:
            return
        if self._current_at_us is None or now_us < self._look_at_us:
            return
        self._look_at_us = now_us + _LOOK_EVERY_US
        self._index.align_with(self._elsewhere_us(self._current_at_us, now_us))

    def _elsewhere_us(self, current_at_us: int, now_us: int) -> int | None:
        may_be_held = self._with_moves and self._has_stopped
        if may_be_held or now_us > current_at_us + STALE_AFTER_US:
            return None
        owned = {n for n, slot in self._slots.items() if slot.phase is SlotPhase.OWNED}
        return min((us for slot, us in self._lowest.items() if slot not in owned), default=None)
