"""What a worker knows of the whole fleet: the fold of the progress topic, and what is new in it.

Adapters pass in what they read and how far; the report says how far each slot is, as its owner has
published it.  Slots that are written all the time are never all read to their end at one moment.
So adapters ask where the slots end, and a view is current once it contains all that lay before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.core.events import FleetRead
from tidegate.producer.errors import ProgressLost
from tidegate.schemas.progress import ProgressRecord

_ASK_EVERY_US = 1_000_000
"""A view that has not changed is confirmed again, since one that is not grows old."""


class FleetProgress:
    """All slots of a progress topic, read from their beginnings."""

    def __init__(self, *, epoch: str, topic: str, slots: int, with_moves: bool = False) -> None:
        """Start without records; `await_sources` needs `with_moves`."""
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
        """Whether every slot was read to the end that was noted last."""
        return self._ends is not None and all(
            self._reached[slot] >= end for slot, end in self._ends.items()
        )

    def wants_ends(self, now_us: int) -> bool:
        """Whether to ask where the slots end: each second, unless an answer is not reached yet."""
        return now_us >= self._ask_at_us and (self._ends is None or self.is_at_end)

    def reached(self, slot: int) -> int:
        """The next offset of a slot."""
        return self._reached[slot]

    @property
    def position(self) -> int:
        """The sum of the next offsets of all slots."""
        return sum(self._reached.values())

    def add(self, slot: int, offset: int, record: ProgressRecord | None) -> None:
        """Take the record at the next offset of a slot; None: it only removes an earlier one.

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
        """Take note that a slot was read to its end, where its next offset is `position`.

        Without it the last record would not do: the mark of a commit has an offset too.
        """
        self._reached[slot] = max(self._reached[slot], position)

    def note_ends(self, ends: Mapping[int, int], now_us: int) -> None:
        """Take the next offset of every slot for readers of what is committed.

        It was asked for after `wants_ends`, and after the last report.
        """
        self._ends, self._is_confirmed = dict(ends), False
        self._ask_at_us = now_us + _ASK_EVERY_US

    def await_sources(self, sources: Iterable[tuple[str, int]]) -> None:
        """Report each (token, microseconds) once it is published through that time."""
        self._awaited.update(sources)
        self._is_asked = True

    def report(self) -> FleetRead | None:
        """Return what is new since the last report, if anything is, and whether it is current.

        Raises ProtocolError where the records contradict the protocol.
        """
        is_current = not self._is_confirmed and self.is_at_end
        if self._rows:
            rows, self._rows = self._rows, []
            self.view.fold(rows, reached=self._reached)
        elif not is_current and not self._is_asked:
            return None
        is_current = is_current and self.view.is_complete
        found = {slot: self.view.lowest_us(slot) for slot in self._reached}
        changed = {
            slot: lowest_us
            for slot, lowest_us in found.items()
            if slot not in self._lowest or self._lowest[slot] != lowest_us
        }
        published = tuple(sorted(one for one in self._awaited if self.view.has_published(*one)))
        self._awaited.difference_update(published)
        self._is_asked = False
        if not changed and not is_current and not published:
            return None
        self._is_confirmed = self._is_confirmed or is_current
        self._lowest = found
        return FleetRead(
            changed,
            is_current=is_current,
            published=published,
            has_stopped=self.view.has_stopped,
        )
