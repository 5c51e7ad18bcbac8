"""Rules for columns: what one may be, how one may change, and what keeps one from going.

What the rows must say to a change (a new NOT NULL, a shorter length, a back-fill) is not here: the
owner of the rows compares the tables before and after.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias, assert_never

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema import stream_rules
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.constraint_rules import (
    check_without_commit_timestamps,
)
from spanner_simulator.core.schema.definitions import RowDeletionPolicy
from spanner_simulator.core.schema.expression_names import column_names
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.sql_rules import analyse_column
from spanner_simulator.core.schema.type_names import type_name
from spanner_simulator.core.schema.view_rules import refresh_views, views_without
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import Code, SpannerError

NAME_LENGTH_MAX = 128
_LENGTH_MAX = {"STRING": 2_621_440, "BYTES": 10_485_760}
# Kinds of values that may become each other.
_CONVERTIBLE = ({"STRING", "BYTES"}, {"ENUM", "INT64"}, {"PROTO", "BYTES"})
Alteration: TypeAlias = (
    ddl.ReplaceColumn
    | ddl.AlterColumnType
    | ddl.SetColumnDefault
    | ddl.SetColumnNullable
    | ddl.SetColumnOptions
)


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def _invalid(message: str) -> SpannerError:
    return SpannerError(Code.INVALID_ARGUMENT, message)


# -- what a column may be


def check_column(catalogue: Catalogue, table: Table, column: ddl.ColumnDefinition) -> None:
    """Refuse a definition that contradicts itself."""
    if len(column.name) > NAME_LENGTH_MAX:
        raise _invalid(f"Column name not valid: {table.name}.{column.name}.")
    scalar = column.value_type.element or column.value_type
    limit = _LENGTH_MAX.get(scalar.code)
    if limit is not None and scalar.length is not None and not 1 <= scalar.length <= limit:
        raise _invalid(
            f"Bad length for column {table.name}.{column.name}: {scalar.length} : Allowed length "
            f"range: [1, {limit}]."
        )
    if column.commit_timestamp and column.value_type.code != "TIMESTAMP":
        raise _refused(
            f"Column {table.name}.{column.name} has invalid allow_commit_timestamp option.  Option "
            "only allowed on TIMESTAMP columns."
        )
    if column.default is not None and column.generated is not None:
        raise _refused(
            f"Column {table.name}.{column.name} with a DEFAULT value cannot be a generated column "
            "and vice versa."
        )
    if column.default is not None:
        _check_default(table, column, catalogue.dialect)
    analyse_column(catalogue, table, column)
    if column.commit_timestamp and column.default is not None:
        raise _refused(
            f"Cannot use commit timestamp column `{column.name}` as a column with default value."
        )


def _check_default(table: Table, column: ddl.ColumnDefinition, dialect: Dialect) -> None:
    what = f"Error parsing the default value of column `{table.name}`.`{column.name}`: "
    if "PENDING_COMMIT_TIMESTAMP" in (column.default or "").upper():
        raise _invalid(
            what + "The PENDING_COMMIT_TIMESTAMP() function may only be used as a value for INSERT "
            "or UPDATE of an appropriately typed column. It cannot be used in SELECT, or as the "
            "input to any other scalar expression."
        )
    if column_names(column.default or "", dialect, table=table.name) & table.by_name.keys():
        raise _invalid(
            f"{what}Default value expression of column `{column.name}` has a reference to another "
            "column. Default expressions referencing other columns are not supported."
        )


def check_generated_columns(catalogue: Catalogue, table: Table) -> None:
    """Refuse generated columns in a circle, and what a stored or a key one may not be made of."""
    used = {
        column.name.lower(): _used_columns(table, column, catalogue.dialect)
        for column in table.columns
        if column.generated is not None
    }
    settled: set[str] = set()
    waiting = dict(used)
    while True:
        ready = [name for name, names in waiting.items() if not (names & used.keys()) - settled]
        if not ready:
            break
        settled.update(ready)
        for name in ready:
            del waiting[name]
    if waiting:
        circle = ",".join(table.column(name).name for name in waiting)
        raise _refused(
            f"Cycle detected while analysing generated column, which include objects ({circle})"
        )
    for name, names in used.items():
        column = table.column(name)
        if not column.is_stored and column.name in table.key_names:
            raise _invalid(
                f"Generated column `{table.name}`.`{column.name}` must be STORED to be part of the "
                "primary key."
            )
        for other in (table.column(one) for one in sorted(names)):
            if other.commit_timestamp and column.is_stored:
                raise _refused(
                    f"Cannot use commit timestamp column `{other.name}` as a dependency of a "
                    "materialized generated column."
                )


def _used_columns(table: Table, column: ddl.ColumnDefinition, dialect: Dialect) -> frozenset[str]:
    names = column_names(column.generated or "", dialect, table=table.name)
    return frozenset(names & table.by_name.keys())


# -- ADD COLUMN


def add_column(catalogue: Catalogue, statement: ddl.AddColumn) -> None:
    """Append a column; its value in the rows that exist is the caller's to fill in."""
    table, column = catalogue.table(statement.table), statement.column
    if column.name.lower() in table.by_name:
        if statement.if_not_exists:
            return
        raise _refused(f"Duplicate column name {table.name}.{column.name}.")
    if not column.is_nullable and column.default is None and column.generated is None:
        raise SpannerError(
            Code.UNIMPLEMENTED,
            f"Cannot add NOT NULL column {table.name}.{column.name} to existing table "
            f"{table.name}.",
        )
    changed = replace(table, columns=(*table.columns, column))
    check_column(catalogue, changed, column)
    check_generated_columns(catalogue, changed)
    catalogue.tables[table.name.lower()] = changed
    refresh_views(catalogue, "TABLE", table.name)


