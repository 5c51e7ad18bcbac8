"""The SQL query of a chunk: the rows after a key that meet a condition, in the table's order.

In GoogleSQL, NULL comes before all values where a column ascends and after them where it descends;
in PostgreSQL the opposite holds.  Both compare all other values as they sort them, except for
floats: NaN is neither less than a number nor equal to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.producer.backfill.read_partition import Key
from tidegate.producer.description import POSTGRESQL
from tidegate.schemas.tables import Column, TableSchema

_COMPARED = {"BOOL", "INT64", "STRING", "BYTES", "DATE", "TIMESTAMP", "NUMERIC", "UUID"}
"""Types of key columns whose values SQL compares as it sorts them."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A column of a primary key, and how it is sorted."""

    name: str
    is_descending: bool = False
    is_nullable: bool = True


@dataclass(frozen=True, slots=True)
class KeyOrder:
    """The order of a table's rows."""

    dialect: str
    parts: tuple[KeyPart, ...]

    def is_null_first(self, part: KeyPart) -> bool:
        """Whether NULL comes before every other value of a column."""
        return part.is_descending == (self.dialect == POSTGRESQL)

    def quoted(self, name: str) -> str:
        """Return a quoted name; for a table in a named schema, both parts."""
        mark = '"' if self.dialect == POSTGRESQL else "`"
        return ".".join(f"{mark}{part.replace(mark, mark * 2)}{mark}" for part in name.split("."))

    def parameter(self, number: int) -> tuple[str, str]:
        """Return a parameter in SQL, and its name in a request; numbers begin with 1."""
        if self.dialect == POSTGRESQL:
            return f"${number}", f"p{number}"
        return f"@after{number}", f"after{number}"


@dataclass(frozen=True, slots=True)
class ChunkSql:
    """A query, and the type and value of each of its parameters."""

    sql: str
    parameters: dict[str, tuple[str, str | float | bool]]


def unordered_key(table: TableSchema) -> Column | None:
    """Return a key column whose values SQL does not compare as it sorts them; None without one."""
    for column in table.key_columns:
        if column.type.code not in _COMPARED or column.type.annotation:
            return column
    return None


def chunk_query(
    table: TableSchema,
    order: KeyOrder,
    columns: Sequence[str],
    *,
    after: Key | None,
    where: str,
    rows: int,
) -> ChunkSql:
    """Return the query of `rows` rows after the key `after` that meet the condition `where`.

    `columns` are returned, in their order.  A condition has its own line, so that a comment at its
    end ends with it.
    """
    named = ", ".join(order.quoted(name) for name in columns)
    codes = {column.name: column.type.code for column in table.key_columns}
    place = _Place(order, codes, after)
    keys = ", ".join(
        f"{order.quoted(part.name)}{' DESC' if part.is_descending else ''}" for part in order.parts
    )
    later = f"{place.after_last_key()} AND " if after is not None else ""
    sorted_by = f"ORDER BY {keys} " if keys else ""  # a table without a key has one row
    whole = order.quoted(table.name)
    # The condition is the operator's, and was checked; Spanner does not let this query write.
    sql = f"SELECT {named} FROM {whole} WHERE {later}({where}\n) {sorted_by}LIMIT {rows}"  # noqa: S608 - as above
    return ChunkSql(sql, place.parameters)


class _Place:
    """Compares keys with the last one that was read."""

    def __init__(self, order: KeyOrder, codes: dict[str, str], after: Key | None) -> None:
        self._order = order
        values = dict(zip([part.name for part in order.parts], after or (), strict=False))
        self._names: dict[str, str] = {}
        self.parameters: dict[str, tuple[str, str | float | bool]] = {}
        for name, value in values.items():
            if value is not None:
                self._names[name], in_request = order.parameter(len(self._names) + 1)
                self.parameters[in_request] = (codes[name], value)

    def after_last_key(self) -> str:
        """Return the condition for keys after the last one, in parentheses."""
        ways: list[str] = []
        equal: list[str] = []
        for part in self._order.parts:
            if beyond := self._beyond(part):
                ways.append(" AND ".join([*equal, beyond]))
            equal.append(self._equal(part))
        later = " OR ".join(f"({way})" for way in ways) or "FALSE"
        # Redundant, but gives Spanner a range in which to begin.
        bound = self._bound(self._order.parts[0]) if len(self._order.parts) > 1 else ""
        return f"({bound} AND ({later}))" if bound else f"({later})"

    def _bound(self, part: KeyPart) -> str:
        """Return the condition for the same value of a column and later ones; empty for all."""
        if part.name in self._names:
            return self._compared(part, "<=" if part.is_descending else ">=")
        return "" if self._order.is_null_first(part) else self._equal(part)

    def _equal(self, part: KeyPart) -> str:
        name = self._order.quoted(part.name)
        parameter = self._names.get(part.name)
        return f"{name} IS NULL" if parameter is None else f"{name} = {parameter}"

    def _beyond(self, part: KeyPart) -> str:
        """Return the condition for later values of a column; empty if there are none."""
        if part.name in self._names:
            return self._compared(part, "<" if part.is_descending else ">")
        is_last = not self._order.is_null_first(part)
        return "" if is_last else f"{self._order.quoted(part.name)} IS NOT NULL"

    def _compared(self, part: KeyPart, operator: str) -> str:
        name = self._order.quoted(part.name)
        compared = f"{name} {operator} {self._names[part.name]}"
        if part.is_nullable and not self._order.is_null_first(part):
            return f"({compared} OR {name} IS NULL)"
        return compared
