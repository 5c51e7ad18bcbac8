"""Rules for the SQL inside schema statements: defaults, generated columns and checks.

The catalogue's analyser checks its meaning; without one it is accepted unchecked, and rejected at
its first use.  The texts around the analyser's are the service's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.expression_names import column_names
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import Check, ColumnDefinition
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError, failed_precondition, invalid_argument


def check_default(catalogue: Catalogue, table: Table, column: ColumnDefinition) -> None:
    """Reject an invalid default, or one that names a column."""
    _check_on_update(table, column)
    if column.default is None:
        return
    prefix = f"Error parsing the default value of column `{table.name}`.`{column.name}`: "
    if column.defaults_to_commit and not column.commit_timestamp:
        raise failed_precondition(
            "Cannot use default value expression PENDING_COMMIT_TIMESTAMP() on column "
            f"`{column.name}` without the allow_commit_timestamp column option."
        )
    if column.defaults_to_commit:
        return
    if column.commit_timestamp:
        raise failed_precondition(
            "The only default value expression permitted for commit timestamp column "
            f"`{column.name}` is PENDING_COMMIT_TIMESTAMP()."
        )
    if "PENDING_COMMIT_TIMESTAMP" in column.default.upper():
        raise invalid_argument(
            f"{prefix}The PENDING_COMMIT_TIMESTAMP() function may only be used as a value for "
            "INSERT or UPDATE of an appropriately typed column."
        )
    if column_names(column.default, catalogue.dialect, table=table.name) & table.by_name.keys():
        raise invalid_argument(
            f"{prefix}Default value expression of column `{column.name}` has a reference to "
            "another column. Default expressions referencing other columns are not supported."
        )
    _analyse(catalogue, table, column.default, column.value_type, prefix)


def _check_on_update(table: Table, column: ColumnDefinition) -> None:
    """Reject ON UPDATE unless it is a commit timestamp outside of the key, and the default."""
    if column.on_update is None:
        return
    if column.name in table.key_names:
        raise invalid_argument(
            f"Column {table.name}.{column.name} with ON UPDATE cannot be a part of or the whole "
            "primary key."
        )
    if column.default is None:
        raise invalid_argument(
            f"Column `{column.name}` with an ON UPDATE expression must have an identical DEFAULT "
            "value expression."
        )
    if column.default != column.on_update:
        raise invalid_argument(
            f"The ON UPDATE expression of column `{column.name}` does not match the DEFAULT value "
            "expression."
        )
    if not column.defaults_to_commit:
        raise invalid_argument(
            "PENDING_COMMIT_TIMESTAMP() is the only supported ON UPDATE expression."
        )


def check_generated(catalogue: Catalogue, table: Table) -> None:
    """Reject cyclic generated columns, and columns that a stored or key one may not depend on."""
    generated = [column for column in table.columns if column.generated is not None]
    used = {column.name.lower(): used_columns(catalogue, table, column) for column in generated}
    for column in generated:
        if column.default is not None:
            raise failed_precondition(
                f"Column {table.name}.{column.name} with a DEFAULT value cannot be a generated "
                "column and vice versa."
            )
        prefix = (
            f"Error parsing the definition of generated column `{table.name}`.`{column.name}`: "
        )
        _analyse(catalogue, table, f"({column.generated})", column.value_type, prefix)
        if not column.is_stored and column.name in table.key_names:
            raise invalid_argument(
                f"Generated column `{table.name}`.`{column.name}` must be STORED to be part of the "
                "primary key."
            )
        for other in (table.column(used_name) for used_name in sorted(used[column.name.lower()])):
            if other.commit_timestamp and column.is_stored:
                raise failed_precondition(
                    f"Cannot use commit timestamp column `{other.name}` as a dependency of a "
                    "materialized generated column."
                )
    while ready := [name for name, names in used.items() if not names & used.keys()]:
        for name in ready:
            del used[name]
    if used:
        circle = ",".join(table.column(name).name for name in used)
        raise failed_precondition(
            f"Cycle detected while analysing generated column, which include objects ({circle})"
        )


def used_columns(catalogue: Catalogue, table: Table, column: ColumnDefinition) -> Collection[str]:
    """The columns that a generated column depends on, in lower case."""
    names = column_names(column.generated or "", catalogue.dialect, table=table.name)
    return names & table.by_name.keys()


def with_check(catalogue: Catalogue, table: Table, check: Check) -> Table:
    """A table with one more check, under an unused name."""
    schema = table.name.rpartition(".")[0]
    if check.is_named:
        catalogue.check_free_name(f"{schema}.{check.name}" if schema else check.name)
        if check.name.lower() in (check_.name.lower() for check_ in table.checks):
            raise failed_precondition(f"Duplicate name in schema: {check.name}.")
    else:
        # A name such as CK_T_0123456789ABCDEF_1, like the service's generated names.
        digest = hashlib.sha256(f"CK/{table.name}/".encode()).hexdigest()[:16].upper()
        local_name = table.name.rpartition(".")[2]
        check = replace(check, name=f"CK_{local_name}_{digest}_{len(table.checks) + 1}")
    prefix = (
        f"Error parsing expression '{check.expression}' from check constraint "
        f"'{check.name if check.is_named else '<unnamed>'}' in table '{table.name}': "
    )
    _analyse(catalogue, table, check.expression, ValueType("BOOL"), prefix)
    changed = replace(table, checks=(*table.checks, check))
    check_without_commit_timestamps(catalogue, changed)
    return changed


def check_without_commit_timestamps(catalogue: Catalogue, table: Table) -> None:
    """Reject a check over a column that may hold a future commit's time."""
    for check in table.checks:
        names = column_names(check.expression, catalogue.dialect, table=table.name)
        for column in table.columns:
            if column.commit_timestamp and column.name.lower() in names:
                raise invalid_argument(
                    f"Column `{column.name}` has option commit_timestamp, which is not supported "
                    "in check constraint."
                )


def _analyse(
    catalogue: Catalogue, table: Table, expression: str, result: ValueType, prefix: str
) -> None:
    if catalogue.analysis is None:
        return
    try:
        actual = catalogue.analysis.mismatch(expression, table=table, result=result)
    except SpannerError as error:
        if error.code is Code.UNIMPLEMENTED:
            raise
        raise invalid_argument(prefix + error.message) from error
    if actual is not None:
        raise invalid_argument(
            f"{prefix}Expected type {result.base_name()}; found {actual} [at 1:1]\n{expression}\n^"
        )