# -- DROP COLUMN


def drop_column(catalogue: Catalogue, statement: ddl.DropColumn) -> None:
    """Remove a column that nothing depends on any more."""
    table = catalogue.table(statement.table)
    column = table.column(statement.column)
    if column.name in table.key_names:
        raise _invalid(f"Cannot drop key column {column.name} from table {table.name}.")
    stream_rules.check_column_is_untracked(catalogue, table, column.name)
    for index in catalogue.indexes_of(table.name):
        if column.name in (*(part.name for part in index.key), *index.storing, *index.not_null):
            raise _refused(
                f"Cannot drop column {column.name} from table {table.name} because it is used by "
                f"index {index.name}."
            )
    for other in table.columns:
        if column.name.lower() in _used_columns(table, other, catalogue.dialect):
            raise _refused(
                f"Cannot drop column `{column.name}` from table `{table.name}` because it is "
                f"referenced by generated column `{other.name}`."
            )
    _check_no_constraints(catalogue, table, column)
    kept = tuple(old for old in table.columns if old != column)
    catalogue.tables[table.name.lower()] = replace(table, columns=kept)
    views = views_without(catalogue, table.name, column.name)
    if views:
        raise _refused(
            f"Cannot drop column `{column.name}` on which there are dependent views: "
            f"{','.join(views)}."
        )
    _check_own_row_deletion(table, column, None)
    refresh_views(catalogue, "TABLE", table.name)


def _check_no_constraints(catalogue: Catalogue, table: Table, column: ddl.ColumnDefinition) -> None:
    keys = _foreign_keys_with(catalogue, table, column)
    if keys:
        names = ", ".join(f"`{name}`" for name in keys)
        raise _refused(
            f"Cannot drop column `{column.name}` from table `{table.name}`. It is used by one or "
            f"more foreign keys: {names}. You must drop the foreign keys before dropping the "
            "column."
        )
    for check in table.checks:
        if column.name.lower() in column_names(
            check.expression, catalogue.dialect, table=table.name
        ):
            raise _refused(
                f"Cannot drop column `{column.name}` on which there is a dependent check "
                f"constraint: {check.name}."
            )


def _foreign_keys_with(
    catalogue: Catalogue, table: Table, column: ddl.ColumnDefinition
) -> list[str]:
    return [
        key.name
        for other in catalogue.tables.values()
        for key in other.foreign_keys
        if (other is table and column.name in key.columns)
        or (
            key.referenced_table.lower() == table.name.lower()
            and column.name in key.referenced_columns
        )
    ]


def _check_own_row_deletion(
    table: Table, column: ddl.ColumnDefinition, changed: ddl.ColumnDefinition | None
) -> None:
    policy = table.row_deletion
    if policy is not None and policy.column.lower() == column.name.lower():
        check_row_deletion(table, policy, changed)


def check_row_deletion(
    table: Table, policy: RowDeletionPolicy, column: ddl.ColumnDefinition | None
) -> None:
    """Refuse an alteration that leaves a policy with a column of another type, or with none."""
    if column is None or column.value_type.code != "TIMESTAMP":
        raise _invalid(
            f"ROW DELETION POLICY will break if drop/alter column named {policy.column} in table "
            f"{table.name}. Row Deletion Policy must be set on column of type TIMESTAMP."
        )


# -- ALTER COLUMN


