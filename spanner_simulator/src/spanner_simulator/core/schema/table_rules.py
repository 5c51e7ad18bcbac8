"""Rules for tables as a whole: keys, interleaving and row deletion policies.

The texts are the service's own, learnt from Google's emulator.
"""

from __future__ import annotations

from dataclasses import replace

from spanner_simulator.core.schema import column_rules, stream_rules
from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.constraint_rules import (
    add_to_table,
    check_unreferenced,
    foreign_keys_to,
    quoted_names,
)
from spanner_simulator.core.schema.definitions import Interleave, RowDeletionPolicy
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.type_names import type_name
from spanner_simulator.core.schema.view_rules import check_no_views
from spanner_simulator.errors import Code, SpannerError

_KEY_COLUMNS_MAX = 16
_INTERLEAVING_DEPTH_MAX = 7


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def _invalid(message: str) -> SpannerError:
    return SpannerError(Code.INVALID_ARGUMENT, message)


def create_table(catalogue: Catalogue, statement: ddl.CreateTable) -> None:
    """Make a table with its constraints; its rows are the caller's."""
    if statement.if_not_exists and statement.name.lower() in catalogue.tables:
        return
    catalogue.check_new_name("Table", statement.name)
    table = Table(
        statement.name,
        statement.columns,
        _key(statement),
        statement.interleave,
        statement.row_deletion,
    )
    seen: set[str] = set()
    for column in table.columns:
        if column.name.lower() in seen:
            raise _refused(f"Duplicate column name {table.name}.{column.name}.")
        seen.add(column.name.lower())
    for column in table.columns:
        column_rules.check_column(catalogue, table, column)
    column_rules.check_generated_columns(catalogue, table)
    _check_key_types(table)
    catalogue.tables[table.name.lower()] = table
    if table.interleave is not None:
        table = _checked_interleaving(catalogue, table, table.interleave)
    if table.row_deletion is not None:
        _check_row_deletion(catalogue, table, table.row_deletion)
    catalogue.tables[table.name.lower()] = table
    for key in statement.foreign_keys:
        add_to_table(catalogue, statement.name, key)
    for check in statement.checks:
        add_to_table(catalogue, statement.name, check)


def drop_table(catalogue: Catalogue, statement: ddl.DropTable) -> None:
    """Remove a table that nothing depends on any more."""
    if statement.if_exists and statement.name.lower() not in catalogue.tables:
        return
    table = catalogue.table(statement.name)
    stream_rules.check_table_is_untracked(catalogue, table)
    children = sorted(child.name for child in catalogue.children_of(table.name))
    if children:
        raise _refused(
            f"Cannot drop table {table.name} with interleaved tables: {','.join(children)}."
        )
    indexes = sorted(index.name for index in catalogue.indexes_of(table.name))
    if indexes:
        raise _refused(f"Cannot drop table {table.name} with indices: {','.join(indexes)}.")
    referring = [
        key.name for key in foreign_keys_to(catalogue, table) if key not in table.foreign_keys
    ]
    if referring:
        raise _refused(
            f"Cannot drop table `{table.name}`. It is referenced by one or more foreign keys: "
            f"{quoted_names(referring)}. You must drop the foreign keys before dropping the table."
        )
    check_no_views(catalogue, "TABLE", table.name)
    del catalogue.tables[table.name.lower()]


# -- keys


def _key(statement: ddl.CreateTable) -> tuple[ddl.KeyColumn, ...]:
    by_name = {column.name.lower(): column for column in statement.columns}
    key: list[ddl.KeyColumn] = []
    for part in statement.key:
        column = by_name.get(part.name.lower())
        if column is None:
            raise _refused(f"Table {statement.name} references nonexistent key column {part.name}.")
        if any(earlier.name == column.name for earlier in key):
            raise _invalid(
                f"Table {statement.name} references key column {part.name} more than once."
            )
        key.append(replace(part, name=column.name))
    if len(key) > _KEY_COLUMNS_MAX:
        raise _invalid(
            f"Table {statement.name} has too many keys ({len(key)}); the limit is "
            f"{_KEY_COLUMNS_MAX}."
        )
    return tuple(key)


def _check_key_types(table: Table) -> None:
    for part in table.key:
        column = table.column(part.name)
        if not column.value_type.is_key_type:
            raise _invalid(
                f"Column {table.name}.{column.name} has type "
                f"{type_name(column.value_type, element=False)}, but is part of the "
                "primary key."
            )


# -- interleaving


def _checked_interleaving(catalogue: Catalogue, table: Table, interleave: Interleave) -> Table:
    if interleave.parent.lower() == table.name.lower():
        raise SpannerError(Code.NOT_FOUND, f"Table not found: {interleave.parent}")
    parent = catalogue.table(interleave.parent)
    depth = 2 + len(_ancestors(catalogue, parent))
    if depth > _INTERLEAVING_DEPTH_MAX:
        raise _refused(
            f"Table {table.name} is too deeply nested; the limit is {_INTERLEAVING_DEPTH_MAX}."
        )
    for position, part in enumerate(parent.key):
        _check_parent_key(table, parent, position, part)
    if interleave.in_parent:
        _check_on_delete(catalogue, table, replace(interleave, parent=parent.name))
    return replace(table, interleave=replace(interleave, parent=parent.name))


