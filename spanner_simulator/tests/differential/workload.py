"""A seed's workload: a schema, then steps that write, read, fail and alter it.

Everything comes from the seed, nothing from an answer, so that both sides are asked the same and a
seed means the same for ever.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random
from typing import Any, get_args

from differential.information_schema import information_schema_queries
from differential.kinds import GOOGLE, Dialect, sort_key
from differential.kinds import value as choose_value
from differential.row_model import RowModel
from differential.schema import Table, options_text
from differential.schema_choice import CAPTURE_TYPES, SchemaChoice
from differential.sql_choice import SqlChoice
from differential.steps import (
    Batch,
    ChangeSchema,
    Commit,
    Delete,
    Dml,
    Interval,
    Keys,
    Mutation,
    PartitionedDml,
    Query,
    Read,
    ReadWrite,
    ShowSchema,
    Step,
    Write,
)

FEATURES = (
    "alter_streams",
    "alter_tables",
    "arrays",
    "batch",
    "checks",
    "commit_timestamps",
    "defaults",
    "descending",
    "dml",
    "failures",
    "foreign_keys",
    "generated",
    "indexes",
    "information_schema",
    "interleave",
    "queries",
    "ranges",
    "reads",
    "views",
)
_STEPS = 45
COMMIT_TIMESTAMP = "spanner.commit_timestamp()"


@dataclass(frozen=True, slots=True)
class Workload:
    """What both sides are asked. `one_partition`: the simulator keeps its streams in one."""

    seed: int
    dialect: Dialect
    features: frozenset[str]
    one_partition: bool
    steps: tuple[Step, ...]


def dialect_of(seed: int) -> Dialect:
    """Every other seed."""
    google, postgres = get_args(Dialect)
    return postgres if seed % 2 == 0 else google


def make_workload(
    seed: int, *, dialect: Dialect | None = None, without: frozenset[str] = frozenset()
) -> Workload:
    """The workload of a seed; `without` leaves features out."""
    chance = Random(seed)  # repeatable, not secret
    features = frozenset(name for name in FEATURES if chance.random() < 0.75) - without
    maker = _Maker(chance, dialect or dialect_of(seed), features)
    one_partition = chance.random() < 0.6
    return Workload(seed, maker.dialect, features, one_partition, tuple(maker.steps()))


class _Maker:
    def __init__(self, chance: Random, dialect: Dialect, features: frozenset[str]) -> None:
        self._chance = chance
        self.dialect: Dialect = dialect
        self._features = features
        self._choice = SchemaChoice(chance, dialect, features)
        self._schema = self._choice.schema()
        self._rows = RowModel(self._schema)
        self._sql = SqlChoice(chance, self._schema, self._rows)
        self._steps: list[Step] = []
        self._commits: list[int] = []
        self._serial = 0
        self._has_dropped_column = False

    def steps(self) -> list[Step]:
        schema, add = self._schema, self._steps.append
        for table in schema.tables.values():
            add(ChangeSchema((table.ddl(self.dialect),)))
        if schema.indexes:
            add(ChangeSchema(tuple(one.ddl(self.dialect) for one in schema.indexes.values())))
        for view in schema.views.values():
            add(ChangeSchema((view.ddl(),)))
        for stream in schema.streams.values():
            add(ChangeSchema((stream.create(self.dialect),), starts=(stream.name,)))
        add(ShowSchema())
        writes: list[tuple[Any, int]] = [(self._commit, 40), (self._mixed, 6)]
        others: list[tuple[Any, int]] = []
        if "dml" in self._features:
            writes += [(self._dml, 25)]
            # The emulator reads partitioned DML as GoogleSQL whatever the dialect.
            writes += [(self._partitioned, 2)] if self.dialect == GOOGLE else []
        if "batch" in self._features and "dml" in self._features:
            writes += [(self._batch, 4)]
        if "reads" in self._features:
            others += [(self._read, 12)]
        if "queries" in self._features:
            others += [(self._query, 14)]
        if "failures" in self._features:
            others += [(self._failure, 8)]
        if "alter_streams" in self._features:
            others += [(self._alter_stream, 6)]
        if "alter_tables" in self._features:
            others += [(self._alter_table, 4)]
        makers = writes + others
        add(self._commit())
        self._note_commit()
        while len(self._steps) < _STEPS:
            make = self._chance.choices([one for one, _ in makers], [w for _, w in makers])[0]
            add(make())
            self._note_commit()
        add(ShowSchema())
        if "information_schema" in self._features:
            self._steps += information_schema_queries(self.dialect)
        for name in list(schema.tables):
            columns = tuple(one.name for one in schema.tables[name].columns)
            add(Read(name, columns, Keys(is_all=True)))
            for index in schema.read_indexes(name):
                add(Read(name, index.readable(schema.tables[name]), Keys(is_all=True), index.name))
        return self._steps

    def _note_commit(self) -> None:
        if isinstance(self._steps[-1], Commit | ReadWrite):
            self._commits.append(len(self._steps) - 1)

    # ------------------------------------------------------------ keys and rows

    def _key(self, table: Table, *, known: float = 0.6) -> tuple[Any, ...]:
        """A key that is there, or a new one below a parent that is there."""
        chance = self._chance
        held = self._rows.held(table.name)
        if held and chance.random() < known:
            return chance.choice(held)
        prefix: tuple[Any, ...] = ()
        if table.parent is not None:
            above = self._rows.held(table.parent)
            if above and chance.random() < 0.95:
                prefix = chance.choice(above)
        rest = table.key_names[len(prefix) :]
        return prefix + tuple(self._key_part(table, name) for name in rest)

    def _key_part(self, table: Table, name: str) -> Any:
        column = table.column(name)
        if column.nullable and self._chance.random() < 0.1:
            return None
        while True:
            part = choose_value(self._chance, column.kind, self.dialect)
            # The emulator's records have null for infinities, which makes keys ambiguous.
            if not str(part).endswith("Infinity"):
                return part

    def _new_key(self, table: Table) -> tuple[Any, ...]:
        """A key that is not there, most of the time; pools are small, so that keys collide."""
        held = self._rows.keys.get(table.name, {})
        some = (self._key(table, known=0.03) for _ in range(6))
        return next((key for key in some if key not in held), self._key(table))

    def _table(self) -> Table:
        """Any table; rather its parent where a row would have none."""
        table = self._chance.choice(list(self._schema.tables.values()))
        while table.parent in self._schema.tables and not self._rows.held(table.parent):
            if self._chance.random() < 0.1:
                break
            table = self._schema.tables[table.parent]
        return table

    def _write(self) -> Write:
        chance = self._chance
        table = self._table()
        kind = chance.choice(("insert", "insert", "update", "insert_or_update", "replace"))
        if kind == "update" and not self._rows.held(table.name) and chance.random() < 0.9:
            kind = "insert"
        able = [one for one in table.values if one.is_written]
        needed = [one for one in able if not one.nullable and one.default is None]
        some = [one for one in able if one in needed or chance.random() < 0.6]
        if kind == "update":
            some = [one for one in able if chance.random() < 0.5]
        names = [*table.key_names, *(one.name for one in some)]
        chance.shuffle(names)
        rows = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            if kind == "insert":
                chosen = self._new_key(table)
            else:
                chosen = self._key(table, known=0.97 if kind == "update" else 0.5)
            key = dict(zip(table.key_names, chosen, strict=True))
            row = key | {one.name: self._data(one) for one in some}
            rows.append(tuple(row[name] for name in names))
        return Write(kind, table.name, tuple(names), tuple(rows))

    def _data(self, column: Any) -> Any:
        if column.commit_timestamp and self._chance.random() < 0.8:
            return COMMIT_TIMESTAMP
        if column.commit_timestamp and self._chance.random() < 0.9:
            # Not in the future, which is refused.
            return "2024-01-02T03:04:05.5Z"
        if column.nullable and self._chance.random() < 0.15:
            return None
        return self._rows.value(self._chance, column, self.dialect)

    def _delete(self) -> Delete:
        chance = self._chance
        table = chance.choice(list(self._schema.tables.values()))
        draw = chance.random()
        if draw < 0.06:
            return Delete(table.name, Keys(is_all=True))
        if draw < 0.35 and "ranges" in self._features:
            return Delete(table.name, Keys(intervals=(self._last_part_interval(table),)))
        keys = tuple(self._key(table, known=0.85) for _ in range(chance.choice((1, 1, 2))))
        return Delete(table.name, Keys(tuple(dict.fromkeys(keys))))

    def _interval(self, table: Table) -> Interval:
        """Two keys, or prefixes of them, in whatever order they come."""
        chance = self._chance
        start, end = self._key(table), self._key(table)
        draw = chance.random()
        if draw < 0.4:
            length = chance.randrange(1, len(start) + 1)
            start = end = start[:length]
        elif draw < 0.6:
            start, end = start[: chance.randrange(len(start) + 1)], end[:1]
        return Interval(start, end, chance.random() < 0.7, chance.random() < 0.7)

    def _last_part_interval(self, table: Table) -> Interval:
        """Keys in order and alike but for their last part: of others the emulator ends or hangs."""
        chance = self._chance
        first, second = self._key(table), self._key(table)
        length = chance.randrange(1, len(first) + 1)
        name, is_descending = table.key[length - 1]
        ends = sorted(
            (first[length - 1], second[length - 1]),
            key=lambda part: sort_key(table.key_kind(name), part),
            reverse=is_descending,
        )
        start, end = ((*first[: length - 1], part) for part in ends)
        closed = chance.random() < 0.7, chance.random() < 0.7
        # The emulator hangs at an interval without any key.
        return Interval(start, end, *((True, True) if start == end else closed))

    def _mutations(self) -> tuple[Mutation, ...]:
        """What one transaction writes; the model keeps it when it believes in it."""
        kept = self._rows.snapshot()
        made: list[Mutation] = []
        succeeds = True
        for _ in range(self._chance.choice((1, 1, 1, 2, 2, 3, 5))):
            mutation = self._delete() if self._chance.random() < 0.2 else self._write()
            if self._mixes_up((), (*made, mutation)):
                continue
            succeeds = self._rows.apply(mutation) and succeeds
            made.append(mutation)
        if not succeeds:
            self._rows.restore(kept)
        return tuple(made)

    def _mixes_up(self, statements: Any, mutations: tuple[Mutation, ...]) -> bool:
        """Whether rows that others refer to go where some of theirs or the others' are written.

        The emulator tells a cascade and an insert as one change, and is then wrong about the rows
        for good; rows of one table that others refer to it cannot both delete and write.
        """
        texts = [one.sql for one in statements]
        gone = {found[1] for text in texts if (found := re.match(r"DELETE FROM (\w+) ", text))}
        gone |= {one.table for one in mutations if isinstance(one, Delete) or one.kind == "replace"}
        for table in self._schema.tables.values():
            # Tables are made after their parents.
            gone |= {table.name} & {
                one.name for above in gone for one in self._schema.children(above)
            }
        written = {one.table for one in mutations if isinstance(one, Write)}
        written |= {name for name in self._schema.tables for one in texts if f" {name} " in one}
        referred = {
            (name, column.refers_to[0])
            for name, table in self._schema.tables.items()
            for column in table.columns
            if column.refers_to is not None
        }
        return any(to in gone and {by, to} & written for by, to in referred)

    # ------------------------------------------------------------ steps

    def _tag(self) -> str:
        return self._chance.choice(("", "", f"tag-{len(self._steps)}"))

    def _commit(self) -> Commit:
        return Commit(self._mutations(), self._tag())

    def _mixed(self) -> ReadWrite:
        """Reads within a read-write transaction, then mutations."""
        actions = tuple(
            self._read(at=False) if "reads" in self._features else ()
            for _ in range(self._chance.randrange(2))
        )
        commits = self._chance.random() < 0.85
        kept = self._rows.snapshot()
        mutations = self._mutations()
        if not commits:
            self._rows.restore(kept)
        return ReadWrite(tuple(one for one in actions if one), mutations, self._tag(), commits)

    def _dml(self) -> Step:
        chance = self._chance
        kept = self._rows.snapshot()
        actions: list[Any] = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            actions.append(self._sql.dml(self._key_for_dml))
            if chance.random() < 0.2 and "queries" in self._features:
                actions.append(self._sql.query())
            if chance.random() < 0.15 and "reads" in self._features:
                actions.append(self._read(at=False))
        mutations = self._mutations() if chance.random() < 0.25 else ()
        commits = chance.random() < 0.9
        mixes_up = self._mixes_up([one for one in actions if isinstance(one, Dml)], mutations)
        if not commits or mixes_up:
            self._rows.restore(kept)
        if mixes_up:
            return self._commit()
        return ReadWrite(tuple(actions), mutations, self._tag(), commits)

    def _key_for_dml(self, table: Table, *, is_new: bool) -> tuple[Any, ...]:
        return self._new_key(table) if is_new else self._key(table, known=0.85)

    def _batch(self) -> ReadWrite:
        made = [self._sql.dml(self._key_for_dml) for _ in range(self._chance.randrange(1, 4))]
        some = tuple(replace(one) for one in made if not one.returns)
        if self._mixes_up(some, ()):
            some = some[:1]
        return ReadWrite((Batch(some),) if some else (), (), self._tag())

    def _partitioned(self) -> Step:
        for _ in range(10):
            dml = self._sql.dml(self._key_for_dml)
            if (
                not dml.returns
                and dml.sql.startswith(("UPDATE", "DELETE"))
                and "PENDING" not in dml.sql
            ):
                return PartitionedDml(dml)
        return self._commit()

    def _read(self, *, at: bool = True) -> Read:
        chance = self._chance
        table = chance.choice(list(self._schema.tables.values()))
        names = [one.name for one in table.columns]
        index = ""
        indexes = self._schema.read_indexes(table.name)
        keys = self._read_keys(table)
        if indexes and chance.random() < 0.4:
            one = chance.choice(indexes)
            index = one.name
            names = list(one.readable(table))
            keys = Keys(is_all=True)
            if chance.random() < 0.5:
                kind = table.column(one.columns[0][0]).kind
                some = (choose_value(chance, kind, self.dialect),)
                keys = Keys(intervals=(Interval(some, some, True, True),))
        columns = tuple(chance.sample(names, chance.randrange(1, len(names) + 1)))
        limit = chance.choice((0, 0, 0, 1, 3))
        when = chance.choice(self._commits[-8:]) if at and chance.random() < 0.3 else None
        return Read(table.name, columns, keys, index, limit, when)

    def _read_keys(self, table: Table) -> Keys:
        draw = self._chance.random()
        if draw < 0.25:
            return Keys(is_all=True)
        some = [self._key(table) for _ in range(self._chance.choice((1, 2, 3)))]
        if draw < 0.6 or "ranges" not in self._features:
            return Keys(tuple(dict.fromkeys(some)))
        if draw < 0.85:
            return Keys(intervals=(self._interval(table),))
        return Keys((some[0],), (self._interval(table),))

    def _query(self) -> Query:
        query = self._sql.query()
        if self._chance.random() < 0.2:
            return replace(query, at=self._chance.choice(self._commits[-8:]))
        return query

    # ------------------------------------------------------------ failures

    def _failure(self) -> Step:
        """A transaction that must not commit, for one reason."""
        chance = self._chance
        table = chance.choice(list(self._schema.tables.values()))
        row = dict(zip(table.key_names, self._new_key(table), strict=True))
        for one in table.values:
            if one.is_written and not one.nullable and one.default is None:
                row[one.name] = choose_value(chance, one.kind, self.dialect)
        written = [one for one in table.values if one.is_written]
        draw = chance.randrange(9)
        if draw == 0:
            return self._refused("insert", "Missing", row)
        if draw == 1:
            return self._refused("insert", table.name, row | {"nope": "1"})
        if draw == 2:
            first = table.key_names[0]
            columns, values = (*row, first), (*row.values(), row[first])
            return Commit((Write("insert", table.name, columns, (values,)),))
        if draw == 3 and not table.column(table.key_names[-1]).nullable:
            del row[table.key_names[-1]]
            return self._refused("insert", table.name, row)
        if draw == 4:
            keys = dict(zip(table.key_names, self._unknown(table), strict=True))
            return self._refused("update", table.name, keys)
        if draw == 5 and (able := [one for one in written if not one.nullable]):
            return self._refused("insert_or_update", table.name, row | {able[0].name: None})
        if draw == 6 and (able := [one for one in written if one.kind.code == "INT64"]):
            wrong = chance.choice(("abc", True, 1.5))
            return self._refused("insert_or_update", table.name, row | {able[0].name: wrong})
        if draw == 7:
            able = [one for one in written if one.kind.length and one.kind.code == "STRING"]
            if able:
                return self._refused("insert_or_update", table.name, row | {able[0].name: "x" * 50})
        return Read(table.name, (*table.key_names, "nope"), Keys(is_all=True))

    def _refused(self, kind: Any, table: str, row: dict[str, Any]) -> Commit:
        return Commit((Write(kind, table, tuple(row), (tuple(row.values()),)),))

    def _unknown(self, table: Table) -> tuple[Any, ...]:
        for _ in range(20):
            key = self._new_key(table)
            if key not in self._rows.keys.get(table.name, {}):
                return key
        return self._new_key(table)

    # ------------------------------------------------------------ DDL in mid-run

    def _alter_stream(self) -> ChangeSchema:
        chance, schema = self._chance, self._schema
        stream = chance.choice(list(schema.streams.values()))
        draw = chance.random()
        head = f"ALTER CHANGE STREAM {stream.name}"
        if draw < 0.5:
            options = {"value_capture_type": chance.choice(CAPTURE_TYPES)}
            if chance.random() < 0.3:
                options[chance.choice(("exclude_insert", "exclude_update", "exclude_delete"))] = (
                    chance.random() < 0.5
                )
            word = "SET OPTIONS" if self.dialect == GOOGLE else "SET"
            return ChangeSchema((f"{head} {word} ({options_text(options)})",))
        # After a dropped column the emulator ends at SET FOR.
        if draw < 0.85 and not self._has_dropped_column:
            watch = self._choice.watch(schema)
            if watch:
                # After SET FOR the emulator watches the last of several tables only.
                table = chance.choice(list(watch))
                watch = {table: watch[table]}
            if watch is None or watch:
                made = replace(stream, watch=watch)
                schema.streams[stream.name] = made
                return ChangeSchema((f"{head} SET{made.watch_text()}",))
        if stream.watch != {} and draw > 0.93 and not self._has_dropped_column:
            schema.streams[stream.name] = replace(stream, watch={})
            return ChangeSchema((f"{head} DROP FOR ALL",))
        tracked = [name for one in schema.streams.values() for name in one.watch or ()]
        if tracked and chance.random() < 0.5:
            # Refused while a stream names it.
            return ChangeSchema((f"DROP TABLE {chance.choice(tracked)}",))
        return ShowSchema()  # type: ignore[return-value]

    def _alter_table(self) -> Step:
        chance, schema = self._chance, self._schema
        draw = chance.random()
        table = chance.choice(list(schema.tables.values()))
        if draw < 0.5:
            self._serial += 1
            name = f"Added{self._serial}"
            column = self._choice.column(name if self.dialect == GOOGLE else name.lower())
            column = replace(column, nullable=column.default is None)
            if column.default is None or chance.random() < 0.7:
                column = replace(column, nullable=True)
            schema.add_column(table.name, column)
            text = f"ALTER TABLE {table.name} ADD COLUMN {column.ddl(self.dialect)}"
            return ChangeSchema((text,))
        if draw < 0.7:
            made = self._choice.add_table(schema)
            return ChangeSchema((made.ddl(self.dialect),))
        if draw < 0.8 and "indexes" in self._features:
            index = self._choice.add_index(schema)
            if index is not None:
                return ChangeSchema((index.ddl(self.dialect),))
        able = [one.name for one in table.values if self._is_free(table, one.name)]
        if not able:
            return ShowSchema()
        name = chance.choice(able)
        schema.drop_column(table.name, name)
        self._has_dropped_column = True
        return ChangeSchema((f"ALTER TABLE {table.name} DROP COLUMN {name}",))

    def _is_free(self, table: Table, name: str) -> bool:
        """Whether nothing is known to hold a column."""
        for index in self._schema.indexes_of(table.name):
            if name in index.storing or name in {part for part, _ in index.columns}:
                return False
        for stream in self._schema.streams.values():
            if name in ((stream.watch or {}).get(table.name) or ()):
                return False
        viewed = [one for one in self._schema.views.values() if one.table == table.name]
        if any(name in one.columns or name in one.where for one in viewed):
            return False
        texts = [one.generated or "" for one in table.columns] + list(table.constraints)
        return not any(name in text for text in texts)
