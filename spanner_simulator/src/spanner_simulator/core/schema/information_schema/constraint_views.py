"""Constraints: primary keys, NOT NULL, checks, foreign keys, and what they are unique by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.definitions import ForeignKey
from spanner_simulator.core.schema.expression_names import column_names
from spanner_simulator.core.schema.foreign_key_indexes import (
    managed_indexes,
    unique_constraint,
)
from spanner_simulator.core.schema.information_schema.rows import ViewRow, located, split
from spanner_simulator.core.schema.schema_objects import Table


@dataclass(frozen=True, slots=True)
class _Constraint:
    """One constraint; `uses` are the columns that it looks at, of the table `used_table`."""

    name: str
    table: str
    kind: Literal["PRIMARY KEY", "UNIQUE", "CHECK", "FOREIGN KEY"]
    used_table: str
    uses: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    clause: str = ""
    foreign_key: ForeignKey | None = field(default=None)

    def row(self) -> ViewRow:
        schema, _ = split(self.table)
        name: ViewRow = {
            "constraint_catalog": "",
            "constraint_schema": schema,
            "constraint_name": self.name,
        }
        return name


def _constraints(catalogue: Catalogue) -> Iterator[_Constraint]:
    for table in catalogue.tables.values():
        yield from _of_table(catalogue, table)
    for managed in managed_indexes(catalogue):
        index = managed.index
        if index.is_unique:
            columns = tuple(part.name for part in index.key)
            yield _Constraint(index.name, index.table, "UNIQUE", index.table, columns, columns)


def _of_table(catalogue: Catalogue, table: Table) -> Iterator[_Constraint]:
    own = split(table.name)[1]
    yield _Constraint(
        f"PK_{own}", table.name, "PRIMARY KEY", table.name, table.key_names, table.key_names
    )
    for column in table.columns:
        if not column.is_nullable:
            yield _Constraint(
                f"CK_IS_NOT_NULL_{own}_{column.name}",
                table.name,
                "CHECK",
                table.name,
                (column.name,),
                clause=f"{column.name} IS NOT NULL",
            )
    for check in table.checks:
        names = column_names(check.expression, catalogue.dialect, table=table.name)
        uses = tuple(column.name for column in table.columns if column.name.lower() in names)
        yield _Constraint(
            check.name, table.name, "CHECK", table.name, uses, clause=check.expression
        )
    for key in table.foreign_keys:
        yield _Constraint(
            key.name,
            table.name,
            "FOREIGN KEY",
            key.referenced_table,
            key.referenced_columns,
            key.columns,
            foreign_key=key,
        )


def table_constraints(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Every constraint with its table."""
    for one in _constraints(catalogue):
        is_enforced = one.foreign_key is None or one.foreign_key.is_enforced
        yield (
            one.row()
            | located(one.table)
            | {
                "constraint_type": one.kind,
                "is_deferrable": "NO",
                "initially_deferred": "NO",
                "enforced": "YES" if is_enforced else "NO",
            }
        )


def key_column_usage(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Columns of primary, unique and foreign keys with their positions."""
    for one in _constraints(catalogue):
        for position, name in enumerate(one.key, start=1):
            yield (
                one.row()
                | located(one.table)
                | {
                    "column_name": name,
                    "ordinal_position": position,
                    "position_in_unique_constraint": (
                        None if one.foreign_key is None else _position(catalogue, one, position)
                    ),
                }
            )


def _position(catalogue: Catalogue, one: _Constraint, position: int) -> int:
    """The place of the referenced column in what it is unique by."""
    referenced = catalogue.table(one.used_table)
    name = one.uses[position - 1]
    if set(one.uses) == set(referenced.key_names):
        return referenced.key_names.index(name) + 1
    return position


def constraint_table_usage(catalogue: Catalogue) -> Iterator[ViewRow]:
    """The table that a constraint looks at; for a foreign key, the referenced one.

    PostgreSQL's standard leaves checks out.
    """
    for one in _constraints(catalogue):
        if catalogue.dialect == "POSTGRESQL" and one.kind == "CHECK":
            continue
        yield located(one.used_table) | one.row()


def constraint_column_usage(catalogue: Catalogue) -> Iterator[ViewRow]:
    """The columns that a constraint looks at."""
    for one in _constraints(catalogue):
        for name in one.uses:
            yield located(one.used_table) | {"column_name": name} | one.row()


def check_constraints(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Checks, and NOT NULL as one."""
    for one in _constraints(catalogue):
        if one.kind == "CHECK":
            yield one.row() | {"check_clause": one.clause, "spanner_state": "COMMITTED"}


def referential_constraints(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Foreign keys with what they refer to."""
    is_google = catalogue.dialect == "GOOGLE_STANDARD_SQL"
    for one in _constraints(catalogue):
        if one.foreign_key is None:
            continue
        key = one.foreign_key
        yield one.row() | {
            "unique_constraint_catalog": "",
            "unique_constraint_schema": split(key.referenced_table)[0],
            "unique_constraint_name": (
                unique_constraint(catalogue, key) if key.is_enforced else None
            ),
            "match_option": "SIMPLE" if is_google else "NONE",
            "update_rule": "NO ACTION",
            "delete_rule": key.on_delete,
            "spanner_state": "COMMITTED",
        }
