"""Rules for columns: valid definitions, permitted changes, and what prevents dropping one.

The requirements on rows (a new NOT NULL, a shorter length, a back-fill) are not here: the owner of
the rows compares the tables before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema import stream_rules
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.expression_names import column_names
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.sql_rules import (
    check_default,
    check_generated,
    check_without_commit_timestamps,
    used_columns,
)
from spanner_simulator.errors import (
    Code,
    SpannerError,
    failed_precondition,
    invalid_argument,
    unsupported,
)

NAME_LENGTH_MAX = 128
_LENGTH_MAX = {"STRING": 2_621_440, "BYTES": 10_485_760}


def check_columns(catalogue: Catalogue, table: Table) -> None:
    """Reject definitions that contradict themselves or each other."""
    for column in table.columns:
        _check_column(catalogue, table, column)
    check_generated(catalogue, table)


def _check_column(catalogue: Catalogue, table: Table, column: ddl.ColumnDefinition) -> None:
    name = f"{table.name}.{column.name}"
    if len(column.name) > NAME_LENGTH_MAX:
        raise invalid_argument(f"Column name not valid: {name}.")
    scalar = column.value_type.element or column.value_type
    limit = _LENGTH_MAX.get(scalar.code)
    if limit is not None and scalar.length is not None and not 1 <= scalar.length <= limit:
        raise invalid_argument(
            f"Bad length for column {name}: {scalar.length} : Allowed length range: [1, {limit}]."
        )
    if column.value_type.vector_length is not None:
        if scalar is column.value_type or scalar.code not in ("FLOAT32", "FLOAT64"):
            raise invalid_argument(
                "`vector_length` can only be applied on ARRAY<FLOAT32>or ARRAY<FLOAT64>, but it is "
                f"applied on {name}."
            )
        if column.default is not None or not (column.generated is None or column.is_stored):
            raise invalid_argument(
                "`vector_length` cannot be applied on generated column or default column,but it is "
                f"applied on {name}."
            )
    if column.commit_timestamp and column.value_type.code != "TIMESTAMP":
        raise failed_precondition(
            f"Column {name} has invalid allow_commit_timestamp option.  Option only allowed on "
            "TIMESTAMP columns."
        )
    _check_identity(table, column)
    check_default(catalogue, table, column)


def _check_identity(table: Table, column: ddl.ColumnDefinition) -> None:
    if column.identity is None:
        return
    start, (low, high) = column.identity.start, column.identity.skip or (1, 1)
    if column.value_type.code != "INT64":
        raise invalid_argument(f"Identity column {table.name}.{column.name} must be an INT64.")
    if start is not None and start < 1:
        raise failed_precondition("`start_with_counter` has to be a positive INT64 number")
    if low > high:
        raise failed_precondition(
            "`skip_range_min` has to be lesser than or equal to `skip_range_max`"
        )
    if high < 1:
        raise failed_precondition(
            "The sequence skipped range has to contain at least one positive value"
        )


def add_column(catalogue: Catalogue, statement: ddl.AddColumn) -> None:
    """Append a column; the caller sets its value in existing rows."""
    table, column = catalogue.table(statement.table), statement.column
    if column.name.lower() in table.by_name:
        if statement.if_not_exists:
            return
        raise failed_precondition(f"Duplicate column name {table.name}.{column.name}.")
    if not column.is_nullable and not column.is_filled_in and column.generated is None:
        raise SpannerError(
            Code.UNIMPLEMENTED,
            f"Cannot add NOT NULL column {table.name}.{column.name} to existing table "
            f"{table.name}.",
        )
    changed = replace(table, columns=(*table.columns, column))
    check_columns(catalogue, changed)
    catalogue.tables[table.name.lower()] = changed


def drop_column(catalogue: Catalogue, statement: ddl.DropColumn) -> None:
    """Remove a column that nothing depends on."""
    table = catalogue.table(statement.table)
    column = table.column(statement.column)
    name = column.name.lower()
    if column.name in table.key_names:
        raise invalid_argument(f"Cannot drop key column {column.name} from table {table.name}.")
    stream_rules.check_column_is_untracked(catalogue, table, column.name)
    users = [
        f"index {index.name}"
        for index in catalogue.indexes_of(table.name)
        if column.name in (*(part.name for part in index.key), *index.storing)
    ]
    users += [
        f"generated column {other.name}"
        for other in table.columns
        if name in used_columns(catalogue, table, other)
    ]
    users += [
        f"check constraint {check.name}"
        for check in table.checks
        if name in column_names(check.expression, catalogue.dialect, table=table.name)
    ]
    if users:
        raise failed_precondition(
            f"Cannot drop column {column.name} from table {table.name} because it is used by "
            f"{users[0]}."
        )
    _check_row_deletion(table, column.name, None)
    remaining = tuple(old for old in table.columns if old != column)
    catalogue.tables[table.name.lower()] = replace(table, columns=remaining)


def _check_row_deletion(table: Table, name: str, column: ddl.ColumnDefinition | None) -> None:
    """Reject a change that leaves a policy with a column of another type, or without one."""
    policy = table.row_deletion
    is_lost = column is None or column.value_type.code != "TIMESTAMP"
    if policy is not None and policy.column.lower() == name.lower() and is_lost:
        raise invalid_argument(
            f"ROW DELETION POLICY will break if drop/alter column named {policy.column} in table "
            f"{table.name}. Row Deletion Policy must be set on column of type TIMESTAMP."
        )


def alter_column(catalogue: Catalogue, statement: ddl.AlterColumn) -> None:
    """Change a column's definition as far as Spanner allows it."""
    table = catalogue.table(statement.table)
    old = table.column(statement.column)
    changes, name = dict(statement.changes), f"{table.name}.{old.name}"
    if isinstance(changes.get("identity"), Mapping):
        if old.identity is None:
            raise invalid_argument(
                f"Cannot alter column `{name}` to an identity column."
                if "value_type" in changes
                else f"Column is not an identity column in table {table.name}: {old.name}"
            )
        again = old.identity.restarts + ("start" in changes["identity"])
        changes["identity"] = replace(old.identity, **changes["identity"], restarts=again)
    new = replace(old, **changes)
    _check_row_deletion(table, old.name, new)
    if (old.generated, old.is_stored) != (new.generated, new.is_stored):
        raise invalid_argument(f"Cannot change whether or how column `{name}` is generated.")
    if old.identity is not None and new.identity is None:
        raise invalid_argument(f"Cannot alter column `{name}` to drop the identity property.")
    if new.identity is not None and new.default is not None:
        raise invalid_argument(
            f"Cannot alter an identity column `{name}` to a generated or default column."
        )
    if old.name in table.key_names:
        _check_key_change(catalogue, table, old, new)
    if new.value_type != old.value_type:
        _check_type_change(old, new)
    if new.is_nullable != old.is_nullable:
        for index in catalogue.indexes_of(table.name):
            if old.name in (*(part.name for part in index.key), *index.storing):
                raise failed_precondition(
                    f"Changing NOT NULL constraints on column {old.name} is not allowed because it "
                    f"affects index {index.name}."
                )
    columns = tuple(new if column == old else column for column in table.columns)
    changed = replace(table, columns=columns)
    check_columns(catalogue, changed)
    check_without_commit_timestamps(catalogue, changed)
    catalogue.tables[table.name.lower()] = changed


