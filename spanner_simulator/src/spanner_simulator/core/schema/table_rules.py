"""Rules for tables as a whole: keys, interleaving and row deletion policies.

The texts are the service's own, as seen in Google's emulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema import stream_rules
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.column_rules import check_columns
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.sql_rules import with_check
from spanner_simulator.errors import failed_precondition, invalid_argument, not_found

_KEY_COLUMNS_MAX = 16
_INTERLEAVING_DEPTH_MAX = 7


def create_table(catalogue: Catalogue, statement: ddl.CreateTable) -> None:
    """Create a table with its constraints; the caller creates its rows."""
    if statement.if_not_exists and statement.name.lower() in catalogue.tables:
        return
    catalogue.check_new_name("Table", statement.name)
    table = Table(statement.name, statement.columns, _key(statement))
    if len(table.by_name) < len(table.columns):
        names = [column.name.lower() for column in table.columns]
        twice = [column.name for column in table.columns if names.count(column.name.lower()) > 1]
        raise failed_precondition(f"Duplicate column name {table.name}.{twice[1]}.")
    check_columns(catalogue, table)
    for part in table.key:
        kind = table.column(part.name).value_type
        if not kind.is_key_type:
            raise invalid_argument(
                f"Column {table.name}.{part.name} has type {kind.base_name(element=False)}, but "
                "is part of the primary key."
            )
    if statement.interleave is not None:
        table = _interleaved(catalogue, table, statement.interleave)
    for check in statement.checks:
        table = with_check(catalogue, table, check)
    catalogue.tables[table.name.lower()] = table
    if statement.row_deletion is not None:
        _set_policy(catalogue, table, statement.row_deletion)


def drop_table(catalogue: Catalogue, table: Table) -> None:
    """Remove a table that nothing depends on."""
    stream_rules.check_table_is_untracked(catalogue, table)
    children = sorted(child.name for child in catalogue.children_of(table.name))
    if children:
        raise failed_precondition(
            f"Cannot drop table {table.name} with interleaved tables: {','.join(children)}."
        )
    indexes = sorted(index.name for index in catalogue.indexes_of(table.name))
    if indexes:
        raise failed_precondition(
            f"Cannot drop table {table.name} with indices: {','.join(indexes)}."
        )
    del catalogue.tables[table.name.lower()]


def _key(statement: ddl.CreateTable) -> tuple[ddl.KeyColumn, ...]:
    by_name = {column.name.lower(): column for column in statement.columns}
    key: list[ddl.KeyColumn] = []
    for part in statement.key:
        column = by_name.get(part.name.lower())
        if column is None:
            raise failed_precondition(
                f"Table {statement.name} references nonexistent key column {part.name}."
            )
        if any(earlier.name == column.name for earlier in key):
            raise invalid_argument(
                f"Table {statement.name} references key column {part.name} more than once."
            )
        key.append(replace(part, name=column.name))
    if len(key) > _KEY_COLUMNS_MAX:
        raise invalid_argument(
            f"Table {statement.name} has too many keys ({len(key)}); the limit is "
            f"{_KEY_COLUMNS_MAX}."
        )
    return tuple(key)


# -- interleaving


def _interleaved(catalogue: Catalogue, table: Table, interleave: ddl.Interleave) -> Table:
    if interleave.parent.lower() == table.name.lower():
        raise not_found(f"Table not found: {interleave.parent}")
    parent = catalogue.table(interleave.parent)
    above = [parent, *_ancestors(catalogue, parent)]
    if len(above) >= _INTERLEAVING_DEPTH_MAX:
        raise failed_precondition(
            f"Table {table.name} is too deeply nested; the limit is {_INTERLEAVING_DEPTH_MAX}."
        )
    for position, part in enumerate(parent.key):
        _check_parent_key(table, parent, position, part)
    for ancestor in above if interleave.on_delete == "NO ACTION" else ():
        if ancestor.row_deletion is not None:
            raise invalid_argument(
                f"Cannot create or alter table {table.name} with ON DELETE NO ACTION because there "
                f"is a row deletion policy on ancestor table {ancestor.name}."
            )
    return replace(table, interleave=replace(interleave, parent=parent.name))


def _check_parent_key(table: Table, parent: Table, position: int, part: ddl.KeyColumn) -> None:
    names = [name.lower() for name in table.key_names]
    subject = f"Table {table.name} references parent key column {part.name}"
    if part.name.lower() not in names:
        raise failed_precondition(
            f"Table {table.name} does not reference parent key column {part.name}."
        )
    if names[position] != part.name.lower():
        raise failed_precondition(
            f"{subject} at incorrect position {names.index(part.name.lower())}."
        )
    parent_column, child_column = parent.column(part.name), table.column(part.name)
    if parent_column.value_type != child_column.value_type:
        raise failed_precondition(
            f"{subject} with incorrect type {child_column.value_type.ddl()} (should be "
            f"{parent_column.value_type.ddl()})."
        )
    if part.descending != table.key[position].descending:
        raise failed_precondition(
            f"{subject} with incorrect order {'DESC' if part.descending else 'ASC'}."
        )
    if parent_column.is_nullable != child_column.is_nullable:
        kinds = ("nullable", "not null") if parent_column.is_nullable else ("not null", "nullable")
        raise failed_precondition(f"{subject} that is {kinds[0]}, but child key is {kinds[1]}.")


def _ancestors(catalogue: Catalogue, table: Table) -> Iterator[Table]:
    while table.interleave is not None:
        table = catalogue.table(table.interleave.parent)
        yield table


def _descendants(catalogue: Catalogue, table: Table) -> Iterator[Table]:
    for child in catalogue.children_of(table.name):
        yield child
        yield from _descendants(catalogue, child)


# -- row deletion policies


def set_row_deletion(catalogue: Catalogue, statement: ddl.SetRowDeletion) -> None:
    """Set, replace or remove a table's row deletion policy."""
    table = catalogue.table(statement.table)
    if statement.action != "ADD" and table.row_deletion is None:
        raise invalid_argument(f"ROW DELETION POLICY does not exist on table {table.name}.")
    if statement.action == "ADD" and table.row_deletion is not None:
        raise invalid_argument(
            "Cannot create ROW DELETION POLICY because there is already one on column named "
            f"{table.row_deletion.column} in table {table.name}."
        )
    _set_policy(catalogue, table, statement.policy)


def _set_policy(catalogue: Catalogue, table: Table, policy: ddl.RowDeletionPolicy | None) -> None:
    if policy is not None:
        column = table.by_name.get(policy.column.lower())
        if column is None or column.value_type.code != "TIMESTAMP":
            raise invalid_argument(
                f"Cannot create ROW DELETION POLICY because there is no column named "
                f"{policy.column} of type TIMESTAMP in table {table.name}."
            )
        for child in _descendants(catalogue, table):
            if child.interleave is not None and child.interleave.on_delete == "NO ACTION":
                raise invalid_argument(
                    f"Cannot create row deletion policy on {table.name} because there is a "
                    f"descendant Table {child.name} with ON DELETE NO ACTION."
                )
    catalogue.tables[table.name.lower()] = replace(table, row_deletion=policy)
