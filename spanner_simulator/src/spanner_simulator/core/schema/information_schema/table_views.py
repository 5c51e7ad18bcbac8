"""Schemas, tables, columns and views, INFORMATION_SCHEMA's own among them."""

from __future__ import annotations

from collections.abc import Iterator

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.expression_names import column_names
from spanner_simulator.core.schema.information_schema.layout import (
    Column,
    columns_of,
    view_names,
)
from spanner_simulator.core.schema.information_schema.rows import (
    ViewRow,
    located,
    option,
    split,
)
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import ColumnDefinition
from spanner_simulator.core.values import ValueType

_OWN = "INFORMATION_SCHEMA"
_PRECISIONS: dict[str, tuple[int | None, int, int | None]] = {
    "bigint": (64, 2, 0),
    "real": (24, 2, None),
    "double precision": (53, 2, None),
    "numeric": (None, 10, None),
}


def schemata(catalogue: Catalogue) -> Iterator[ViewRow]:
    """The default schema, the system's and those that DDL made."""
    system = [_OWN, "SPANNER_SYS"]
    if catalogue.dialect == "POSTGRESQL":
        system.append("pg_catalog")
    for name in ("", *system, *catalogue.schemas.values()):
        yield {
            "catalog_name": "",
            "schema_name": name,
            "effective_timestamp": 0,
            "schema_owner": "",
        }


def tables(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Tables, then views."""
    for table in catalogue.tables.values():
        row = located(table.name) | {"table_type": "BASE TABLE", "spanner_state": "COMMITTED"}
        if table.interleave is not None:
            row["parent_table_name"] = split(table.interleave.parent)[1]
            row["interleave_type"] = "IN PARENT" if table.interleave.in_parent else "IN"
            if table.interleave.in_parent:
                row["on_delete_action"] = table.interleave.on_delete
        if table.row_deletion is not None:
            row["row_deletion_policy_expression"] = _policy(catalogue, table)
        yield row
    for view in catalogue.views.values():
        yield located(view.name) | {"table_type": "VIEW"}
    for name in view_names(catalogue.dialect):
        yield located(f"{_OWN}.{_own_name(catalogue, name)}") | {"table_type": "VIEW"}


def _own_name(catalogue: Catalogue, name: str) -> str:
    return name.upper() if catalogue.dialect == "GOOGLE_STANDARD_SQL" else name


def _policy(catalogue: Catalogue, table: Table) -> str | None:
    policy = table.row_deletion
    if policy is None:
        return None
    if catalogue.dialect == "POSTGRESQL":
        return f"INTERVAL '{policy.older_than_days} DAYS' ON {policy.column}"
    return f"OLDER_THAN({policy.column}, INTERVAL {policy.older_than_days} DAY)"


def spanner_type(catalogue: Catalogue, column: ColumnDefinition) -> str:
    """A column's type as the dialect writes it."""
    if column.commit_timestamp and catalogue.dialect == "POSTGRESQL":
        return "spanner.commit_timestamp"
    return column.value_type.ddl(catalogue.dialect)


def columns(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Columns of tables, of views (if an analyser knows them), and of INFORMATION_SCHEMA."""
    for table in catalogue.tables.values():
        for column in table.columns:
            yield located(table.name) | _column(catalogue, table, column)
    for made in catalogue.views.values():
        for position, (name, value_type) in enumerate(made.columns, start=1):
            yield located(made.name) | _view_column(catalogue, name, position, value_type)
    for view in view_names(catalogue.dialect):
        own = columns_of(catalogue.dialect, view) or ()
        for position, one in enumerate(own, start=1):
            yield located(f"{_OWN}.{_own_name(catalogue, view)}") | {
                "column_name": _own_name(catalogue, one.name),
                "ordinal_position": position,
                "is_nullable": _yes(one.is_nullable),
                "data_type": _own_type(catalogue, one),
                "spanner_type": _own_type(catalogue, one),
                "is_generated": "NEVER",
                "is_identity": "NO",
            }


def _own_type(catalogue: Catalogue, column: Column) -> str:
    if catalogue.dialect == "POSTGRESQL":
        return "bigint" if column.kind == "INT64" else "character varying"
    return "STRING(MAX)" if column.kind == "TEXT" else column.kind


def _column(catalogue: Catalogue, table: Table, column: ColumnDefinition) -> ViewRow:
    is_generated = column.generated is not None
    row: ViewRow = {
        "column_name": column.name,
        "ordinal_position": table.ordinal_of[column.name],
        "column_default": column.default,
        "is_nullable": _yes(column.is_nullable),
        "spanner_type": spanner_type(catalogue, column),
        "is_generated": "ALWAYS" if is_generated else "NEVER",
        "generation_expression": column.generated,
        "is_stored": _yes(column.is_stored) if is_generated else None,
        "spanner_state": "COMMITTED",
        "is_identity": "NO",
    }
    if catalogue.dialect == "POSTGRESQL":
        row |= _data_type(column.value_type)
        if column.commit_timestamp:
            row["data_type"] = spanner_type(catalogue, column)
    return row


def _view_column(catalogue: Catalogue, name: str, position: int, value_type: ValueType) -> ViewRow:
    row: ViewRow = {
        "column_name": name,
        "ordinal_position": position,
        "is_nullable": "YES",
        "spanner_type": value_type.ddl(catalogue.dialect),
        "is_generated": "NEVER",
        "spanner_state": "COMMITTED",
        "is_identity": "NO",
    }
    return row | _data_type(value_type) if catalogue.dialect == "POSTGRESQL" else row


def _data_type(value_type: ValueType) -> ViewRow:
    """PostgreSQL's standard columns for a type, which leave the length out of it."""
    name = "ARRAY" if value_type.element else value_type.ddl("POSTGRESQL").partition("(")[0]
    row: ViewRow = {"data_type": name, "character_maximum_length": value_type.length}
    if name in _PRECISIONS:
        precision, radix, scale = _PRECISIONS[name]
        row["numeric_precision"] = precision
        row["numeric_precision_radix"] = radix
        row["numeric_scale"] = scale
    return row


def _yes(value: bool) -> str:  # noqa: FBT001  # a one-word rendering
    return "YES" if value else "NO"


def column_options(catalogue: Catalogue) -> Iterator[ViewRow]:
    """allow_commit_timestamp; in PostgreSQL that is a type and no option."""
    if catalogue.dialect == "POSTGRESQL":
        return
    for table in catalogue.tables.values():
        for column in table.columns:
            if column.commit_timestamp:
                yield (
                    located(table.name)
                    | {"column_name": column.name}
                    | option("allow_commit_timestamp", value=True)
                )


def column_column_usage(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Which generated column is made of which columns."""
    for table in catalogue.tables.values():
        for column in table.columns:
            expression = column.generated or ""
            for name in sorted(column_names(expression, catalogue.dialect, table=table.name)):
                if name in table.by_name:
                    yield located(table.name) | {
                        "column_name": table.column(name).name,
                        "dependent_column": column.name,
                    }


def views(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Views that DDL made."""
    for view in catalogue.views.values():
        yield located(view.name) | {
            "view_definition": view.query,
            "security_type": view.security,
        }
