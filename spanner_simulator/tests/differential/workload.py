"""A seed's workload: a schema, then steps that write, read, fail and alter it.

Everything comes from the seed, nothing from an answer, so that both sides are asked the same and a
seed means the same for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, get_args

from differential.kinds import GOOGLE, Dialect, Kind
from differential.kinds import value as choose_value
from differential.row_model import RowModel
from differential.schema import Table, options_text
from differential.schema_choice import CAPTURE_TYPES, SchemaChoice
from differential.sql_choice import SqlChoice
from differential.steps import (
    Action,
    ChangeSchema,
    Commit,
    Delete,
    Interval,
    Keys,
    Mutation,
    Query,
    Read,
    ReadWrite,
    ShowSchema,
    Step,
    Write,
)

FEATURES = (
    *("alter_streams", "alter_tables", "arrays", "commit_timestamps", "defaults", "descending"),
    *("dml", "failures", "generated", "indexes", "interleave", "queries", "ranges", "reads"),
)
_STEPS = 45
COMMIT_TIMESTAMP = "spanner.commit_timestamp()"


@dataclass(frozen=True, slots=True)
class Workload:
    """What both sides are asked. `one_partition`: the simulator keeps its streams in one."""

    seed: int
    dialect: Dialect
    one_partition: bool
    steps: tuple[Step, ...]


def dialect_of(seed: int) -> Dialect:
    """Every other seed."""
    google, postgres = get_args(Dialect)
    return postgres if seed % 2 == 0 else google


def make_workload(seed: int, *, dialect: Dialect | None = None) -> Workload:
    """The workload of a seed."""
    chance = Random(seed)  # repeatable, not secret
    features = frozenset(name for name in FEATURES if chance.random() < 0.75)
    maker = _Maker(chance, dialect or dialect_of(seed), features)
    one_partition = chance.random() < 0.6
    return Workload(seed, maker.dialect, one_partition, tuple(maker.steps()))


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
        for stream in schema.streams.values():
            add(ChangeSchema((stream.create(self.dialect),), starts=(stream.name,)))
        add(ShowSchema())
        able = {
            "": [(self._commit, 40), (self._mixed, 6)],
            "dml": [(self._dml, 25)],
            "reads": [(self._read, 12)],
            "queries": [(self._query, 14)],
            "failures": [(self._failure, 8)],
            "alter_streams": [(self._alter_stream, 6)],
            "alter_tables": [(self._alter_table, 4)],
        }
        makers = [
            one for name, some in able.items() if name in {"", *self._features} for one in some
        ]
        add(self._commit())
        self._note_commit()
        while len(self._steps) < _STEPS:
            make = self._chance.choices([one for one, _ in makers], [w for _, w in makers])[0]
            add(make())
            self._note_commit()
        add(ShowSchema())
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
        part = choose_value(self._chance, column.kind, self.dialect)
        # The emulator's records have null for infinities, which makes keys ambiguous.
        return 0.0 if str(part).endswith("Infinity") else part

    def _new_key(self, table: Table) -> tuple[Any, ...]:
        """A key that is not there, most of the time; pools are small, so that keys collide."""
        held = self._rows.keys.get(table.name, {})
        some = (self._key(table, known=0.03) for _ in range(6))
        return next((key for key in some if key not in held), self._key(table))

    def _table(self) -> Table:
        """Any table; rather its parent where a row would have none."""
        table = self._chance.choice(list(self._schema.tables.values()))
        while table.parent is not None and not self._rows.held(table.parent):
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
        if column.commit_timestamp:
            # Not in the future, which is refused.
            return self._chance.choice((*(COMMIT_TIMESTAMP,) * 4, "2024-01-02T03:04:05.5Z"))
        if column.nullable and self._chance.random() < 0.15:
            return None
        return choose_value(self._chance, column.kind, self.dialect)

    def _delete(self) -> Delete:
        chance = self._chance
        table = chance.choice(list(self._schema.tables.values()))
        draw = chance.random()
        if draw < 0.06:
            return Delete(table.name, Keys(is_all=True))
        keys = tuple(self._key(table, known=0.85) for _ in range(chance.choice((1, 1, 2))))
        return Delete(table.name, Keys(tuple(dict.fromkeys(keys))))

    def _interval(self, table: Table) -> Interval:
        """Two keys, or prefixes of them, in whatever order they come."""
        chance = self._chance
        start, end = self._key(table), self._key(table)
        if chance.random() < 0.4:
            start = end = start[: chance.randrange(1, len(start) + 1)]
        elif chance.random() < 0.3:
            start, end = start[: chance.randrange(len(start) + 1)], end[:1]
        return Interval(start, end, chance.random() < 0.7, chance.random() < 0.7)

    def _mutations(self) -> tuple[Mutation, ...]:
        """What one transaction writes; the model keeps it when it believes in it."""
        kept = self._rows.snapshot()
        made: list[Mutation] = []
        succeeds = True
        for _ in range(self._chance.choice((1, 1, 1, 2, 2, 3, 5))):
            mutation = self._delete() if self._chance.random() < 0.2 else self._write()
            succeeds = self._rows.apply(mutation) and succeeds
            made.append(mutation)
        if not succeeds:
            self._rows.restore(kept)
        return tuple(made)

    # ------------------------------------------------------------ steps

    def _tag(self) -> str:
        return self._chance.choice(("", "", f"tag-{len(self._steps)}"))

    def _commit(self) -> Commit:
        return Commit(self._mutations(), self._tag())

    def _mixed(self) -> ReadWrite:
        """A read within a read-write transaction, then mutations."""
        reads = "reads" in self._features and self._chance.random() < 0.5
        actions = (self._read(at=False),) if reads else ()
        return self._read_write(actions, commits=self._chance.random() < 0.85)

    def _dml(self) -> ReadWrite:
        chance = self._chance
        kept = self._rows.snapshot()
        actions: list[Action] = []
        for _ in range(chance.choice((1, 1, 2, 3))):
            actions.append(self._sql.dml(self._key_for_dml))
            if chance.random() < 0.2 and "queries" in self._features:
                actions.append(self._sql.query())
            if chance.random() < 0.15 and "reads" in self._features:
                actions.append(self._read(at=False))
        commits = chance.random() < 0.9
        made = self._read_write(tuple(actions), commits=commits, writes=chance.random() < 0.25)
        if not commits:
            self._rows.restore(kept)
        return made

    def _read_write(
        self, actions: tuple[Action, ...], *, commits: bool, writes: bool = True
    ) -> ReadWrite:
        kept = self._rows.snapshot()
        mutations = self._mutations() if writes else ()
        if not commits:
            self._rows.restore(kept)
        return ReadWrite(actions, mutations, self._tag(), commits)

    def _key_for_dml(self, table: Table, *, is_new: bool) -> tuple[Any, ...]:
        return self._new_key(table) if is_new else self._key(table, known=0.85)

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
        # In the past, the simulator has all columns of the present.
        if self._chance.random() < 0.2 and not query.sql.startswith("SELECT * "):
            return replace(query, at=self._chance.choice(self._commits[-8:]))
        return query

    # ------------------------------------------------------------ failures

    def _failure(self) -> Step:
        """A transaction that must not commit, for one reason."""
        chance = self._chance
        table = chance.choice(list(self._schema.tables.values()))
        row = dict(zip(table.key_names, self._new_key(table), strict=True))
        written = [one for one in table.values if one.is_written]
        needed = [one for one in written if not one.nullable and one.default is None]
        row |= {one.name: choose_value(chance, one.kind, self.dialect) for one in needed}
        wrong: list[dict[str, Any]] = [row | {"nope": "1"}]
        wrong += [row | {one.name: None} for one in written if not one.nullable]
        wrong += [row | {one.name: "abc"} for one in written if one.kind.code == "INT64"]
        wrong += [row | {one.name: "x" * 50} for one in written if one.kind == Kind("STRING", 40)]
        wrong += [
            row | {one.name: [0.5]} for one in written if one.kind.element and one.kind.length
        ]
        last = table.key_names[-1]
        if not table.column(last).nullable:
            wrong.append({name: data for name, data in row.items() if name != last})
        draw = chance.random()
        if draw < 0.15:
            return Read(table.name, (*table.key_names, "nope"), Keys(is_all=True))
        if draw < 0.3:
            return self._refused(
                "update", table.name, {name: row[name] for name in table.key_names}
            )
        return self._refused("insert", table.name, chance.choice(wrong))

    def _refused(self, kind: Any, table: str, row: dict[str, Any]) -> Commit:
        return Commit((Write(kind, table, tuple(row), (tuple(row.values()),)),))

    # ------------------------------------------------------------ DDL in mid-run

    def _alter_stream(self) -> Step:
        chance, schema = self._chance, self._schema
        stream = chance.choice(list(schema.streams.values()))
        head = f"ALTER CHANGE STREAM {stream.name}"
        draw = chance.random()
        if draw < 0.55:
            # The emulator forgets options that are not named again.
            options = stream.options | {"value_capture_type": chance.choice(CAPTURE_TYPES)}
            schema.streams[stream.name] = replace(stream, options=options)
            word = "SET OPTIONS" if self.dialect == GOOGLE else "SET"
            return ChangeSchema((f"{head} {word} ({options_text(options)})",))
        watch = self._choice.watch(schema)
        # After a dropped column the emulator ends at SET FOR.
        if draw < 0.9 and watch != {} and not self._has_dropped_column:
            if watch is not None:
                # After SET FOR the emulator watches the last of several tables only.
                table = chance.choice(list(watch))
                watch = {table: watch[table]}
            made = schema.streams[stream.name] = replace(stream, watch=watch)
            return ChangeSchema((f"{head} SET{made.watch_text()}",))
        tracked = [name for one in schema.streams.values() for name in one.watch or ()]
        # Refused while a stream names it.
        return ChangeSchema((f"DROP TABLE {chance.choice(tracked)}",)) if tracked else ShowSchema()

    def _alter_table(self) -> Step:
        chance, schema = self._chance, self._schema
        draw = chance.random()
        table = chance.choice(list(schema.tables.values()))
        if draw < 0.5:
            self._serial += 1
            name = f"Added{self._serial}"
            column = self._choice.column(name if self.dialect == GOOGLE else name.lower())
            needed = column.default is not None and chance.random() < 0.3
            column = replace(column, nullable=not needed)
            schema.set_columns(table.name, (*table.columns, column))
            text = f"ALTER TABLE {table.name} ADD COLUMN {column.ddl(self.dialect)}"
            return ChangeSchema((text,))
        if draw < 0.7:
            return ChangeSchema((self._choice.add_table(schema).ddl(self.dialect),))
        if draw < 0.8 and "indexes" in self._features:
            index = self._choice.add_index(schema)
            return ShowSchema() if index is None else ChangeSchema((index.ddl(self.dialect),))
        able = [one.name for one in table.values if self._is_free(table, one.name)]
        if not able:
            return ShowSchema()
        name = chance.choice(able)
        schema.set_columns(table.name, tuple(one for one in table.columns if one.name != name))
        self._has_dropped_column = True
        return ChangeSchema((f"ALTER TABLE {table.name} DROP COLUMN {name}",))

    def _is_free(self, table: Table, name: str) -> bool:
        """Whether nothing is known to hold a column."""
        held = [
            {*one.storing, *(part for part, _ in one.columns)}
            for one in self._schema.indexes.values()
            if one.table == table.name
        ]
        held += [
            set((stream.watch or {}).get(table.name) or ())
            for stream in self._schema.streams.values()
        ]
        return not any(name in some for some in held) and not any(
            name in (one.generated or "") for one in table.columns
        )