def _check_key_change(
    catalogue: Catalogue, table: Table, old: ddl.ColumnDefinition, new: ddl.ColumnDefinition
) -> None:
    name = f"{table.name}.{old.name}"
    if catalogue.children_of(table.name):
        raise invalid_argument(f"Requested change to key column {name} could not be made.")
    if table.interleave is not None and new.value_type != old.value_type:
        parent = catalogue.table(table.interleave.parent)
        if old.name.lower() in (part.lower() for part in parent.key_names):
            raise invalid_argument(f"Cannot alter parent key column {name}.")
    if new.is_nullable != old.is_nullable:
        raise invalid_argument(f"Cannot change key column {name}.")


def _check_type_change(old: ddl.ColumnDefinition, new: ddl.ColumnDefinition) -> None:
    """Lengths may change freely, nothing else may; a vector stays a vector."""
    before, after = old.value_type.base_name(), new.value_type.base_name()
    if {before, after} in ({"STRING", "BYTES"}, {"ARRAY<STRING>", "ARRAY<BYTES>"}):
        raise unsupported("ALTER COLUMN from STRING to BYTES and back")
    if before != after:
        raise invalid_argument(
            f"Cannot change type of column `{old.name}` from `{before}` to `{after}`"
        )
    if old.value_type.vector_length is not None and new.value_type.vector_length is None:
        raise failed_precondition(f"Cannot change column {old.name} to remove `vector_length`")
