"""Spanner in memory: a key space cut into stream partitions, transactions, and queries.

Commit timestamps ascend and may be equal for transactions that touch different cells.  A stream
partition's data lie in [start, end); at its end it names its children, and both parents of a merge
name the same child with both parents.  A query returns records in commit order, those of one
instant in an order that may differ from query to query, and heartbeats that it keeps: after one
at T may still come records of the instant T (`docs/protocol.md`, 7.6).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.history import Committed, LineageFact
from tests.simulation.tables import SimTables
from tests.simulation.weather import TAG
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    ModType,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRecord,
)
from tidegate.producer.spanner.table_rows import BACKFILL_TAG
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames

KEYS = 24  # the key space: 0 to KEYS - 1
_MOD_TYPES: dict[str, ModType] = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}
_Kept = DataChangeRecord | PartitionStartRecord | PartitionEndRecord | PartitionEventRecord
_Changes = list[tuple[int, str, dict[str, Any]]]  # (key, kind, column -> value) of each row


class QueryBroke(Exception):
    """The service ended a query with an error that may be retried."""


class QueryDone(Exception):
    """The service ended a query with OK."""


class QueryExpired(Exception):
    """The service no longer holds what a query asks for."""

    def __init__(self, earliest_us: int | None) -> None:
        super().__init__(earliest_us)
        self.earliest_us = earliest_us  # None where all of a stream partition is gone


@dataclass(slots=True, eq=False)
class _Part:
    token: str
    parents: tuple[str, ...]
    start_us: int
    low: int
    high: int
    records: list[_Kept] = field(default_factory=list)
    end_us: int | None = None
    children: tuple[ChildPartition, ...] = ()
    named: list[str] = field(default_factory=list)  # of mutable key ranges: those that it started

    def fact(self) -> LineageFact:
        names = tuple(child.token for child in self.children) or tuple(self.named)
        return LineageFact(self.token, self.parents, self.start_us, self.end_us, names)


class SimSpanner:
    def __init__(
        self,
        random: Random,
        names: TopicNames,
        tables: SimTables,
        *,
        now_us: int,
        record_filter: RecordFilter | None = None,
    ) -> None:
        """`record_filter` is what nobody publishes, and is kept apart."""
        self._random = random
        self._filter = record_filter or RecordFilter()
        self.filtered: list[Committed] = []
        self.read_beside: dict[str, str] = {}  # as in `History`
        self._names, self._tables = names, tables
        self._rows: set[tuple[str, int]] = set()
        self._touched: dict[tuple[str, int], tuple[int, frozenset[str]]] = {}
        self._serial = 0
        self._partitions = 0
        self.parts: dict[str, _Part] = {}
        self.active: list[_Part] = []
        self.last_us = now_us
        """The last commit, split or promise: whatever comes next is not before it."""
        self.earliest_us = 0
        """Where the stream's retention begins: what is older cannot be asked for."""
        self.committed: list[Committed] = []
        cuts = sorted(random.sample(range(1, KEYS), random.randint(0, 2)))
        for low, high in zip([0, *cuts], [*cuts, KEYS], strict=True):
            self.active.append(self._part((), now_us, low, high))

    @property
    def living(self) -> int:
        return len(self.active)

    def begin(self, now_us: int, random: Random) -> int:
        return self.promise(now_us)

    def commit(self, now_us: int) -> None:
        chance = self._random
        keys = chance.sample(range(KEYS), chance.choice((1, 1, 2, 3, 5)))
        places = [(chance.choice(self._tables.changing), key) for key in keys]
        at_us = max(now_us, self.last_us)
        if chance.random() < 0.4:
            at_us = self.last_us  # the instant of the commit, split or heartbeat before
        if not all(self._cells_free(place, at_us) for place in places):
            at_us += 1
        self.last_us = at_us
        self._serial += 1
        transaction = f"{chance.randrange(1 << 20):05x}{self._serial:x}"
        grouped: dict[tuple[str, str], list[int]] = {}
        for table, key in places:
            part = self._home(key)
            grouped.setdefault((part.token, table), []).append(key)
        sequence = 0
        written: list[tuple[list[_Kept], int]] = []
        for (token, table), group in grouped.items():
            for change in self._changes(table, group, at_us):
                sequence += chance.choice((0, 1, 3))
                part, number = self.parts[token], f"{sequence:08d}"
                self._record(part, table, change, at_us=at_us, name=transaction, sequence=number)
                written.append((part.records, len(part.records) - 1))
                sequence += 1
        for records, place in written:
            found = records[place]
            assert isinstance(found, DataChangeRecord)
            records[place] = found._replace(number_of_records_in_transaction=len(written))

    def churn(self, now_us: int) -> None:
        chance = self._random
        at_us = max(now_us, self.last_us + 1)
        index = chance.randrange(len(self.active))
        part = self.active[index]
        if chance.random() < 0.45 and len(self.active) > 1 and index + 1 < len(self.active):
            other = self.active[index + 1]
            parents = (part, other) if chance.random() < 0.5 else (other, part)
            if any(parent.start_us >= at_us for parent in parents):
                return
            merged = self._part(
                tuple(parent.token for parent in parents), at_us, part.low, other.high
            )
            self._close((part, other), (merged,), at_us)
            self.active[index : index + 2] = [merged]
        elif part.start_us >= at_us:
            return
        elif part.high - part.low > 1 and len(self.active) < 6 and chance.random() < 0.7:
            cut = chance.randrange(part.low + 1, part.high)
            left = self._part((part.token,), at_us, part.low, cut)
            right = self._part((part.token,), at_us, cut, part.high)
            self._close((part,), (left, right), at_us)
            self.active[index : index + 1] = [left, right]
        else:
            moved = self._part((part.token,), at_us, part.low, part.high)
            self._close((part,), (moved,), at_us)
            self.active[index] = moved
        self.last_us = at_us

    def alter(self, now_us: int, change: Callable[[], str] | None = None) -> str:
        """Change the schema after all that was promised; return what was done."""
        self.last_us = max(now_us, self.last_us + 1)
        return (change or self._tables.alter)()

    def promise(self, now_us: int) -> int:
        """Return a heartbeat's time: nothing before it comes any more, the instant itself may."""
        self.last_us = max(self.last_us, now_us)
        return self.last_us

    def roots(self, start_us: int) -> list[ChildPartition]:
        return [
            ChildPartition(part.token, (), start_us * 1000)
            for part in self.parts.values()
            if part.start_us <= start_us and (part.end_us is None or part.end_us > start_us)
        ]

    def unhindered(self, start_us: int, refused: Collection[str]) -> list[_Part]:
        """Return the stream's parts that neither are refused nor descend from one that is."""
        held: dict[str, bool] = {}
        for token, part in self.parts.items():
            if part.end_us is None or part.end_us > start_us:  # else it is before the stream
                is_below = any(held.get(parent, False) for parent in part.parents)
                held[token] = token in refused or is_below
        return [self.parts[token] for token, is_held in held.items() if not is_held]

    def facts(self) -> dict[str, LineageFact]:
        return {token: part.fact() for token, part in self.parts.items()}

    def _home(self, key: int) -> _Part:
        return next(part for part in self.active if part.low <= key < part.high)

    def _part(self, parents: tuple[str, ...], start_us: int, low: int, high: int) -> _Part:
        self._partitions += 1
        token = f"p{self._partitions}-{self._random.randrange(1 << 16):04x}"
        part = self.parts[token] = _Part(token, parents, start_us, low, high)
        return part

    def _close(self, parents: tuple[_Part, ...], children: tuple[_Part, ...], at_us: int) -> None:
        named = tuple(ChildPartition(c.token, c.parents, at_us * 1000) for c in children)
        for parent in parents:
            parent.end_us, parent.children = at_us, named

    def _changes(self, table: str, keys: list[int], at_us: int) -> Iterator[_Changes]:
        grouped: dict[tuple[str, tuple[str, ...]], _Changes] = {}
        for key in keys:
            mod, columns = self._change((table, key), at_us)
            grouped.setdefault((mod, tuple(columns)), []).append((key, mod, columns))
        yield from grouped.values()

    def _record(
        self, part: _Part, table: str, changes: _Changes, *, at_us: int, name: str, sequence: str
    ) -> None:
        mods, tables = [], self._tables
        committed: list[Committed] = []
        mod, names = changes[0][1], tuple(changes[0][2])
        for number, (key, _, columns) in enumerate(changes):
            order_key = OrderKey(at_us, name, sequence_pair(sequence), number).encode()
            new_values = {one: tables.as_json(table, one, value) for one, value in columns.items()}
            mods.append(Mod(tables.key(table, key), new_values, {}))
            committed.append(
                Committed(
                    order_key, at_us, name, self._names.data(table), tables.key_text(table, key),
                    token=part.token, mod=mod, columns=tables.plain(table, columns),
                )
            )  # fmt: skip
        record = DataChangeRecord(
            commit_timestamp_ns=at_us * 1000,
            record_sequence=sequence,
            server_transaction_id=name,
            is_last_record_in_transaction_in_partition=False,
            table_name=table,
            columns=tables.shown(table, names),
            mods=tuple(mods),
            mod_type=_MOD_TYPES[mod],
            value_capture_type="NEW_VALUES",
            number_of_records_in_transaction=1,
            number_of_partitions_in_transaction=1,
            transaction_tag=_tag_of(name),
            is_system_transaction=False,
        )
        part.records.append(record)
        # By hand: the filter of production code is not its own judge.
        is_left_out = record.mod_type not in self._filter.mod_types or (
            record.transaction_tag in self._filter.tags_left_out
        )
        (self.filtered if is_left_out else self.committed).extend(committed)

    def _cells_taken(self, place: tuple[str, int], at_us: int) -> frozenset[str]:
        touched_us, columns = self._touched.get(place, (-1, frozenset()))
        return columns if touched_us == at_us else frozenset()

    def _cells_free(self, place: tuple[str, int], at_us: int) -> list[str]:
        taken = self._cells_taken(place, at_us)
        return [name for name in self._tables.columns(place[0]) if name not in taken]

    def _change(self, place: tuple[str, int], at_us: int) -> tuple[str, dict[str, Any]]:
        chance, taken = self._random, self._cells_taken(place, at_us)
        is_key_only = not self._tables.columns(place[0])
        mod = "D" if (chance.random() < 0.2 and not taken) or is_key_only else "U"
        if place not in self._rows:
            mod = "I"
        changed: dict[str, Any] = {}
        if mod == "D":
            self._rows.discard(place)
        else:
            free = self._cells_free(place, at_us)
            count = min(len(free), chance.choice((1, 1, 2)))
            names = free if mod == "I" else sorted(chance.sample(free, count))
            changed = {name: self._tables.value(place[0], name) for name in names}
            self._rows.add(place)
        whole = frozenset(self._tables.columns(place[0]))
        touched = frozenset(changed) | taken if mod == "U" else whole
        self._touched[place] = at_us, touched
        return mod, changed


