"""What no promise says and every worker owes: it is sound, bounded, alive, and obeys."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tests.simulation.history import FleetSight, History, Violation
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    PartitionAnnounced,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    TokenSnapshot,
)
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_chunks import ProgressAssembler


def soundness(history: History) -> Iterator[Violation]:
    """No core contradicts itself or refuses what a correct fleet writes."""
    for text in history.broken:
        yield Violation(text)


def liveness(history: History) -> Iterator[Violation]:
    """After healing everything comes: the watermark passes the last commit."""
    for text in history.unhealed:
        yield Violation(text)


def bounded_memory(history: History) -> Iterator[Violation]:
    """What the cores keep is bounded, and what they took they give back."""
    for size in history.sizes:
        if size.largest > size.bound:
            yield Violation(f"{size.what}: {size.largest}, at most {size.bound} are allowed")


def others_advance(history: History) -> Iterator[Violation]:
    """A stream partition that Spanner refuses holds up its descendants and no other."""
    for token in history.held_up:
        yield Violation("held up although Spanner refuses others only", token)


_REDRIVE = "redrive"
"""The name of the process that puts parked changes back, which it may do in a pause."""


def pauses(history: History) -> Iterator[Violation]:
    """Nothing is read in a pause, and nothing published of a slot whose owner says that it obeys.

    Go through the commits in their order, each under the last control before it.
    """
    yield from map(Violation, history.disobeyed)
    controls, said = list(history.controls), set[tuple[int, int]]()
    last = None
    for one in history.fenced:
        while controls and controls[0].at <= one.at:
            last = controls.pop(0)
        if last is not None and last.is_pause and one.worker != _REDRIVE:
            for slot in sorted(one.with_data):
                if (slot, last.number) in said:
                    yield Violation(f"{one.worker} published in slot {slot}, which is paused")
        said.update(one.paused)


_MINUTE_US = 60_000_000
_QUERIES_MAX = 12


def query_pace(history: History) -> Iterator[Violation]:
    """A query that brings nothing new is repeated at most twelve times a minute.

    One that starts where the one before it started has brought nothing new, but for records of the
    very same instant.
    """
    started: dict[tuple[str, str, int], list[int]] = {}
    for query in history.queries:
        if query.at_us is not None and query.holding:
            same = query.holding, query.token, query.start_us
            started.setdefault(same, []).append(query.at_us)
    for (_, token, start_us), times in started.items():
        for first_us, next_us in zip(times, times[_QUERIES_MAX:], strict=False):
            if next_us - first_us < _MINUTE_US:
                text = f"more than {_QUERIES_MAX} queries from {start_us} within a minute"
                yield Violation(text, token)
                break


_WAIT_MAX_US = 30_000_000
"""Some ten stream partitions before it, each with a turn of up to 2 s, or silent for 3 s."""
_PAUSE_MAX_US = 3_000_000  # a pause may last a second longer than its reason


def query_turns(history: History) -> Iterator[Violation]:
    """A stream partition that waits for a query gets one, and one that is paused goes on."""
    for token, waited_us in history.queued.items():
        if waited_us > _WAIT_MAX_US:
            yield Violation(f"waited for a query for {waited_us} µs", token)
    for token, waited_us in history.paused.items():
        if waited_us > _PAUSE_MAX_US:
            yield Violation(f"paused without a reason for {waited_us} µs", token)


_AHEAD_MAX_US = 1_000_000
"""Until the others have published, as one that is read again after a stop, and that was read."""


def fleet_drift(history: History) -> Iterator[Violation]:
    """With a limit of the drift nothing is read on far ahead of the fleet's slowest.

    Counted is the time after the faults, when each worker reads the progress topic.  One response
    may carry a stream partition any distance ahead; what must not happen is that its query goes on
    there.  A worker that does not know the fleet yet is not held to it.
    """
    for token, ahead_us in history.ahead.items():
        if ahead_us > _AHEAD_MAX_US:
            yield Violation(f"read too far ahead of the fleet's slowest for {ahead_us} µs", token)


_NOTHING_MOVES = 2**63


def fleet_views(history: History) -> Iterator[Violation]:
    """What a worker knows of the fleet's slots is committed; after the faults it is also recent.

    What a slot says at an offset is folded here from the progress records alone.  A value may be
    one of the last seconds, as long as the worker goes by it: the fleet goes on meanwhile.
    """
    slots = {slot: _Slot() for slot in range(history.slots)}
    for entry in history.progress if history.fleet_reads else ():
        slots[entry.slot].fold(entry.offset, entry.record.body, entry.record.version)
    for read in history.fleet_reads:
        for slot, lowest_us in read.lowest_us.items():
            most_us = slots[slot].most_us(read.ends[slot])
            if lowest_us is not None and lowest_us > most_us:
                text = (
                    f"{read.worker} takes slot {slot} to be at {lowest_us}, {most_us} is committed"
                )
                yield Violation(text)
    for sight in history.fleet_sights:
        yield from _check_sight(slots, sight)


def _check_sight(slots: dict[int, _Slot], sight: FleetSight) -> Iterator[Violation]:
    for slot, one in slots.items():
        said = one.said(sight.ends_before[slot], sight.ends[slot])
        lowest_us = sight.lowest_us.get(slot)
        if (_NOTHING_MOVES if lowest_us is None else lowest_us) not in said:
            text = f"{sight.worker} goes by {lowest_us} of slot {slot}, which says {sorted(said)}"
            yield Violation(text)


class _Slot:
    def __init__(self) -> None:
        self._assembler = ProgressAssembler()
        self._chain: SlotChain | None = None
        self._version = 0
        self._announced: dict[str, tuple[set[str], int, int]] = {}
        """Child -> parents heard, offset of the last, start; after the newest heartbeat."""
        self._offsets: list[int] = []
        self._values: list[int] = []
        self._most_us: list[int] = []

    def most_us(self, end: int) -> int:
        index = bisect_right(self._offsets, end - 1)
        return self._most_us[index - 1] if index else -1

    def said(self, begin: int, end: int) -> set[int]:
        first, last = (bisect_right(self._offsets, offset - 1) for offset in (begin, end))
        return set(self._values[max(first - 1, 0) : last])

    def fold(self, offset: int, body: object, version: int) -> None:
        whole = self._assembler.add(body, offset=offset)
        if whole is None:
            return
        kind, first_offset = whole
        if isinstance(kind, PartitionAnnounced):
            self._announce(kind, offset)
        elif isinstance(kind, SlotProgress):
            self._chain = SlotChain(kind, offset=first_offset)
        elif isinstance(kind, SlotChanges) and self._chain is not None:
            try:
                self._chain.add(kind)
            except SchemaError:
                return  # what compaction has left of an older chain
        if isinstance(kind, SlotProgress | SlotChanges | SlotWatermark):
            self._version = version
            kept = self._announced.items()
            self._announced = {t: one for t, one in kept if one[1] > kind.includes}
        value = self._lowest()
        self._offsets.append(offset)
        self._values.append(value)
        self._most_us.append(max([value, *self._most_us[-1:]]))

    def _announce(self, announced: PartitionAnnounced, offset: int) -> None:
        child = announced.child
        heard = {announced.parent, *self._announced.get(child.token, (set(), 0, 0))[0]}
        known = None if self._chain is None else self._chain.tokens.get(child.token)
        heard |= set(known.parents_heard if known else ())
        start_us = child.start_ns // 1_000
        is_ready = heard.issuperset(child.parents)
        self._announced[child.token] = heard, offset, start_us if is_ready else _NOTHING_MOVES

    def _lowest(self) -> int:
        if self._chain is None or self._version == 1:
            return _NOTHING_MOVES
        movable = [token.watermark_us for token in self._chain.tokens.values() if _can_move(token)]
        waiting = [
            start_us - 1 for _, _, start_us in self._announced.values() if start_us < _NOTHING_MOVES
        ]
        return min([*movable, *waiting], default=_NOTHING_MOVES)


def _can_move(token: TokenSnapshot) -> bool:
    return token.stopped is None and set(token.parents) <= set(token.parents_heard)
