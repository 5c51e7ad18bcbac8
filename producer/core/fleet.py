"""A worker's view of the whole fleet, folded from the progress topic, and the use of the view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.core import effects as do
from tidegate.producer.core.events import FleetRead
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.slot import Slot
from tidegate.producer.errors import ProgressLost
from tidegate.schemas.progress import ProgressRecord

_ASK_EVERY_US = 1_000_000
"""A view that has not changed is confirmed again, because an unconfirmed one becomes stale."""


class FleetProgress:
    """All slots of a progress topic, read from their beginnings by an adapter.

    The report contains the progress of each slot, as published by its owner.  Slots that are
    written all the time are never all read to their ends at one moment.  So the adapter asks where
    the slots end, and a view is current once it contains everything before these ends.
    """

    def __init__(self, *, epoch: str, topic: str, slots: int, with_moves: bool = False) -> None:
        self.view = FleetView(epoch=epoch, progress_topic=topic, slots=slots, with_moves=with_moves)
        self._awaited: set[tuple[str, int]] = set()
        self._is_asked = False
        self._rows: list[ProgressRow] = []
        self._reached = dict.fromkeys(range(slots), 0)
        self._ends: dict[int, int] | None = None
        self._is_confirmed = False
        self._ask_at_us = 0
        self._lowest: dict[int, int | None] = {}

    @property
    def is_at_end(self) -> bool:
        """Whether every slot was read to the last noted end."""
        return self._ends is not None and all(
            self._reached[slot] >= end for slot, end in self._ends.items()
        )

    def wants_ends(self, now_us: int) -> bool:
        """Whether to ask where the slots end: each second, once the last answer is reached."""
        return now_us >= self._ask_at_us and (self._ends is None or self.is_at_end)

    def reached(self, slot: int) -> int:
        """Return the next offset of a slot."""
        return self._reached[slot]

    @property
    def position(self) -> int:
        """The sum of the next offsets of all slots."""
        return sum(self._reached.values())

    def add(self, slot: int, offset: int, record: ProgressRecord | None) -> None:
        """Add the record at a slot's next offset; None if it only removes an earlier one.

        Raises ProgressLost if reading moved backwards.
        """
        if offset < self._reached[slot]:
            raise ProgressLost(
                "reading a slot moved backwards", slot=slot, was=self._reached[slot], now=offset
            )
        self._reached[slot] = offset + 1
        if record is not None:
            self._rows.append(ProgressRow(slot, offset, record))

    def reach_end(self, slot: int, position: int) -> None:
        """Record that a slot was read to its end, where its next offset is `position`.

        The last record does not show it, because the marker of a commit has an offset too.
        """
        self._reached[slot] = max(self._reached[slot], position)

    def note_ends(self, ends: Mapping[int, int], now_us: int) -> None:
        """Set the next offset of every slot for `read_committed` readers.

        They were requested after `wants_ends`, and after the last report.
        """
        self._ends, self._is_confirmed = dict(ends), False
        self._ask_at_us = now_us + _ASK_EVERY_US

    def await_sources(self, sources: Iterable[tuple[str, int]]) -> None:
        """Report each (token, microseconds) once it is published through that time.

        Only for a view `with_moves`.
        """
        self._awaited.update(sources)
        self._is_asked = True

    def report(self) -> FleetRead | None:
        """Return what is new, and whether the view is current; None if nothing is new.

        Raises ProtocolError where the records contradict the protocol.
        """
        is_current = not self._is_confirmed and self.is_at_end
        if self._rows:
            rows, self._rows = self._rows, []
            self.view.fold(rows, reached=self._reached)
        elif not is_current and not self._is_asked:
            return None
        is_current = is_current and self.view.is_complete
        lowest = {slot: self.view.lowest_us(slot) for slot in self._reached}
        changed = {
            slot: lowest_us
            for slot, lowest_us in lowest.items()
            if slot not in self._lowest or self._lowest[slot] != lowest_us
        }
        published = tuple(sorted(wait for wait in self._awaited if self.view.has_published(*wait)))
        self._awaited.difference_update(published)
        self._is_asked = False
        if not changed and not is_current and not published:
            return None
        self._is_confirmed = self._is_confirmed or is_current
        self._lowest = lowest
        return FleetRead(
            changed,
            is_current=is_current,
            published=published,
            has_stopped=self.view.has_stopped,
        )


STALE_AFTER_US = 5_000_000
"""How long a view is used after every slot was last read to its end."""
_LOOK_EVERY_US = 100_000


class FleetAlignment:
    """Passes the lowest watermark of the other workers' slots on to the scheduler.

    The worker knows its own slots better than their records show, so only the other slots count.  A
    view that was not confirmed for some seconds is not used: the drift is then limited within the
    worker.

    The same applies to mutable key ranges while a stream partition is stopped.  Another stream
    partition may wait for its move-out and cannot move either, which no record shows: it would hold
    up all.

    `slots` are the worker's own; with `with_moves` the fleet is followed also for keys that move.
    """

    def __init__(
        self, slots: Mapping[int, Slot], index: PartitionIndex, *, with_moves: bool = False
    ) -> None:
        self._with_moves = with_moves
        self._slots = slots
        self._index = index
        self._lowest: dict[int, int] = {}
        """By slot; only slots with a stream partition that can move, own slots included."""
        self._has_stopped = False
        self._current_at_us: int | None = None
        self._look_at_us = 0

    def follow(self, epoch: str) -> list[do.Effect]:
        """Return the effects that start following the fleet; none if the view is not used."""
        is_wanted = self._index.limits_drift or self._with_moves
        return [do.FollowFleet(epoch, self._with_moves)] if is_wanted else []

    def handle(self, event: FleetRead, now_us: int) -> None:
        """Add an event to the view."""
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
        """Pass the lowest watermark of other workers to the scheduler, if it may have changed."""
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
        owned = {number for number, slot in self._slots.items() if slot.phase is SlotPhase.OWNED}
        return min((us for slot, us in self._lowest.items() if slot not in owned), default=None)
