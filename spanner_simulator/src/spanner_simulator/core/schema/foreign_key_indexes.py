"""The indexes that Spanner keeps by itself behind foreign keys, as INFORMATION_SCHEMA shows them.

One over the referring columns, and a unique one over the referenced columns unless those are the
primary key. They are not in the catalogue: no statement can name them, and the rows of
foreign keys are looked up by other means.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.definitions import ForeignKey
from spanner_simulator.core.schema.schema_objects import Index, Table
from spanner_simulator.core.schema.statements import KeyColumn, NullsOrder


@dataclass(frozen=True, slots=True)
class ManagedIndex:
    """An index that Spanner made, and the table below whose rows it lies, if any."""

    index: Index
    parent: str


def managed_indexes(catalogue: Catalogue) -> list[ManagedIndex]:
    """Each once, however many foreign keys use it."""
    found: dict[str, ManagedIndex] = {}
    for table in catalogue.tables.values():
        for key in table.foreign_keys:
            if not key.is_enforced:
                continue
            referenced = catalogue.table(key.referenced_table)
            sides = [(table, key.columns, False), (referenced, key.referenced_columns, True)]
            for owner, columns, is_unique in sides:
                if not (is_unique and _is_primary_key(owner, columns)):
                    made = _managed(catalogue, owner, columns, is_unique=is_unique)
                    found[made.index.name] = made
    return list(found.values())


def unique_constraint(catalogue: Catalogue, key: ForeignKey) -> str:
    """The primary key or the managed index that a foreign key refers to."""
    referenced = catalogue.table(key.referenced_table)
    if _is_primary_key(referenced, key.referenced_columns):
        return f"PK_{referenced.name.rpartition('.')[2]}"
    return _managed(catalogue, referenced, key.referenced_columns, is_unique=True).index.name


def _is_primary_key(table: Table, columns: tuple[str, ...]) -> bool:
    return columns == table.key_names


def _managed(
    catalogue: Catalogue, table: Table, columns: tuple[str, ...], *, is_unique: bool
) -> ManagedIndex:
    kind = "U" if is_unique else "N"
    digest = hashlib.sha256("/".join((table.name, kind, *columns)).encode()).hexdigest()
    own = table.name.rpartition(".")[2]
    name = f"IDX_{own}_{'_'.join(columns)}_{kind}_{digest[:16].upper()}"
    descending = {part.name for part in table.key if part.descending}
    nulls: NullsOrder | None = "FIRST" if catalogue.dialect == "POSTGRESQL" else None
    index = Index(
        name,
        table.name,
        tuple(KeyColumn(column, column in descending, nulls) for column in columns),
        is_unique=is_unique,
        is_null_filtered=any(table.column(column).is_nullable for column in columns),
    )
    lies_below = bool(table.key) and columns[: len(table.key)] == table.key_names
    return ManagedIndex(index, own if lies_below else "")