def alter_column(catalogue: Catalogue, statement: Alteration) -> None:
    """Change a column's definition as far as Spanner allows it."""
    table = catalogue.table(statement.table)
    named = statement.column if isinstance(statement.column, str) else statement.column.name
    old = table.column(named)
    new = _altered(old, statement)
    _check_own_row_deletion(table, old, new)
    if isinstance(statement, ddl.ReplaceColumn | ddl.SetColumnDefault):
        _check_generated_change(table, old, new)
    if old.name in table.key_names:
        _check_key_change(catalogue, table, old, new)
    if new.value_type != old.value_type:
        _check_type_change(catalogue, table, old, new)
    if new.is_nullable != old.is_nullable:
        for index in catalogue.indexes_of(table.name):
            if old.name in (*(part.name for part in index.key), *index.storing):
                raise _refused(
                    f"Changing NOT NULL constraints on column {old.name} is not allowed because it "
                    f"affects index {index.name}."
                )
    changed = replace(
        table, columns=tuple(new if column == old else column for column in table.columns)
    )
    check_column(catalogue, changed, new)
    check_generated_columns(catalogue, changed)
    for check in changed.checks:
        check_without_commit_timestamps(catalogue, changed, check)
    catalogue.tables[table.name.lower()] = changed
    if new.value_type != old.value_type:
        refresh_views(catalogue, "TABLE", table.name)


def _altered(old: ddl.ColumnDefinition, statement: Alteration) -> ddl.ColumnDefinition:
    match statement:
        case ddl.ReplaceColumn(column=column, has_options=has_options):
            kept = column.commit_timestamp if has_options else old.commit_timestamp
            return replace(column, name=old.name, commit_timestamp=kept)
        case ddl.AlterColumnType(value_type=value_type):
            return replace(old, value_type=value_type)
        case ddl.SetColumnDefault(default=default):
            return replace(old, default=default)
        case ddl.SetColumnNullable(is_nullable=is_nullable):
            return replace(old, is_nullable=is_nullable)
        case ddl.SetColumnOptions(commit_timestamp=commit_timestamp):
            return replace(old, commit_timestamp=commit_timestamp)
        case _:
            assert_never(statement)


def _check_generated_change(
    table: Table, old: ddl.ColumnDefinition, new: ddl.ColumnDefinition
) -> None:
    name = f"{table.name}.{old.name}"
    if old.generated is not None and new.default is not None:
        raise _refused(
            f"Column {name} with a DEFAULT value cannot be a generated column and vice versa."
        )
    if old.generated is not None and new.generated is None:
        raise _invalid(f"Cannot convert generated column `{name}` to a regular column.")
    if old.generated is None and new.generated is not None:
        raise _invalid(f"Cannot convert column `{name}` to a generated column.")
    if (old.generated, old.is_stored) != (new.generated, new.is_stored):
        raise _invalid(
            f"Cannot change the expression of a generated column `{name}` because it is stored or "
            "has other dependencies."
        )


def _check_key_change(
    catalogue: Catalogue, table: Table, old: ddl.ColumnDefinition, new: ddl.ColumnDefinition
) -> None:
    name = f"{table.name}.{old.name}"
    if catalogue.children_of(table.name):
        raise _invalid(f"Requested change to key column {name} could not be made.")
    if table.interleave is not None and new.value_type != old.value_type:
        parent = catalogue.table(table.interleave.parent)
        if old.name.lower() in (part.lower() for part in parent.key_names):
            raise _invalid(f"Cannot alter parent key column {name}.")
    if new.is_nullable != old.is_nullable:
        raise _invalid(f"Cannot change key column {name}.")


def _check_type_change(
    catalogue: Catalogue, table: Table, old: ddl.ColumnDefinition, new: ddl.ColumnDefinition
) -> None:
    one = old.value_type.element or old.value_type
    two = new.value_type.element or new.value_type
    both_arrays = (old.value_type.element is None) == (new.value_type.element is None)
    if type_name(old.value_type) == type_name(new.value_type):
        return
    for other in table.columns:
        uses = _used_columns(table, other, catalogue.dialect)
        if other.is_stored and old.name.lower() in uses:
            raise _refused(
                f"Cannot change the data type of column `{old.name}`, which has a dependent stored "
                "generated column."
            )
    may_convert = any({one.code, two.code} <= kinds for kinds in _CONVERTIBLE)
    if not both_arrays or not may_convert:
        raise _invalid(
            f"Cannot change type of column `{old.name}` from `{type_name(old.value_type)}` to "
            f"`{type_name(new.value_type)}`"
        )
    keys = _foreign_keys_with(catalogue, table, old)
    if keys:
        raise _refused(
            f"Cannot change the data type of column `{old.name}`, which is used by foreign key "
            f"`{keys[0]}`."
        )
