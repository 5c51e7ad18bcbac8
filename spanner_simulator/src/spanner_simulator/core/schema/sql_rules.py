"""Rules for the SQL inside schema statements: defaults, generated columns and checks.

What it means is decided by the catalogue's analyser; without one it is accepted as it is, and
refused when it is first used. The texts around the analyser's are the service's own.
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
    """Refuse a default that makes no sense, or that names a column."""
    _check_on_update(table, column)
    if column.default is None:
        return
    what = f"Error parsing the default value of column `{table.name}`.`{column.name}`: "
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
            f"{what}The PENDING_COMMIT_TIMESTAMP() function may only be used as a value for INSERT "
            "or UPDATE of an appropriately typed column."
        )
    if column_names(column.default, catalogue.dialect, table=table.name) & table.by_name.keys():
        raise invalid_argument(
            f"{what}Default value expression of column `{column.name}` has a reference to another "
            "column. Default expressions referencing other columns are not supported."
        )
    _analyse(catalogue, table, column.default, column.value_type, what)


def _check_on_update(table: Table, column: ColumnDefinition) -> None:
    """Refuse ON UPDATE but for a commit timestamp outside of the key that is its default too."""
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
    """Refuse generated columns in a circle, and what a stored or a key one may not be made of."""
    generated = [column for column in table.columns if column.generated is not None]
    used = {column.name.lower(): used_columns(catalogue, table, column) for column in generated}
    for column in generated:
        if column.default is not None:
            raise failed_precondition(
                f"Column {table.name}.{column.name} with a DEFAULT value cannot be a generated "
                "column and vice versa."
            )
        what = f"Error parsing the definition of generated column `{table.name}`.`{column.name}`: "
        _analyse(catalogue, table, f"({column.generated})", column.value_type, what)
        if not column.is_stored and column.name in table.key_names:
            raise invalid_argument(
                f"Generated column `{table.name}`.`{column.name}` must be STORED to be part of the "
                "primary key."
            )
        for other in (table.column(one) for one in sorted(used[column.name.lower()])):
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
    """The columns that a generated column is made of, in lower case."""
    names = column_names(column.generated or "", catalogue.dialect, table=table.name)
    return names & table.by_name.keys()


def with_check(catalogue: Catalogue, table: Table, check: Check) -> Table:
    """A table with one more check, under a free name."""
    schema = table.name.rpartition(".")[0]
    if check.is_named:
        catalogue.check_free_name(f"{schema}.{check.name}" if schema else check.name)
        if check.name.lower() in (one.name.lower() for one in table.checks):
            raise failed_precondition(f"Duplicate name in schema: {check.name}.")
    else:
        # A name such as CK_T_0123456789ABCDEF_1, as the service makes one up.
        digest = hashlib.sha256(f"CK/{table.name}/".encode()).hexdigest()[:16].upper()
        own = table.name.rpartition(".")[2]
        check = replace(check, name=f"CK_{own}_{digest}_{len(table.checks) + 1}")
    what = (
        f"Error parsing expression '{check.expression}' from check constraint "
        f"'{check.name if check.is_named else '<unnamed>'}' in table '{table.name}': "
    )
    _analyse(catalogue, table, check.expression, ValueType("BOOL"), what)
    changed = replace(table, checks=(*table.checks, check))
    check_without_commit_timestamps(catalogue, changed)
    return changed


def check_without_commit_timestamps(catalogue: Catalogue, table: Table) -> None:
    """Refuse a check over a column that may hold the time of a commit that is yet to come."""
    for check in table.checks:
        names = column_names(check.expression, catalogue.dialect, table=table.name)
        for column in table.columns:
            if column.commit_timestamp and column.name.lower() in names:
                raise invalid_argument(
                    f"Column `{column.name}` has option commit_timestamp, which is not supported "
                    "in check constraint."
                )


def _analyse(
    catalogue: Catalogue, table: Table, expression: str, result: ValueType, what: str
) -> None:
    if catalogue.analysis is None:
        return
    try:
        found = catalogue.analysis.mismatch(expression, table=table, result=result)
    except SpannerError as error:
        if error.code is Code.UNIMPLEMENTED:
            raise
        raise invalid_argument(what + error.message) from error
    if found is not None:
        raise invalid_argument(
            f"{what}Expected type {result.base_name()}; found {found} [at 1:1]\n{expression}\n^"
        )
