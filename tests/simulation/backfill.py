"""Spanner whose stream begins with the rows that its tables have then.

The lineage is that of `tidegate.producer.backfill`: read partitions, of which each leads to a token
of its own, and all of these together to the change stream.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.key_moves import MovingSpanner
from tests.simulation.spanner import KEYS, SimSpanner, _Part
from tidegate.producer.backfill.read_partition import (
    REST,
    ReadPartition,
    done_token,
    done_tokens,
    read_token,
)
from tidegate.schemas.progress import ChildPartition

if TYPE_CHECKING:
    from tests.simulation.weather import Weather

__all__ = ["FilledSpanner", "kind_of_spanner"]


def kind_of_spanner(weather: Weather) -> type[SimSpanner]:
    """Return the kind of database that a world has."""
    if weather.backfill:
        return FilledSpanner
    return MovingSpanner if weather.key_moves else SimSpanner


class FilledSpanner(SimSpanner):
    """A Spanner database with one change stream, and a backfill of all tables before it."""

    def begin(self, now_us: int, random: Random) -> int:
        """Let the stream begin with the rows of that time, in some read partitions."""
        start_us = self.promise(now_us)
        next_us = self.last_us = start_us + 1
        for table in self._tables.changing:
            count = random.choice((0, 3, KEYS))
            self._rows |= {(table, key) for key in random.sample(range(KEYS), count)}
        rows = sorted(self._rows)
        self._touched.clear()
        cuts = {random.randint(0, len(rows)) for _ in range(random.randint(0, 3))}
        bounds = sorted({0, *cuts, len(rows)})
        ranges = [rows[low:high] for low, high in itertools.pairwise(bounds)]
        by_table = [
            (table, [key for name, key in one if name == table])
            for one in ranges
            for table in sorted({name for name, _ in one})
        ]
        streams, self.parts = self.parts, {}
        self._roots: list[_Part] = []
        rest = (ChildPartition(REST, done_tokens(len(by_table)), next_us * 1000),)
        for number, (table, keys) in enumerate(by_table):
            one = ReadPartition(table, number, len(by_table), len(keys), None, (str(keys[-1]),))
            token, done = read_token(one), done_token(one)
            leads_to = (ChildPartition(done, (token,), next_us * 1000),)
            read = self.parts[token] = _Part(token, (), start_us, 0, 0)
            read.end_us, read.children = next_us, leads_to
            self._roots.append(read)
            self._fill(read, one, keys, random, at_us=start_us)
            self.parts[done] = _Part(done, (token,), next_us, 0, 0, [], next_us, rest)
        parents = (REST,)
        children = tuple(ChildPartition(one.token, parents, next_us * 1000) for one in self.active)
        whole = _Part(REST, rest[0].parents, next_us, 0, 0, [], next_us, children)
        self.parts[REST] = whole
        self._roots = self._roots or [whole]
        for part in self.active:
            part.parents, part.start_us = parents, next_us
        self.parts |= streams
        return start_us

    def roots(self, start_us: int) -> list[ChildPartition]:
        """Return the read partitions; the rest of the stream if there is none."""
        return [ChildPartition(part.token, (), part.start_us * 1000) for part in self._roots]

    def _fill(
        self, part: _Part, one: ReadPartition, keys: list[int], random: Random, *, at_us: int
    ) -> None:
        size = random.choice((1, 3, 20))
        groups = [keys[first : first + size] for first in range(0, len(keys), size)]
        for number, group in enumerate(groups):
            changes = [
                (
                    key, "I",
                    {
                        name: self._tables.value(one.table, name)
                        for name in self._tables.columns(one.table)
                    },
                )
                for key in group
            ]  # fmt: skip
            self._record(
                part, one.table, changes, at_us=at_us, name=f"spanner-backfill-{one.number}",
                sequence=f"{number:08d}",
            )  # fmt: skip
            part.records[-1] = part.records[-1]._replace(  # type: ignore[union-attr]  # just made
                number_of_records_in_transaction=len(groups)
            )
