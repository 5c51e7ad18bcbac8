"""Tables as Spanner allows them in both dialects, and how their columns come and go.

Names are what Avro, Spark, Delta, Kafka or our own code might treat otherwise: reserved words,
names of our columns and aliases, very long ones.  Spanner's GoogleSQL allows letters, digits and
underscores after a letter, at most 128 characters; PostgreSQL any characters in quotes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from tests.any_schema.values import KINDS_OF, Kind
from tidegate.producer.records import RecordColumn
from tidegate.schemas.tables import Column, ColumnType, TableSchema

DIALECTS = tuple(KINDS_OF)
NAME_MAX = 128
COLUMNS_MAX = 100
KEY_KINDS = {
    dialect: tuple(kind for kind in kinds if kind.is_key) for dialect, kinds in KINDS_OF.items()
}

_NAMES = (
    # Reserved words, and what Spark's SQL takes for a literal or a function.
    "SELECT", "order", "Group", "table", "null", "true", "current_date", "interval", "array",
    "struct", "end", "rowid", "Index", "default",
    # Columns, fields and aliases of our own.
    "key", "value", "action", "release", "ordinal", "mod_type", "new_values", "old_values",
    "new_columns", "source", "offset", "origin", "commit_timestamp", "order_key", "t", "s", "c",
    "m", "p", "h", "lost", "key_0", "final_0", "final_1", "held_0", "captured_0", "is_closing",
    "is_held", "is_first", "starts_at", "ends_at", "of_key", "of_ordinal", "touched_key",
    "base_ordinal", "updated_after_base", "is_lost", "closes", "opens", "row", "file", "path",
    "part", "min", "max", "numRecords", "element", "list", "Change", "Row", "Source", "ModType",
    "A", "a1", "A_", "a__b", "x" * NAME_MAX, "Y" * (NAME_MAX - 1) + "2",
)  # fmt: skip
NAMES_AVRO_LACKS = (
    "größe",
    "名前",
    "a b",
    "a.b",
    "a-b",
    "1a",
    "a`b",
    'a"b',
    "a,b;{}()=",
    "$a",
    "a\n",
)
"""Names that a PostgreSQL database may have in quotes."""
TABLE_NAMES = ("Order", "select", "t", "table", "History", "x" * NAME_MAX, "sales.Items", "A_1")


@dataclass(frozen=True)
class SourceColumn:
    """A column; `key_position` counts from 1."""

    name: str
    kind: Kind
    ordinal: int
    key_position: int | None = None


@dataclass
class SourceTable:
    """A table as it is now."""

    dialect: str
    name: str
    columns: list[SourceColumn]
    dropped: dict[str, Kind] = field(default_factory=dict)
    """The type of each column that was there once, by name."""

    @property
    def key(self) -> list[SourceColumn]:
        """The primary key's columns, in its order."""
        keyed = [column for column in self.columns if column.key_position]
        return sorted(keyed, key=lambda column: column.key_position or 0)

    @property
    def others(self) -> list[SourceColumn]:
        return [column for column in self.columns if not column.key_position]

    def schema(self) -> TableSchema:
        """Return what the catalogue reads from INFORMATION_SCHEMA."""
        columns = [
            Column(column.name, self._type(column.kind), column.ordinal, column.key_position)
            for column in self.columns
        ]
        return TableSchema(self.name, tuple(columns))

    def shown(self, names: frozenset[str]) -> tuple[RecordColumn, ...]:
        """Return the columns of a record that shows these and the key."""
        return tuple(
            RecordColumn(
                column.name,
                ColumnType.from_type_json(column.kind.type_json),
                column.key_position is not None,
                column.ordinal,
            )
            for column in self.columns
            if column.key_position or column.name in names
        )

    def alter(self, rng: random.Random, *, returns: bool = True) -> None:
        """Add a column, drop one, or add one again that was there once, maybe in another case.

        Without `returns` none comes again.
        """
        others = self.others
        if others and rng.random() < 0.5:
            gone = rng.choice(others)
            self.columns.remove(gone)
            self.dropped[gone.name] = gone.kind
            return
        ordinal = 1 + max(column.ordinal for column in self.columns)
        if returns and self.dropped and rng.random() < 0.3:
            name = rng.choice(sorted(self.dropped))
            kind = self.dropped.pop(name)
            # Spanner compares names without case, so that the other name is free as well.
            name = name.swapcase() if rng.random() < 0.5 else name
            self.columns.append(SourceColumn(name, kind, ordinal))
            return
        (name,) = _names(rng, 1, taken=(*(column.name for column in self.columns), *self.dropped))
        self.columns.append(SourceColumn(name, rng.choice(KINDS_OF[self.dialect]), ordinal))

    def _type(self, kind: Kind) -> ColumnType:
        if self.dialect == "googlesql":
            return ColumnType.from_spanner_type(kind.googlesql)
        return ColumnType.from_postgresql_type(kind.postgresql)


def drawn_table(
    rng: random.Random,
    *,
    dialect: str,
    name: str | None = None,
    first_key: Kind | None = None,
    columns_max: int = COLUMNS_MAX,
) -> SourceTable:
    """Return a table, of 1 to 100 columns; `first_key` is the type of its first key column."""
    keys = rng.choice((1, 1, 2, 3))
    others = min(rng.choice((0, 1, 3, 8, 20, COLUMNS_MAX)), columns_max) - keys
    kinds = [first_key or rng.choice(KEY_KINDS[dialect])]
    kinds += [rng.choice(KEY_KINDS[dialect]) for _ in range(keys - 1)]
    kinds += [rng.choice(KINDS_OF[dialect]) for _ in range(max(0, others))]
    names = _names(rng, len(kinds))
    # Ordinals and places in the key are in no order that the other has.
    places = rng.sample(range(len(kinds)), len(kinds))
    columns = [
        SourceColumn(name, kind, 1 + place, n + 1 if n < keys else None)
        for n, (name, kind, place) in enumerate(zip(names, kinds, places, strict=True))
    ]
    columns.sort(key=lambda one: one.ordinal)
    return SourceTable(dialect, name or rng.choice(TABLE_NAMES), columns)


def _names(rng: random.Random, count: int, *, taken: Iterable[str] = ()) -> list[str]:
    """Return names that differ from each other, and from those taken, without regard to case."""
    found: list[str] = []
    known = {name.lower() for name in taken}
    for name in [*rng.sample(_NAMES, len(_NAMES)), *(f"c{n}" for n in range(2 * NAME_MAX))]:
        if name.lower() not in known and len(found) < count:
            known.add(name.lower())
            found.append(name)
    return found


def with_name(table: SourceTable, name: str, place: int = -1) -> SourceTable:
    """Return the table with one column renamed."""
    columns = list(table.columns)
    columns[place] = replace(columns[place], name=name)
    return replace(table, columns=columns)


def tables(**more: object) -> st.SearchStrategy[SourceTable]:
    """Strategy: tables of either dialect."""
    return st.builds(
        lambda rng, dialect: drawn_table(rng, dialect=dialect, **more),
        st.randoms(use_true_random=False),
        st.sampled_from(DIALECTS),
    )