def _check_parent_key(table: Table, parent: Table, position: int, part: ddl.KeyColumn) -> None:
    names = [name.lower() for name in table.key_names]
    what = f"Table {table.name} references parent key column {part.name}"
    if part.name.lower() not in names:
        raise _refused(f"Table {table.name} does not reference parent key column {part.name}.")
    if names[position] != part.name.lower():
        raise _refused(f"{what} at incorrect position {names.index(part.name.lower())}.")
    theirs, ours = parent.column(part.name), table.column(part.name)
    if theirs.value_type.code != ours.value_type.code:
        raise _refused(
            f"{what} with incorrect type {type_name(ours.value_type)} (should be "
            f"{type_name(theirs.value_type)})."
        )
    if theirs.value_type.length != ours.value_type.length:
        lengths = [_length(column.value_type.length) for column in (ours, theirs)]
        raise _refused(f"{what} with incorrect length {lengths[0]} (should be {lengths[1]}).")
    if part.descending != table.key[position].descending:
        raise _refused(f"{what} with incorrect order {'DESC' if part.descending else 'ASC'}.")
    if not theirs.is_nullable and ours.is_nullable:
        raise _refused(f"{what} that is not null, but child key is nullable.")
    if theirs.is_nullable and not ours.is_nullable:
        raise _refused(f"{what} that is nullable, but child key is not null.")


def _length(length: int | None) -> str:
    return "MAX" if length is None else str(length)


def _ancestors(catalogue: Catalogue, table: Table) -> list[Table]:
    found: list[Table] = []
    while table.interleave is not None:
        table = catalogue.table(table.interleave.parent)
        found.append(table)
    return found


def _check_on_delete(catalogue: Catalogue, table: Table, interleave: Interleave) -> None:
    if interleave.on_delete == "CASCADE":
        return
    parent = catalogue.table(interleave.parent)
    for ancestor in (parent, *_ancestors(catalogue, parent)):
        if ancestor.row_deletion is not None:
            raise _invalid(
                f"Cannot create or alter table {table.name} with ON DELETE NO ACTION because there "
                f"is a row deletion policy on ancestor table {ancestor.name}."
            )


def set_on_delete(catalogue: Catalogue, statement: ddl.SetOnDelete) -> None:
    """Change what becomes of rows when their parent goes."""
    table = catalogue.table(statement.table)
    if table.interleave is None or not table.interleave.in_parent:
        raise _invalid(
            f"Cannot SET ON DELETE on table {table.name} that does not have an INTERLEAVE clause."
        )
    interleave = replace(table.interleave, on_delete=statement.on_delete)
    _check_on_delete(catalogue, table, interleave)
    catalogue.tables[table.name.lower()] = replace(table, interleave=interleave)


# -- row deletion policies


def set_row_deletion(catalogue: Catalogue, statement: ddl.SetRowDeletion) -> None:
    """Give a table a row deletion policy, another one, or none."""
    table = catalogue.table(statement.table)
    if statement.action != "ADD" and table.row_deletion is None:
        raise _invalid(f"ROW DELETION POLICY does not exist on table {table.name}.")
    if statement.action == "ADD" and table.row_deletion is not None:
        raise _invalid(
            "Cannot create ROW DELETION POLICY because there is already one on column named "
            f"{table.row_deletion.column} in table {table.name}."
        )
    if statement.policy is not None:
        column = table.by_name.get(statement.policy.column.lower())
        if column is not None:
            column_rules.check_row_deletion(table, statement.policy, column)
        _check_row_deletion(catalogue, table, statement.policy)
    catalogue.tables[table.name.lower()] = replace(table, row_deletion=statement.policy)


def _check_row_deletion(catalogue: Catalogue, table: Table, policy: RowDeletionPolicy) -> None:
    column = table.by_name.get(policy.column.lower())
    if column is None:
        raise _invalid(
            f"Cannot create ROW DELETION POLICY because there is no column named {policy.column} "
            f"in table {table.name}."
        )
    if column.value_type.code != "TIMESTAMP":
        raise _invalid(
            f"Cannot create ROW DELETION POLICY because column {column.name} in table "
            f"{table.name} is not of type TIMESTAMP."
        )
    check_unreferenced(catalogue, table)
    for child in _descendants(catalogue, table):
        if child.interleave is not None and child.interleave.on_delete == "NO ACTION":
            raise _invalid(
                f"Cannot create row deletion policy on {table.name} because there is a descendant "
                f"Table {child.name} with ON DELETE NO ACTION."
            )


def _descendants(catalogue: Catalogue, table: Table) -> list[Table]:
    """Tables below this one that hang on its rows."""
    found: list[Table] = []
    for child in catalogue.children_of(table.name):
        if child.interleave is not None and child.interleave.in_parent:
            found += [child, *_descendants(catalogue, child)]
    return found
