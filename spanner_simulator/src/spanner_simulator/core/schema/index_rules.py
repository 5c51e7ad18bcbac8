"""Rules for secondary indexes. Their rows are the caller's: an `Index` says what they hold."""

from __future__ import annotations

from dataclasses import replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import Index, Table
from spanner_simulator.core.schema.type_names import type_name
from spanner_simulator.errors import Code, SpannerError


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def _invalid(message: str) -> SpannerError:
    return SpannerError(Code.INVALID_ARGUMENT, message)


def create_index(catalogue: Catalogue, statement: ddl.CreateIndex) -> None:
    """Define an index; filling it, and refusing rows that are not unique, is the caller's."""
    schema = statement.table.rpartition(".")[0]
    if catalogue.dialect == "POSTGRESQL" and schema and "." not in statement.name:
        statement = replace(statement, name=f"{schema}.{statement.name}")
    if statement.if_not_exists and statement.name.lower() in catalogue.indexes:
        return
    catalogue.check_new_name("Index", statement.name)
    table = catalogue.table(statement.table)
    if statement.name.rpartition(".")[0].lower() != table.name.rpartition(".")[0].lower():
        raise _refused(
            f"Index {statement.name} does not match the schema of the indexed table {table.name}."
        )
    key = _key(statement, table)
    _check_not_null(statement, table, key)
    index = Index(
        statement.name,
        table.name,
        key,
        _storing(statement.name, statement.storing, table, key),
        statement.is_unique,
        statement.is_null_filtered,
        None,
        tuple(table.column(name).name for name in statement.not_null),
    )
    if statement.interleave_in is not None:
        parent = _interleaving(catalogue, index, table, statement.interleave_in)
        index = replace(index, interleave_in=parent)
    catalogue.indexes[index.name.lower()] = index


def _key(statement: ddl.CreateIndex, table: Table) -> tuple[ddl.KeyColumn, ...]:
    if not statement.key:
        raise _invalid(f"Index {statement.name} does not specify any key columns.")
    key: list[ddl.KeyColumn] = []
    for part in statement.key:
        column = table.by_name.get(part.name.lower())
        if column is None:
            raise _missing(statement.name, part.name)
        if any(earlier.name == column.name for earlier in key):
            raise _invalid(f"Index {statement.name} specifies key column {part.name} twice.")
        if not column.value_type.is_key_type:
            raise _refused(
                f"Cannot reference {type_name(column.value_type, element=False)} {column.name} in "
                f"the creation of index {statement.name}."
            )
        key.append(replace(part, name=column.name))
    return tuple(key)


def _missing(index: str, column: str) -> SpannerError:
    return _invalid(
        f"Index {index} specifies key column {column} which does not exist in the index's base "
        "table."
    )


def _check_not_null(
    statement: ddl.CreateIndex, table: Table, key: tuple[ddl.KeyColumn, ...]
) -> None:
    parts = {part.name for part in key}
    for name in statement.not_null:
        column = table.by_name.get(name.lower())
        if column is None:
            raise _missing(statement.name, name)
        stored = {one.lower() for one in statement.storing}
        if column.name not in parts and column.name.lower() not in stored:
            raise _refused(
                "<WHERE> clause of <CREATE INDEX> statement supports only conjunction of <column "
                "IS NOT NULL> expressions using <AND>, where <column> is part of an index."
            )


def _storing(
    index: str, names: tuple[str, ...], table: Table, key: tuple[ddl.KeyColumn, ...]
) -> tuple[str, ...]:
    stored: list[str] = []
    for name in names:
        column = table.by_name.get(name.lower())
        if column is None:
            raise _missing(index, name)
        if any(part.name == column.name for part in key):
            raise _invalid(
                f"Index {index} specifies stored column {column.name} already specified as primary "
                "key."
            )
        if column.name in table.key_names:
            raise _refused(
                f"Index {index} specifies stored column {column.name} which is a key of table "
                f"{table.name}."
            )
        if column.name in stored:
            raise _invalid(f"Index {index} specifies key column {column.name} twice.")
        stored.append(column.name)
    return tuple(stored)


def _interleaving(catalogue: Catalogue, index: Index, table: Table, name: str) -> str:
    parent = catalogue.tables.get(name.lower())
    if parent is None:
        raise _refused(f"Cannot interleave index {index.name} within nonexistent table {name}.")
    ancestor: Table | None = table
    while ancestor is not None and ancestor is not parent:
        above = ancestor.interleave
        ancestor = None if above is None else catalogue.table(above.parent)
    if ancestor is None:
        raise _refused(
            f"Cannot interleave index {index.name} of table {table.name} within table "
            f"{parent.name} because {parent.name} is not an ancestor of {table.name}."
        )
    for position, part in enumerate(parent.key):
        ours = index.key[position] if position < len(index.key) else None
        if ours is None or ours.name.lower() != part.name.lower():
            raise _refused(
                f"Index {index.name} does not reference index parent key column {part.name}."
            )
        if ours.descending != part.descending:
            raise _refused(
                f"Index {index.name} references parent key column {part.name} with incorrect order "
                f"{'DESC' if part.descending else 'ASC'}."
            )
    return parent.name


def alter_index(catalogue: Catalogue, statement: ddl.AlterIndex) -> None:
    """Store one column more or less beside the key."""
    index = catalogue.index(statement.name)
    table = catalogue.table(index.table)
    name = statement.column.lower()
    if statement.action == "DROP":
        kept = tuple(column for column in index.storing if column.lower() != name)
        if len(kept) == len(index.storing):
            raise SpannerError(
                Code.NOT_FOUND,
                f"Index {index.name} does not have stored column {statement.column}.",
            )
        catalogue.indexes[index.name.lower()] = replace(index, storing=kept)
        return
    column = table.column(statement.column).name
    if column in (*(part.name for part in index.key), *index.storing, *table.key_names):
        raise _refused(f"Column {column} is already existed in index {index.name}.")
    catalogue.indexes[index.name.lower()] = replace(index, storing=(*index.storing, column))


def drop_index(catalogue: Catalogue, statement: ddl.DropIndex) -> None:
    """Remove an index."""
    if statement.if_exists and statement.name.lower() not in catalogue.indexes:
        return
    del catalogue.indexes[catalogue.index(statement.name).name.lower()]
