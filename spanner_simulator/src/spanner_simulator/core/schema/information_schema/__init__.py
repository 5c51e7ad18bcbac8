"""INFORMATION_SCHEMA: the catalogue as tables of rows, in the form of either dialect.

`rows` makes the rows of each view, always in GoogleSQL's form; only this module knows how a dialect
writes them (upper case or lower, '' or 'public', booleans or 'YES' and 'NO').
"""

from __future__ import annotations

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.information_schema.layout import Column, columns_of, view_names
from spanner_simulator.core.schema.information_schema.rows import ROWS, ViewRow
from spanner_simulator.core.values import Dialect, Value, ValueType
from spanner_simulator.errors import invalid_argument

_TYPES = {"TEXT": ValueType("STRING"), "INT64": ValueType("INT64"), "BOOL": ValueType("BOOL")}
_OPTION_TYPES = {"STRING": "character varying", "BOOL": "boolean", "INT64": "bigint"}
_POSTGRES_SCHEMAS = {
    "": "public",
    "INFORMATION_SCHEMA": "information_schema",
    "SPANNER_SYS": "spanner_sys",
}


def information_schema_names(dialect: Dialect) -> tuple[str, ...]:
    """All views, as written in the dialect."""
    names = view_names(dialect)
    return tuple(name.upper() for name in names) if dialect == "GOOGLE_STANDARD_SQL" else names


def information_schema_table(
    catalogue: Catalogue, name: str
) -> tuple[list[tuple[str, ValueType]], list[dict[str, Value]]]:
    """Columns and rows of a view; INVALID_ARGUMENT for an unknown one."""
    is_google = catalogue.dialect == "GOOGLE_STANDARD_SQL"
    columns = columns_of(catalogue.dialect, name)
    if columns is None:
        shown = "INFORMATION_SCHEMA" if is_google else "information_schema"
        raise invalid_argument(f"Table not found: {shown}.{name}")
    make = ROWS.get(name.lower())
    rows = () if make is None else make(catalogue)
    if is_google:
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
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, str) and column.name.endswith(("_schema", "schema_name")):
        return _POSTGRES_SCHEMAS.get(value, value)
    if isinstance(value, str) and column.name == "option_type":
        return _OPTION_TYPES[value]
    return value