class StreamQuery:
    """One running query of one stream partition; `next` gives the next response."""

    def __init__(
        self, spanner: SimSpanner, token: str, start_us: int, random: Random, *, truncates: bool
    ) -> None:
        self._spanner, self._random, self.token = spanner, random, token
        self.start_us, self._truncates = start_us, truncates
        self._served: set[tuple[str, str]] = set()
        self._through_us = start_us
        """All records before this instant were served, of the instant itself those in `_served`."""
        self.silence = 0.0  # chance per response that this and all further ones stay away
        self.is_silent = False
        self._has_begun = False
        self._has_repeated = False
        self._children = iter(self._child_records())

    def next(self, now_us: int) -> list[StreamRecord]:
        """Return some more items, perhaps none yet.

        Raises QueryDone at the end, QueryBroke after a repeat, and QueryExpired for a start before
        the stream's retention, or for a stream partition that has ended before it.
        """
        if self._has_repeated:
            raise QueryBroke
        self._has_begun = True
        if self.start_us < self._spanner.earliest_us:
            raise QueryExpired(self._spanner.earliest_us)
        if self.token == ROOT_TOKEN:
            return self._initial()
        part = self._spanner.parts[self.token]
        has_ended = part.end_us is not None and part.end_us < self.start_us
        if has_ended and self._spanner.earliest_us:
            raise QueryExpired(None)
        return self._following(part, now_us)

    def _initial(self) -> list[StreamRecord]:
        return [next(self._children, None) or _done()]

    def _following(self, part: _Part, now_us: int) -> list[StreamRecord]:
        chance = self._random
        found = self._waiting(part)
        if found:
            return list(found)
        if part.end_us is not None:
            if self._truncates:
                raise QueryDone  # without a word about the children
            return [next(self._children, None) or _done()]
        if chance.random() < 0.5:
            return []
        at_us = self._spanner.promise(now_us)
        return [HeartbeatRecord(at_us * 1000 + chance.choice((0, 0, 1, 999)))]

    def repeat(self) -> list[StreamRecord]:
        """Return what lies at the start, once: it is read already, or most of it is.

        Raises QueryBroke if this query has returned something before.
        """
        part = self._spanner.parts[self.token]
        first = bisect_left(part.records, self.start_us, key=_commit_us)
        near = [r for r in part.records[first:] if _commit_us(r) <= self.start_us + 1]
        if self._has_begun or not near:
            raise QueryBroke
        self._has_begun = self._has_repeated = True
        return list(near)

    def _waiting(self, part: _Part) -> list[_Kept]:
        first = bisect_left(part.records, self._through_us, key=_commit_us)
        fresh = [r for r in part.records[first:] if _identity(r) not in self._served]
        if not fresh:
            return []
        instant = _commit_us(fresh[0])
        ties = [r for r in fresh if _commit_us(r) == instant]
        if len(ties) > 1:
            order = list(dict.fromkeys(_identity(r)[0] for r in ties))
            self._random.shuffle(order)
            # What is no change comes first, as it was written: data of its instant lie behind it.
            order.sort(key=lambda transaction: transaction != "")
            ties.sort(key=lambda r: (order.index(_identity(r)[0]), _identity(r)[1]))
        batch = ties if len(ties) > 1 else fresh
        count = self._random.choice((1, 1, 2, 4, 16))
        batch = batch[:count]
        for record in batch:
            if _commit_us(record) > self._through_us:
                self._served.clear()
                self._through_us = _commit_us(record)
            self._served.add(_identity(record))
        return batch

    def _child_records(self) -> Iterator[ChildPartitionsRecord]:
        """Name the children: together, or in a record of its own each."""
        if self.token == ROOT_TOKEN:
            children = tuple(self._spanner.roots(self.start_us))
        else:
            children = self._spanner.parts[self.token].children
        alone = [(child,) for child in children]
        groups = [children] if self._random.random() < 0.5 else alone
        for number, group in enumerate(groups):
            yield ChildPartitionsRecord(group[0].start_ns, f"{number:08d}", group)


def _tag_of(transaction: str) -> str:
    is_backfill = transaction.startswith(BACKFILL_TAG)
    return TAG if not is_backfill and int(transaction[:5], 16) % 3 == 0 else ""


def _done() -> ChildPartitionsRecord:
    raise QueryDone


def _commit_us(record: _Kept) -> int:
    match record:
        case PartitionStartRecord():
            return record.start_ns // 1000
        case PartitionEndRecord():
            return record.end_ns // 1000
        case _:
            return record.commit_timestamp_ns // 1000


def _identity(record: _Kept) -> tuple[str, str]:
    if isinstance(record, DataChangeRecord):
        return record.server_transaction_id, record.record_sequence
    return "", record.record_sequence
