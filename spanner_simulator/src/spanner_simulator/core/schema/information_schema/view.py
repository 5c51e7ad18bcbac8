"""One view of INFORMATION_SCHEMA: its columns, and its rows in the words of the dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.information_schema import (
    constraint_views,
    index_views,
    role_views,
    stream_views,
    table_views,
)
from spanner_simulator.core.schema.information_schema.layout import (
    Column,
    columns_of,
    view_names,
)
from spanner_simulator.core.schema.information_schema.rows import ViewRow
from spanner_simulator.core.values import Dialect, Value, ValueType
from spanner_simulator.errors import Code, SpannerError

_TYPES = {"TEXT": ValueType("STRING"), "INT64": ValueType("INT64"), "BOOL": ValueType("BOOL")}
_OPTION_TYPES = {"STRING": "character varying", "BOOL": "boolean", "INT64": "bigint"}
_EMPTY = ("sequences", "sequence_options", "spanner_statistics")


def _nothing(_catalogue: Catalogue) -> tuple[ViewRow, ...]:
    return ()


def _catalog_name(_catalogue: Catalogue) -> tuple[ViewRow, ...]:
    return ({"catalog_name": ""},)


_ROWS: dict[str, Callable[[Catalogue], Iterable[ViewRow]]] = {
    "change_streams": stream_views.change_streams,
    "change_stream_tables": stream_views.change_stream_tables,
    "change_stream_columns": stream_views.change_stream_columns,
    "change_stream_options": stream_views.change_stream_options,
    "change_stream_privileges": role_views.change_stream_privileges,
    "check_constraints": constraint_views.check_constraints,
    "column_column_usage": table_views.column_column_usage,
    "column_options": table_views.column_options,
    "column_privileges": role_views.column_privileges,
    "columns": table_views.columns,
    "constraint_column_usage": constraint_views.constraint_column_usage,
    "constraint_table_usage": constraint_views.constraint_table_usage,
    "database_options": role_views.database_options,
    "enabled_roles": role_views.roles,
    "index_columns": index_views.index_columns,
    "indexes": index_views.indexes,
    "information_schema_catalog_name": _catalog_name,
    "key_column_usage": constraint_views.key_column_usage,
    "parameters": stream_views.parameters,
    "referential_constraints": constraint_views.referential_constraints,
    "role_change_stream_grants": role_views.change_stream_privileges,
    "role_grantees": role_views.role_grantees,
    "role_routine_grants": role_views.routine_privileges,
    "role_table_grants": role_views.table_privileges,
    "roles": role_views.roles,
    "routine_privileges": role_views.routine_privileges,
    "routines": stream_views.routines,
    "schemata": table_views.schemata,
    "table_constraints": constraint_views.table_constraints,
    "table_privileges": role_views.table_privileges,
    "tables": table_views.tables,
    "views": table_views.views,
    **dict.fromkeys(_EMPTY, _nothing),
}


def information_schema_names(dialect: Dialect) -> tuple[str, ...]:
    """All views, as the dialect writes their names."""
    names = view_names(dialect)
    return tuple(name.upper() for name in names) if dialect == "GOOGLE_STANDARD_SQL" else names


def information_schema_table(
    catalogue: Catalogue, name: str
) -> tuple[list[tuple[str, ValueType]], list[dict[str, Value]]]:
    """Columns and rows of a view; INVALID_ARGUMENT for an unknown one."""
    dialect = catalogue.dialect
    columns = columns_of(dialect, name)
    if columns is None:
        shown = "INFORMATION_SCHEMA" if dialect == "GOOGLE_STANDARD_SQL" else "information_schema"
        raise SpannerError(Code.INVALID_ARGUMENT, f"Table not found: {shown}.{name}")
    rows = _ROWS[name.lower()](catalogue)
    if dialect == "GOOGLE_STANDARD_SQL":
        return (
            [(column.name.upper(), _TYPES[column.kind]) for column in columns],
            [{column.name.upper(): row.get(column.name) for column in columns} for row in rows],
        )
    return (
        [
            (column.name, _TYPES["INT64" if column.kind == "INT64" else "TEXT"])
            for column in columns
        ],
        [{column.name: _postgres_value(column, row) for column in columns} for row in rows],
    )


def _postgres_value(column: Column, row: ViewRow) -> Value:
    value = row.get(column.name)
    if value is None:
        return None
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if column.name.endswith("_schema") or column.name == "schema_name":
        known = {"": "public", "INFORMATION_SCHEMA": "information_schema"}
        return known.get(str(value), str(value).replace("SPANNER_SYS", "spanner_sys"))
    if column.name == "option_type":
        return _OPTION_TYPES.get(str(value), value)
    return value
