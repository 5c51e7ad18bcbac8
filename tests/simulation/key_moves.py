"""Spanner with mutable key ranges: keys move between stream partitions that go on.

Everything that happens at a turn is a record of its instant: starts, which only one parent writes,
then what moved out of a stream partition and into it, then its end.  A query has an end of its own.
A key's changes after its move are in the destination, from the instant of the move on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.simulation.spanner import KEYS, QueryDone, SimSpanner, StreamQuery, _commit_us, _Part
from tidegate.producer.records import (
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRecord,
)


class MovingSpanner(SimSpanner):
    def __init__(self, *args: Any, **options: Any) -> None:
        self._homes: dict[int, _Part] = {}
        self._orders = 0
        self._sources: dict[str, set[str]] = {}
        """Token -> those that keys came from, and the one that named it."""
        super().__init__(*args, **options)
        for part in self.active:
            self._homes |= dict.fromkeys(range(part.low, part.high), part)

    def churn(self, now_us: int) -> None:
        chance = self._random
        at_us = max(now_us, self.last_us + 1)
        part = chance.choice(self.active)
        others = [one for one in self.active if one is not part and one.start_us < at_us]
        if part.start_us >= at_us:
            return
        self._orders += 1
        kind = chance.random()
        if others and kind < 0.5:
            self._move(part, chance.choice(others), at_us)
        elif others and kind < 0.65:
            self._succeed([part, chance.choice(others)], 1, at_us)
        elif len(self.active) < 6 and kind < 0.9:
            self._succeed([part], chance.choice((1, 2)), at_us)
        elif len(self.active) < 6:
            (born,) = self._start(part, 1, at_us)
            self._hand_over([part], [born], self._some_keys(part), at_us)
            self.active.append(born)
        self.last_us = at_us

    def unhindered(self, start_us: int, refused: Collection[str]) -> list[_Part]:
        held = set(refused)
        while more := {
            token
            for token, sources in self._sources.items()
            if token not in held and sources & held
        }:
            held |= more
        return [
            part
            for token, part in self.parts.items()
            if token not in held and (part.end_us is None or part.end_us > start_us)
        ]

    def _home(self, key: int) -> _Part:
        return self._homes[key]

    def _some_keys(self, part: _Part) -> list[int]:
        keys = [key for key in range(KEYS) if self._homes[key] is part]
        return sorted(self._random.sample(keys, self._random.randint(0, len(keys))))

    def _move(self, one: _Part, other: _Part, at_us: int) -> None:
        given, taken = self._some_keys(one), []
        if self._random.random() < 0.2:
            taken = self._some_keys(other)
        self._event(one, at_us, 0, (other.token,) if taken else (), (other.token,))
        self._event(other, at_us, 0, (one.token,), (one.token,) if taken else ())
        self._homes |= dict.fromkeys(given, other) | dict.fromkeys(taken, one)

    def _succeed(self, parents: list[_Part], count: int, at_us: int) -> None:
        children = self._start(parents[0], count, at_us)
        keys = [key for key in range(KEYS) if self._homes[key] in parents]
        self._hand_over(parents, children, keys, at_us)
        for parent in parents:
            parent.records.append(PartitionEndRecord(at_us * 1000, self._sequence(9)))
            parent.end_us = at_us
            self.active.remove(parent)
        self.active += children

    def _start(self, parent: _Part, count: int, at_us: int) -> list[_Part]:
        """Let a stream partition name new ones, together or in a record of its own each."""
        born = [self._part((parent.token,), at_us, 0, 0) for _ in range(count)]
        tokens = [one.token for one in born]
        groups = [tokens] if self._random.random() < 0.5 else [[token] for token in tokens]
        for number, group in enumerate(groups):
            parent.records.append(
                PartitionStartRecord(at_us * 1000, self._sequence(number), tuple(group))
            )
        parent.named += tokens
        for token in tokens:
            self._sources.setdefault(token, set()).add(parent.token)
        return born

    def _hand_over(
        self, sources: list[_Part], destinations: list[_Part], keys: list[int], at_us: int
    ) -> None:
        names = tuple(one.token for one in destinations)
        for source in sources:
            self._event(source, at_us, 8, (), names)
        for destination in destinations:
            self._event(destination, at_us, 0, tuple(one.token for one in sources), ())
        for key in keys:
            self._homes[key] = self._random.choice(destinations)

    def _event(
        self,
        part: _Part,
        at_us: int,
        number: int,
        sources: tuple[str, ...],
        destinations: tuple[str, ...],
    ) -> None:
        sequence = self._sequence(number)
        part.records.append(PartitionEventRecord(at_us * 1000, sequence, sources, destinations))
        self._sources.setdefault(part.token, set()).update(sources)

    def _sequence(self, number: int) -> str:
        return f"{self._orders:016x}-{number:08x}"


class MovingQuery(StreamQuery):
    """One query of an interval; a later one goes on behind its end."""

    def __init__(self, *args: Any, end_us: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._end_us = end_us
        self._has_named = False
        self._has_beaten = False

    def _following(self, part: _Part, now_us: int) -> list[StreamRecord]:
        found = [one for one in self._waiting(part) if _commit_us(one) <= self._end_us]
        if found:
            return found
        has_ended = part.end_us is not None and part.end_us <= self._end_us
        if has_ended or self._truncates or self._has_beaten:
            raise QueryDone
        if self._spanner.last_us > self._end_us:
            self._has_beaten = True  # nothing at or before the end follows
            return [HeartbeatRecord(self._end_us * 1000)]
        if self._random.random() < 0.5:
            return []
        at_us = min(self._spanner.promise(now_us), self._end_us)
        return [HeartbeatRecord(at_us * 1000)]

    def _initial(self) -> list[StreamRecord]:
        if self._has_named:
            raise QueryDone
        self._has_named = True
        tokens = tuple(child.token for child in self._spanner.roots(self.start_us))
        groups = [tokens] if self._random.random() < 0.5 else [(token,) for token in tokens]
        return [
            PartitionStartRecord(self.start_us * 1000, f"{number:08d}", group)
            for number, group in enumerate(groups)
        ]
