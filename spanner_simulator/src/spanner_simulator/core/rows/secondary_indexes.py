"""Secondary indexes as hidden tables: the entry of a row in an index, and its place.

An index's table has the index's key, then the rest of its base table's key, as its primary key; its
columns are those and the stored ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from spanner_simulator.core.schema.schema_objects import Index, Table
from spanner_simulator.core.values import Dialect, Row, Value


@dataclass(frozen=True, slots=True, eq=False)
class HiddenIndex:
    """An index with its hidden table; a row with NULL in a column of `not_null` is left out.

    PostgreSQL's unique indexes always leave out rows with NULL in their key, because there NULL
    equals nothing; in GoogleSQL it equals itself.
    """

    index: Index
    base: Table
    table: Table
    name: str
    names: tuple[str, ...]
    not_null: tuple[str, ...]

    @property
    def key_length(self) -> int:
        """Number of parts of the index's own key."""
        return len(self.index.key)

    def entry(self, row: Row) -> tuple[bytes, Row] | None:
        """The index's row for a row of the base table, with its encoded key; None: left out."""
        for name in self.not_null:
            if row.get(name) is None:
                return None
        entry = {name: row.get(name) for name in self.names}
        return self.table.encoded_key(entry), entry

    def unique_key(self, row: Row) -> list[Value] | None:
        """The part of its key that no other row may have; None if duplicates are allowed."""
        if not self.index.is_unique or any(row.get(name) is None for name in self.not_null):
            return None
        return self.own_key(row)

    def own_key(self, row: Row) -> list[Value]:
        """The values of the index's own key in a row."""
        return [row.get(name) for name in self.table.key_names[: self.key_length]]


@lru_cache(maxsize=4096)
def hidden_index(index: Index, base: Table, dialect: Dialect) -> HiddenIndex:
    """The hidden table of an index; the same object each time."""
    index_parts = [replace(part, name=base.column(part.name).name) for part in index.key]
    names_used = {part.name for part in index_parts}
    key = (*index_parts, *(part for part in base.key if part.name not in names_used))
    names_used.update(part.name for part in key)
    stored = [base.column(name).name for name in index.storing]
    names = (*(part.name for part in key), *(name for name in stored if name not in names_used))
    table = Table(index.name, tuple(base.column(name) for name in names), key)
    leaves_out = index.is_null_filtered or (index.is_unique and dialect == "POSTGRESQL")
    not_null = tuple(part.name for part in index_parts) if leaves_out else ()
    return HiddenIndex(index, base, table, index.name.lower(), names, not_null)
