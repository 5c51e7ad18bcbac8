"""Chooses schemas: tables, columns, indexes and change streams, as a seed's features allow."""

from __future__ import annotations

from random import Random

from differential.kinds import (
    COLUMN_KINDS,
    GOOGLE,
    KEY_KINDS,
    POSTGRES,
    Dialect,
    Kind,
    literal,
)
from differential.kinds import value as choose_value
from differential.schema import Column, Index, Schema, Stream, Table, View

CAPTURE_TYPES = ("OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
_NO_DEFAULT = ("FLOAT32", "JSON", "TIMESTAMP")
_REFERRED = ("INT64", "STRING", "BYTES", "DATE", "BOOL")
_NO_INDEX = ("JSON", "ARRAY", "FLOAT32")


class SchemaChoice:
    """Draws schema objects; one chance for all of a workload."""

    def __init__(self, chance: Random, dialect: Dialect, features: frozenset[str]) -> None:
        self._chance = chance
        self._dialect = dialect
        self._features = features
        self._serial = 0

    def schema(self) -> Schema:
        """A first schema with its change streams."""
        made = Schema(self._dialect)
        for _ in range(self._chance.randrange(2, 5)):
            self.add_table(made)
        if "indexes" in self._features:
            for _ in range(self._chance.randrange(1, 4)):
                self.add_index(made)
        if "views" in self._features:
            self.add_view(made)
        for number in range(self._chance.randrange(1, 4)):
            self.add_stream(made, number)
        return made

    # ------------------------------------------------------------ tables

    def add_table(self, schema: Schema) -> Table:
        """A table more; interleaved or referring to another one now and then."""
        chance = self._chance
        name = self._name("Tab")
        parent = None
        if "interleave" in self._features and schema.tables and chance.random() < 0.5:
            parent = chance.choice(list(schema.tables.values()))
        columns: list[Column] = []
        key: list[tuple[str, bool]] = []
        if parent is not None:
            columns += [parent.column(part) for part in parent.key_names]
            key += parent.key
        for number in range(chance.choice((1, 1, 1, 2, 2, 3)) if parent is None else 1):
            kind = chance.choice(KEY_KINDS[self._dialect])
            # The emulator's PostgreSQL has NULL in no key.
            nullable = self._dialect == GOOGLE and chance.random() < 0.15
            desc = self._dialect == GOOGLE and "descending" in self._features
            part = self._case(f"K{len(key) + 1}" if number else f"Id{len(key) + 1}")
            columns.append(Column(part, kind, nullable=nullable))
            key.append((part, desc and chance.random() < 0.3))
        for number in range(chance.randrange(1, 7)):
            columns.append(self.column(self._case(f"C{number}")))
        columns += self._special_columns(columns)
        constraints: list[str] = []
        if "checks" in self._features:
            constraints += self._check(name, columns)
        if "foreign_keys" in self._features and schema.tables and parent is None:
            constraints += self._foreign_key(schema, name, columns)
        if chance.random() < 0.3:
            # The key's columns need not come first.
            chance.shuffle(columns)
        cascade = chance.random() < 0.7
        table = Table(
            name,
            tuple(columns),
            tuple(key),
            None if parent is None else parent.name,
            cascade,
            tuple(constraints),
        )
        schema.tables[name] = table
        return table

    def column(self, name: str) -> Column:
        """A plain column, perhaps with a default."""
        chance = self._chance
        kinds = COLUMN_KINDS[self._dialect]
        if "arrays" not in self._features:
            kinds = tuple(kind for kind in kinds if kind.element is None)
        kind = chance.choice(kinds)
        default = None
        if "defaults" in self._features and self._may_default(kind) and chance.random() < 0.25:
            default = literal(kind, choose_value(chance, kind, self._dialect), self._dialect)
        return Column(name, kind, nullable=chance.random() < 0.8, default=default)

    def _may_default(self, kind: Kind) -> bool:
        # The emulator's PostgreSQL takes no default of these, or prints another one.
        return kind.element is None and (self._dialect == GOOGLE or kind.code not in _NO_DEFAULT)

    def _special_columns(self, columns: list[Column]) -> list[Column]:
        chance = self._chance
        made: list[Column] = []
        if "commit_timestamps" in self._features and chance.random() < 0.5:
            at = Column(self._case("Stamp"), Kind("TIMESTAMP"), commit_timestamp=True)
            made.append(at)
        if "generated" in self._features and chance.random() < 0.5:
            made += self._generated(columns)
        return made

    def _generated(self, columns: list[Column]) -> list[Column]:
        numbers = [one.name for one in columns if one.kind.code == "INT64"]
        texts = [one.name for one in columns if one.kind.code == "STRING"]
        stored = self._dialect == GOOGLE or self._chance.random() < 0.5
        if numbers and self._chance.random() < 0.6:
            # Small enough that no edge overflows.
            what = f"MOD({self._chance.choice(numbers)}, 10)"
            return [Column(self._case("Gen"), Kind("INT64"), generated=what, stored=stored)]
        if texts:
            text = self._chance.choice(texts)
            what = f"UPPER({text})"
            if self._chance.random() < 0.5:
                what = f"CONCAT({text}, '!')" if self._dialect == GOOGLE else f"{text} || '!'"
            return [Column(self._case("Gen"), Kind("STRING"), generated=what, stored=stored)]
        return []

    def _check(self, table: str, columns: list[Column]) -> list[str]:
        numbers = [one for one in columns if one.kind.code == "INT64" and one.is_written]
        if not numbers or self._chance.random() < 0.4:
            return []
        name = self._case(f"{table}_limit")
        return [f"CONSTRAINT {name} CHECK({self._chance.choice(numbers).name} < 1000000)"]

    def _foreign_key(self, schema: Schema, table: str, columns: list[Column]) -> list[str]:
        chance = self._chance
        targets = [
            one
            for one in schema.tables.values()
            if len(one.key) == 1 and one.key_kind(one.key_names[0]).code in _REFERRED
        ]
        if not targets or chance.random() < 0.3:
            return []
        target = chance.choice(targets)
        refers_to = target.name, target.key_names[0]
        kind = target.key_kind(refers_to[1])
        column = Column(self._case("Ref"), kind, refers_to=refers_to)
        columns.append(column)
        name = self._case(f"{table}_ref")
        action = chance.choice(("", " ON DELETE CASCADE", " ON DELETE CASCADE"))
        refers = f"REFERENCES {target.name} ({target.key_names[0]}){action}"
        return [f"CONSTRAINT {name} FOREIGN KEY ({column.name}) {refers}"]

    # ------------------------------------------------------------ indexes

    def add_index(self, schema: Schema) -> Index | None:
        """A secondary index more, where a table has columns for it."""
        chance = self._chance
        table = chance.choice(list(schema.tables.values()))
        able = [one for one in table.columns if one.kind.code not in _NO_INDEX]
        if self._dialect == POSTGRES:
            able = [one for one in able if one.kind.code != "NUMERIC"]
            able = [one for one in able if one.generated is None or one.stored]
        if not able:
            return None
        filters = self._dialect == GOOGLE and chance.random() < 0.3
        if filters:
            able = [one for one in able if one.nullable] or able
        chosen = chance.sample(able, min(len(able), chance.choice((1, 1, 2))))
        names = {one.name for one in chosen} | set(table.key_names)
        rest = [one.name for one in table.values if one.name not in names]
        storing = chance.sample(rest, min(len(rest), chance.choice((0, 0, 1, 2))))
        index = Index(
            self._name("Idx"),
            table.name,
            tuple((one.name, chance.random() < 0.3) for one in chosen),
            unique=chance.random() < 0.25,
            storing=tuple(storing),
            null_filtered=filters,
        )
        schema.indexes[index.name] = index
        return index

    # ------------------------------------------------------------ views

    def add_view(self, schema: Schema) -> View:
        """A view of some columns of a table."""
        chance = self._chance
        table = chance.choice(list(schema.tables.values()))
        names = [one.name for one in table.columns]
        columns = chance.sample(names, chance.randrange(1, len(names) + 1))
        nullable = [one.name for one in table.columns if one.nullable]
        where = ""
        if nullable and chance.random() < 0.4:
            where = f"{table.name}.{chance.choice(nullable)} IS NOT NULL"
        view = View(self._name("View"), table.name, tuple(columns), where)
        schema.views[view.name] = view
        return view

    # ------------------------------------------------------------ change streams

    def add_stream(self, schema: Schema, number: int) -> Stream:
        """A change stream more; the first watches everything."""
        stream = Stream(
            self._case(f"Stream{number}"),
            None if number == 0 else self.watch(schema),
            self.stream_options(),
        )
        schema.streams[stream.name] = stream
        return stream

    def watch(self, schema: Schema) -> dict[str, tuple[str, ...] | None] | None:
        """What a stream watches: ALL, whole tables, some columns, keys only, or nothing."""
        chance = self._chance
        draw = chance.random()
        if draw < 0.2:
            return None
        if draw < 0.25:
            return {}
        some = chance.sample(list(schema.tables), chance.randrange(1, len(schema.tables) + 1))
        return {name: self._watched_columns(schema.tables[name]) for name in some}

    def _watched_columns(self, table: Table) -> tuple[str, ...] | None:
        chance = self._chance
        able = [one.name for one in table.values if one.generated is None]
        draw = chance.random()
        if draw < 0.45 or not able:
            return None
        if draw < 0.6:
            return ()
        return tuple(chance.sample(able, chance.randrange(1, len(able) + 1)))

    def stream_options(self) -> dict[str, str | bool]:
        """Capture type, exclusions and retention, each now and then."""
        chance = self._chance
        made: dict[str, str | bool] = {}
        if chance.random() < 0.7:
            made["value_capture_type"] = chance.choice(CAPTURE_TYPES)
        if chance.random() < 0.2:
            made["retention_period"] = chance.choice(("24h", "36h", "3d", "7d"))
        for name in ("exclude_insert", "exclude_update", "exclude_delete", "exclude_ttl_deletes"):
            if chance.random() < 0.08:
                made[name] = chance.random() < 0.8
        return made

    # ------------------------------------------------------------ names

    def _name(self, stem: str) -> str:
        self._serial += 1
        return self._case(f"{stem}{self._serial}")

    def _case(self, name: str) -> str:
        return name if self._dialect == GOOGLE else name.lower()
