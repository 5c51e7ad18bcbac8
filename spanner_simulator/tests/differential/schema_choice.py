"""Chooses schemas: tables, columns, indexes and change streams, as a seed's features allow."""

from __future__ import annotations

from random import Random

from differential.kinds import COLUMN_KINDS, GOOGLE, KEY_KINDS, Dialect, Kind
from differential.schema import Column, Index, Schema, Stream, Table

CAPTURE_TYPES = ("OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
_NO_INDEX = ("JSON", "ARRAY", "FLOAT32")


class SchemaChoice:
    """Draws schema objects; one chance for all of a workload."""

    def __init__(self, chance: Random, dialect: Dialect, features: frozenset[str]) -> None:
        self._chance = chance
        self._dialect = dialect
        self._features = features
        self._serial = 0

    def schema(self) -> Schema:
        """A first schema with its change streams; the first of them watches everything."""
        chance = self._chance
        made = Schema(self._dialect)
        for _ in range(chance.randrange(2, 5)):
            self.add_table(made)
        if "indexes" in self._features:
            for _ in range(chance.randrange(1, 4)):
                self.add_index(made)
        for number in range(chance.randrange(1, 4)):
            name = self._case(f"Stream{number}")
            watch = None if number == 0 else self.watch(made)
            made.streams[name] = Stream(name, watch, self._stream_options())
        return made

    def add_table(self, schema: Schema) -> Table:
        """A table more; interleaved now and then."""
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
        is_google = self._dialect == GOOGLE
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3)) if parent is None else 1):
            # The emulator's PostgreSQL has NULL in no key.
            nullable = is_google and chance.random() < 0.15
            desc = is_google and "descending" in self._features and chance.random() < 0.3
            key.append((self._case(f"Id{len(key) + 1}"), desc))
            columns.append(Column(key[-1][0], chance.choice(KEY_KINDS[self._dialect]), nullable))
        for number in range(chance.randrange(1, 7)):
            columns.append(self.column(self._case(f"C{number}")))
        if "commit_timestamps" in self._features and chance.random() < 0.5:
            at = Column(self._case("Stamp"), Kind("TIMESTAMP"), commit_timestamp=True)
            columns.append(at)
        if is_google and "generated" in self._features and chance.random() < 0.5:
            columns += self._generated(columns)
        if chance.random() < 0.3:
            # The key's columns need not come first.
            chance.shuffle(columns)
        above = None if parent is None else parent.name
        table = Table(name, tuple(columns), tuple(key), above, chance.random() < 0.7)
        schema.tables[name] = table
        return table

    def column(self, name: str) -> Column:
        """A plain column, perhaps with a default."""
        chance = self._chance
        kinds = COLUMN_KINDS
        if "arrays" not in self._features:
            kinds = tuple(kind for kind in kinds if kind.element is None)
        kind = chance.choice(kinds)
        default = None
        # The emulator's PostgreSQL prints its own reading of expressions.
        if self._dialect == GOOGLE and "defaults" in self._features and chance.random() < 0.5:
            defaults = {"INT64": ("0", "-7"), "STRING": ("''", "'a b'"), "BOOL": ("TRUE",)}
            default = chance.choice(defaults.get(kind.code, (None,)))
        # The emulator's PostgreSQL does not know HIDDEN.
        hidden = self._dialect == GOOGLE and chance.random() < 0.1
        return Column(name, kind, chance.random() < 0.8, default, hidden=hidden)

    def _generated(self, columns: list[Column]) -> list[Column]:
        # Small enough that no edge overflows.
        able = [(one, f"MOD({one.name}, 10)") for one in columns if one.kind.code == "INT64"]
        able += [(one, f"UPPER({one.name})") for one in columns if one.kind.code == "STRING"]
        if not able:
            return []
        source, what = self._chance.choice(able)
        return [Column(self._case("Gen"), Kind(source.kind.code), generated=what)]

    def add_index(self, schema: Schema) -> Index | None:
        """A secondary index more, where a table has columns for it."""
        chance = self._chance
        table = chance.choice(list(schema.tables.values()))
        able = [one for one in table.columns if one.kind.code not in _NO_INDEX]
        if self._dialect != GOOGLE:
            able = [one for one in able if one.kind.code != "NUMERIC"]
        if not able:
            return None
        filters = self._dialect == GOOGLE and chance.random() < 0.3
        if filters:
            able = [one for one in able if one.nullable] or able
        chosen = chance.sample(able, min(len(able), chance.choice((1, 1, 2))))
        names = {one.name for one in chosen} | set(table.key_names)
        rest = [one.name for one in table.values if one.name not in names]
        index = Index(
            self._name("Idx"),
            table.name,
            tuple((one.name, chance.random() < 0.3) for one in chosen),
            unique=chance.random() < 0.25,
            storing=tuple(chance.sample(rest, min(len(rest), chance.choice((0, 0, 1, 2))))),
            null_filtered=filters,
        )
        schema.indexes[index.name] = index
        return index

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
        able = [one.name for one in table.values if one.is_written]
        draw = self._chance.random()
        if draw < 0.45 or not able:
            return None
        return tuple(self._chance.sample(able, self._chance.randrange(len(able) + 1)))

    def _stream_options(self) -> dict[str, str | bool]:
        chance = self._chance
        made: dict[str, str | bool] = {}
        if chance.random() < 0.7:
            made["value_capture_type"] = chance.choice(CAPTURE_TYPES)
        if chance.random() < 0.2:
            made["retention_period"] = chance.choice(("24h", "36h", "3d", "7d"))
        for what in ("insert", "update", "delete", "ttl_deletes"):
            if chance.random() < 0.08:
                made[f"exclude_{what}"] = chance.random() < 0.8
        return made

    def _name(self, stem: str) -> str:
        self._serial += 1
        return self._case(f"{stem}{self._serial}")

    def _case(self, name: str) -> str:
        return name if self._dialect == GOOGLE else name.lower()
