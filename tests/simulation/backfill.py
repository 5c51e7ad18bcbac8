"""Spanner whose tables are read: when the stream begins, or while it runs.

The lineage is that of `tidegate.producer.backfill`: read partitions, of which each leads to a token
of its own, and all of these together to the change stream; or chunks that follow each other, of
which the first is announced by a stream partition that goes on.
"""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

from tests.simulation.key_moves import MovingSpanner
from tests.simulation.spanner import KEYS, SimSpanner, _Part
from tidegate.producer.backfill.read_partition import (
    REST,
    ReadPartition,
    done_token,
    done_tokens,
    read_token,
)
from tidegate.producer.backfill.table_run import RunWait, place_of
from tidegate.producer.records import PartitionEndRecord, PartitionStartRecord
from tidegate.producer.spanner.table_rows import BACKFILL_TAG
from tidegate.schemas.progress import ChildPartition

EVEN = "Key is even"  # the condition of the first run, and of each second one after it


def kind_of_spanner(weather) -> type[SimSpanner]:
    if weather.chunks:
        return ChunkedSpanner
    if weather.backfill:
        return FilledSpanner
    return MovingSpanner if weather.key_moves else SimSpanner


class ChunkedSpanner(SimSpanner):
    """A Spanner database with one change stream, beside which a table is read in chunks.

    The table changes meanwhile.  Its rows have a topic of their own, which stands for the one
    beside its data topic: to the gate it is another table.  Each churn may take the run a step
    further: its announcement by a stream partition that goes on, a chunk at a time
    of its own, and the wait behind it.  At its end a new run begins, which reads other rows.  The
    first run and each second one after it have a condition, which a chunk has from its token alone.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = self._tables.names[0]
        self._filled = self._tables.add_beside(self._table)
        data = self._names.data
        self.read_beside = {data(self._filled): data(self._table)}
        self._versions: dict[int, list[tuple[int, dict[str, Any] | None]]] = {}
        """Key -> (since when, row); None where the row was deleted."""
        self._place = RunWait(0, self._filled)
        self._last: _Part | None = None
        self._unread = list(range(KEYS))
        self._keys: list[int] = []
        self._is_open = False

    @property
    def living(self) -> int:
        return super().living + (self._last is not None)

    def begin(self, now_us: int, random: Random) -> int:
        self._is_open = True
        return super().begin(now_us, random)

    def churn(self, now_us: int) -> None:
        """Take a run further, or let stream partitions split, merge or move."""
        if not self._is_open or self._random.random() < 0.4:
            super().churn(now_us)
            return
        at_us = max(now_us, self.last_us + 1)
        if self._last is None:
            self._announce(at_us)
        else:
            self._read(self._last, at_us)

    def _announce(self, at_us: int) -> None:
        parent = self._random.choice(self.active)
        if parent.start_us >= at_us:
            return
        run = self._place.run + 1
        self._place = RunWait(run, self._filled, where=EVEN if run % 2 else "")
        # No row twice: a run begins only once what an earlier one has read is published.
        count = min(len(self._unread), self._random.choice((0, 3, KEYS // 2, KEYS)))
        self._keys, self._unread = self._unread[:count], self._unread[count:]
        token = self._place.token
        start = PartitionStartRecord(at_us * 1000, f"{self._place.run:08d}", (token,))
        parent.records.append(start)
        parent.named.append(token)
        self._last = self.parts[token] = _Part(token, (parent.token,), at_us, 0, 0)
        self.last_us = at_us

    def _read(self, wait: _Part, at_us: int) -> None:
        """Let a chunk follow a wait, with the next rows as they are then, and a wait follow it."""
        if wait.start_us >= at_us:
            return
        place = place_of(wait.token)
        assert isinstance(place, RunWait)
        keys = [key for key in self._keys if not place.where or key % 2 == 0][:7]
        self._keys = [key for key in self._keys if len(keys) == 7 and key > keys[-1]]
        token = place.chunk(at_us * 1000, rows=7).token
        chunk = self.parts[token] = _Part(token, (wait.token,), at_us, 0, 0)
        self._close((wait,), (chunk,), at_us)
        rows = {key: row for key in keys if (row := self._row_at(key, at_us)) is not None}
        # A row that there is not yet may be read by a later run.
        self._unread = sorted({*self._unread, *keys} - rows.keys())
        found = [(key, "I", row) for key, row in rows.items()]
        for number, first in enumerate(range(0, len(found), 3)):
            changes = found[first : first + 3]
            name = f"{BACKFILL_TAG}-{self._place.run}-{self._place.number}-{number:06d}"
            self._record(chunk, self._filled, changes, at_us=at_us, name=name, sequence="00000000")
        self._last, next_us = None, at_us + 1
        if self._keys:
            # The first wait measures, and names the one that is a pause.
            measures = place.chunk(at_us * 1000, rows=7).next((str(keys[-1]),))
            self._place = measures.measured(next_us * 1000)
            one = self._follow(chunk, measures.token, next_us)
            next_us += 1
            self._last = self._follow(one, self._place.token, next_us)
        else:
            chunk.end_us = next_us
            chunk.records.append(PartitionEndRecord(next_us * 1000, "99999999"))
        self.last_us = next_us

    def _follow(self, parent: _Part, token: str, at_us: int) -> _Part:
        part = self.parts[token] = _Part(token, (parent.token,), at_us, 0, 0)
        self._close((parent,), (part,), at_us)
        return part

    def _change(self, place: tuple[str, int], at_us: int) -> tuple[str, dict[str, Any]]:
        mod, changed = super()._change(place, at_us)
        table, key = place
        if table == self._table:
            versions = self._versions.setdefault(key, [])
            before = (versions[-1][1] if versions else None) or {}
            versions.append((at_us, None if mod == "D" else {**before, **changed}))
        return mod, changed

    def _row_at(self, key: int, at_us: int) -> dict[str, Any] | None:
        rows = [row for since_us, row in self._versions.get(key, ()) if since_us <= at_us]
        if not rows or rows[-1] is None:
            return None
        return {name: rows[-1].get(name) for name in self._tables.columns(self._filled)}


class FilledSpanner(SimSpanner):
    """A Spanner database with one change stream, and a backfill of all tables before it."""

    def begin(self, now_us: int, random: Random) -> int:
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
            part.records[-1] = part.records[-1]._replace(
                number_of_records_in_transaction=len(groups)
            )
