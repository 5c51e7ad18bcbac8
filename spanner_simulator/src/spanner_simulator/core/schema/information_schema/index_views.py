"""Primary keys and indexes, those that Spanner manages among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.foreign_key_indexes import managed_indexes
from spanner_simulator.core.schema.information_schema.rows import ViewRow, located, split
from spanner_simulator.core.schema.schema_objects import Index, Table
from spanner_simulator.core.schema.statements import KeyColumn

_PRIMARY: ViewRow = {"index_name": "PRIMARY_KEY", "index_type": "PRIMARY_KEY"}


def indexes(catalogue: Catalogue) -> Iterator[ViewRow]:
    """A row for each primary key and each index."""
    for table in catalogue.tables.values():
        yield (
            located(table.name)
            | _PRIMARY
            | {
                "parent_table_name": "",
                "is_unique": True,
                "is_null_filtered": False,
                "spanner_is_managed": False,
            }
        )
    for index in catalogue.indexes.values():
        parent = split(index.interleave_in or "")[1]
        yield _index(index, parent, is_managed=False)
    for managed in managed_indexes(catalogue):
        yield _index(managed.index, managed.parent, is_managed=True)


def _index(index: Index, parent: str, *, is_managed: bool) -> ViewRow:
    where = " AND ".join(f"{name} IS NOT NULL" for name in index.not_null)
    return located(index.table) | {
        "index_name": split(index.name)[1],
        "index_type": "INDEX",
        "parent_table_name": parent,
        "is_unique": index.is_unique,
        "is_null_filtered": index.is_null_filtered,
        "index_state": "READ_WRITE",
        "spanner_is_managed": is_managed,
        "filter": where or None,
    }


def index_columns(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Key columns with their position, stored columns without."""
    for table in catalogue.tables.values():
        for row in _key(catalogue, table, table.key, filtered=()):
            yield row | _PRIMARY
    managed = [one.index for one in managed_indexes(catalogue)]
    for index in (*catalogue.indexes.values(), *managed):
        table = catalogue.table(index.table)
        filtered = index.not_null
        if index.is_null_filtered:
            filtered = tuple(part.name for part in index.key)
        name: ViewRow = {"index_name": split(index.name)[1], "index_type": "INDEX"}
        for row in _key(catalogue, table, index.key, filtered=filtered):
            yield row | name
        for column in index.storing:
            yield _column(catalogue, table, column, filtered=()) | name


def _key(
    catalogue: Catalogue, table: Table, key: Sequence[KeyColumn], *, filtered: Sequence[str]
) -> Iterator[ViewRow]:
    for position, part in enumerate(key, start=1):
        yield _column(catalogue, table, part.name, filtered=filtered) | {
            "ordinal_position": position,
            "column_ordering": _ordering(part),
        }


def _ordering(part: KeyColumn) -> str:
    order = "DESC" if part.descending else "ASC"
    usual = "FIRST" if part.descending else "LAST"
    return order if part.nulls in (None, usual) else f"{order} NULLS {part.nulls}"


def _column(catalogue: Catalogue, table: Table, name: str, *, filtered: Sequence[str]) -> ViewRow:
    column = table.column(name)
    is_nullable = column.is_nullable and name not in filtered
    return located(table.name) | {
        "column_name": name,
        "is_nullable": "YES" if is_nullable else "NO",
        "spanner_type": column.value_type.ddl(catalogue.dialect),
    }
