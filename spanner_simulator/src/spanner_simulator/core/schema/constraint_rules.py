"""Rules for foreign keys and checks. Whether the rows obey a new one is the caller's to see."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.definitions import Check, ForeignKey
from spanner_simulator.core.schema.expression_names import column_names
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.sql_rules import analyse_check
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def quoted_names(names: Iterable[str]) -> str:
    """Names in back-ticks, with commas."""
    return ", ".join(f"`{name}`" for name in names)


def foreign_keys_to(catalogue: Catalogue, table: Table) -> list[ForeignKey]:
    """Foreign keys that refer to a table, its own among them."""
    return [
        key
        for other in catalogue.tables.values()
        for key in other.foreign_keys
        if key.referenced_table.lower() == table.name.lower()
    ]


def check_unreferenced(catalogue: Catalogue, table: Table) -> None:
    """Refuse a row deletion policy where enforced foreign keys refer to the table."""
    blocking = [key.name for key in foreign_keys_to(catalogue, table) if key.is_enforced]
    if blocking:
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"Cannot add a row deletion policy to table `{table.name}`. It is referenced by one or "
            f"more foreign keys: {quoted_names(blocking)}.",
        )


def add_constraint(catalogue: Catalogue, statement: ddl.AddConstraint) -> None:
    """Add a foreign key or a check; whether the rows obey it is the caller's to see."""
    add_to_table(catalogue, catalogue.table(statement.table).name, statement.constraint)


def drop_constraint(catalogue: Catalogue, statement: ddl.DropConstraint) -> None:
    """Remove a foreign key or a check."""
    table = catalogue.table(statement.table)
    name = statement.name.lower()
    keys = tuple(key for key in table.foreign_keys if key.name.lower() != name)
    checks = tuple(check for check in table.checks if check.name.lower() != name)
    if len(keys) == len(table.foreign_keys) and len(checks) == len(table.checks):
        raise SpannerError(Code.NOT_FOUND, f"{statement.name} is not a constraint in {table.name}")
    catalogue.tables[table.name.lower()] = replace(table, foreign_keys=keys, checks=checks)


def add_to_table(catalogue: Catalogue, name: str, constraint: ForeignKey | Check) -> None:
    """Add a foreign key or a check to a table of the catalogue, under a free name."""
    table = catalogue.table(name)
    schema = table.name.rpartition(".")[0]
    if constraint.is_named:
        catalogue.check_free_name(f"{schema}.{constraint.name}" if schema else constraint.name)
    if isinstance(constraint, Check):
        constraint = replace(constraint, name=constraint.name or _free_name(table, "CK", ""))
        analyse_check(catalogue, table, constraint, is_true=ValueType("BOOL"))
        check_without_commit_timestamps(catalogue, table, constraint)
        changed = replace(table, checks=(*table.checks, constraint))
    else:
        other = catalogue.table(constraint.referenced_table)
        made_up = _free_name(table, "FK", other.name)
        constraint = _checked_foreign_key(
            catalogue, table, replace(constraint, name=constraint.name or made_up)
        )
        changed = replace(table, foreign_keys=(*table.foreign_keys, constraint))
    catalogue.tables[table.name.lower()] = changed
    if isinstance(constraint, ForeignKey) and constraint.is_enforced:
        referenced = catalogue.table(constraint.referenced_table)
        if referenced.row_deletion is not None:
            check_unreferenced(catalogue, referenced)


def check_without_commit_timestamps(catalogue: Catalogue, table: Table, check: Check) -> None:
    """Refuse a check over a column that may hold the time of a commit that is yet to come."""
    names = column_names(check.expression, catalogue.dialect, table=table.name)
    for column in table.columns:
        if column.commit_timestamp and column.name.lower() in names:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                f"Column `{column.name}` has option commit_timestamp, which is not supported in "
                "check constraint.",
            )


def _free_name(table: Table, kind: str, other: str) -> str:
    """A name such as FK_T_U_0123456789ABCDEF_1, the next one that the table has free."""
    names = [name.rpartition(".")[2] for name in (table.name, other) if name]
    digest = hashlib.sha256(f"{kind}/{table.name}/{other}".encode()).hexdigest()[:16].upper()
    taken = {key.name for key in table.foreign_keys} | {check.name for check in table.checks}
    number = 1
    while True:
        name = "_".join((kind, *names, digest, str(number)))
        if name not in taken:
            return name
        number += 1


def _checked_foreign_key(catalogue: Catalogue, table: Table, key: ForeignKey) -> ForeignKey:
    """A foreign key with its names as the tables write them, or a refusal."""
    if key.referenced_table.lower() == table.name.lower():
        other = table
    else:
        other = catalogue.table(key.referenced_table)
    if not key.referenced_columns:
        raise _refused("At least one referenced column is required in foreign key.")
    if len(key.columns) != len(key.referenced_columns):
        raise _refused(
            f"The number of columns are different for table `{table.name}` and table "
            f"`{other.name}` in foreign key `{key.name}`."
        )
    ours = _foreign_key_columns(table, key.columns, key)
    theirs = _foreign_key_columns(other, key.referenced_columns, key)
    for one, two in zip(ours, theirs, strict=True):
        if replace(one.value_type, length=None) != replace(two.value_type, length=None):
            raise _refused(
                f"The column types are different for column `{one.name}` of table `{table.name}` "
                f"and column `{two.name}` of table `{other.name}` in foreign key `{key.name}`."
            )
    return replace(
        key,
        columns=tuple(column.name for column in ours),
        referenced_table=other.name,
        referenced_columns=tuple(column.name for column in theirs),
    )


def _foreign_key_columns(
    table: Table, names: tuple[str, ...], key: ForeignKey
) -> list[ddl.ColumnDefinition]:
    found: list[ddl.ColumnDefinition] = []
    for name in names:
        column = table.by_name.get(name.lower())
        if column is None:
            raise _refused(
                f"Column `{name}` not found for table `{table.name}` in foreign key `{key.name}`."
            )
        if column in found:
            raise _refused(
                f"Column `{column.name}` used more than once for table `{table.name}` in foreign "
                f"key `{key.name}`."
            )
        if not column.value_type.is_key_type:
            raise _refused(
                f"Column `{column.name}` for foreign key `{key.name}` on table `{table.name}` has "
                "an unsupported type."
            )
        if column.generated is not None and not column.is_stored:
            raise _refused(
                f"Column `{column.name}` for foreign key `{key.name}` on table `{table.name}` is a "
                "generated column that is not stored."
            )
        found.append(column)
    return found
