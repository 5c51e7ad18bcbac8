"""INFORMATION_SCHEMA: the catalogue as tables, with the columns that readers ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.values import Value, ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue

__all__ = ["information_schema_table"]

_Rows = list[list[Value]]
_TEXT, _INT64, _BOOL = ValueType("STRING"), ValueType("INT64"), ValueType("BOOL")
_TABLE = ("TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME")
_STREAM = ("CHANGE_STREAM_CATALOG", "CHANGE_STREAM_SCHEMA", "CHANGE_STREAM_NAME")


def information_schema_table(
    catalogue: Catalogue, name: str
) -> tuple[list[tuple[str, ValueType]], list[dict[str, Value]]]:
    """Columns and rows of a view; INVALID_ARGUMENT for an unknown one."""
    view = _VIEWS.get(name.lower())
    if view is None:
        raise SpannerError(Code.INVALID_ARGUMENT, f"Table not found: INFORMATION_SCHEMA.{name}")
    names, rows = view
    columns = [(column, _TYPES.get(column, _TEXT)) for column in names]
    return columns, [dict(zip(names, row, strict=True)) for row in rows(catalogue)]


def _tables(catalogue: Catalogue) -> _Rows:
    return [
        ["", "", table.name, "BASE TABLE", None, None, "COMMITTED"]
        for table in catalogue.tables.values()
    ]


def _columns(catalogue: Catalogue) -> _Rows:
    return [
        [
            *("", "", table.name),
            column.name,
            table.ordinal_of[column.name],
            None,
            "YES" if column.is_nullable else "NO",
            column.value_type.ddl(),
            "NEVER",
            None,
            "COMMITTED",
        ]
        for table in catalogue.tables.values()
        for column in table.columns
    ]


def _index_columns(catalogue: Catalogue) -> _Rows:
    return [
        [
            *("", "", table.name),
            "PRIMARY_KEY",
            "PRIMARY_KEY",
            part.name,
            position,
            "DESC" if part.descending else "ASC",
            "YES" if table.column(part.name).is_nullable else "NO",
            table.column(part.name).value_type.ddl(),
        ]
        for table in catalogue.tables.values()
        for position, part in enumerate(table.key, start=1)
    ]


def _indexes(catalogue: Catalogue) -> _Rows:
    return [
        ["", "", table.name, "PRIMARY_KEY", "PRIMARY_KEY", "", True, False, "READ_WRITE"]
        for table in catalogue.tables.values()
    ]


def _column_options(catalogue: Catalogue) -> _Rows:
    return [
        ["", "", table.name, column.name, "allow_commit_timestamp", "BOOL", "TRUE"]
        for table in catalogue.tables.values()
        for column in table.columns
        if column.commit_timestamp
    ]


def _change_streams(catalogue: Catalogue) -> _Rows:
    return [
        ["", "", stream.name, stream.watch is not None and stream.watch.everything]
        for stream in catalogue.streams.values()
    ]


def _change_stream_tables(catalogue: Catalogue) -> _Rows:
    return [
        ["", "", stream.name, "", "", catalogue.table(table).name, columns is None]
        for stream in catalogue.streams.values()
        if stream.watch is not None
        for table, columns in stream.watch.tables
    ]


def _change_stream_columns(catalogue: Catalogue) -> _Rows:
    return [
        ["", "", stream.name, "", "", catalogue.table(table).name, column]
        for stream in catalogue.streams.values()
        if stream.watch is not None
        for table, columns in stream.watch.tables
        for column in columns or ()
    ]


def _change_stream_options(catalogue: Catalogue) -> _Rows:
    return [
        ["", "", stream.name, name, "BOOL" if isinstance(value, bool) else "STRING", _text(value)]
        for stream in catalogue.streams.values()
        for name, value in stream.options
    ]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _database_options(_catalogue: Catalogue) -> _Rows:
    return [["", "", "database_dialect", "STRING", "GOOGLE_STANDARD_SQL"]]


def _routines(catalogue: Catalogue) -> _Rows:
    return [
        [*("", "", f"READ_{stream.name}"), *("", "", f"READ_{stream.name}"), "TABLE FUNCTION"]
        for stream in catalogue.streams.values()
    ]


_TYPES = {
    "ORDINAL_POSITION": _INT64,
    "ALL": _BOOL,
    "ALL_COLUMNS": _BOOL,
    "IS_UNIQUE": _BOOL,
    "IS_NULL_FILTERED": _BOOL,
}
_VIEWS: dict[str, tuple[tuple[str, ...], Callable[[Catalogue], _Rows]]] = {
    "tables": (
        (*_TABLE, "TABLE_TYPE", "PARENT_TABLE_NAME", "ON_DELETE_ACTION", "SPANNER_STATE"),
        _tables,
    ),
    "columns": (
        (
            *_TABLE,
            "COLUMN_NAME",
            "ORDINAL_POSITION",
            "COLUMN_DEFAULT",
            "IS_NULLABLE",
            "SPANNER_TYPE",
            "IS_GENERATED",
            "GENERATION_EXPRESSION",
            "SPANNER_STATE",
        ),
        _columns,
    ),
    "index_columns": (
        (
            *_TABLE,
            "INDEX_NAME",
            "INDEX_TYPE",
            "COLUMN_NAME",
            "ORDINAL_POSITION",
            "COLUMN_ORDERING",
            "IS_NULLABLE",
            "SPANNER_TYPE",
        ),
        _index_columns,
    ),
    "indexes": (
        (
            *_TABLE,
            "INDEX_NAME",
            "INDEX_TYPE",
            "PARENT_TABLE_NAME",
            "IS_UNIQUE",
            "IS_NULL_FILTERED",
            "INDEX_STATE",
        ),
        _indexes,
    ),
    "column_options": (
        (*_TABLE, "COLUMN_NAME", "OPTION_NAME", "OPTION_TYPE", "OPTION_VALUE"),
        _column_options,
    ),
    "change_streams": ((*_STREAM, "ALL"), _change_streams),
    "change_stream_tables": ((*_STREAM, *_TABLE, "ALL_COLUMNS"), _change_stream_tables),
    "change_stream_columns": ((*_STREAM, *_TABLE, "COLUMN_NAME"), _change_stream_columns),
    "change_stream_options": (
        (*_STREAM, "OPTION_NAME", "OPTION_TYPE", "OPTION_VALUE"),
        _change_stream_options,
    ),
    "database_options": (
        ("CATALOG_NAME", "SCHEMA_NAME", "OPTION_NAME", "OPTION_TYPE", "OPTION_VALUE"),
        _database_options,
    ),
    "routines": (
        (
            "SPECIFIC_CATALOG",
            "SPECIFIC_SCHEMA",
            "SPECIFIC_NAME",
            "ROUTINE_CATALOG",
            "ROUTINE_SCHEMA",
            "ROUTINE_NAME",
            "ROUTINE_TYPE",
        ),
        _routines,
    ),
}
