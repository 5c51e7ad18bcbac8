"""The Avro types of columns, as our own envelopes carry them, and namespaces of records.

`docs/protocol.md`, 3.2.
"""

from __future__ import annotations

import re
from typing import Any

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A name that Avro accepts."""

_NOT_IN_NAMESPACE = re.compile(r"[^A-Za-z0-9_]")

_AVRO_TYPES: dict[str, Any] = {
    "INT64": "long",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "BOOL": "boolean",
    "STRING": "string",
    "BYTES": "bytes",
    "PROTO": "bytes",
    "ENUM": "long",
    "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    "DATE": {"type": "int", "logicalType": "date"},
    "JSON": "string",
    "UUID": {"type": "string", "logicalType": "uuid"},
    "INTERVAL": "string",
}

_TIMESTAMP_TYPES: dict[TimestampForm, dict[str, Any]] = {
    TimestampForm.MICROS: {"type": "long", "logicalType": "timestamp-micros"},
    # Not one of Avro's logical types: a reader that does not know it reads a string.
    TimestampForm.STRING: {"type": "string", "logicalType": "timestamp-rfc3339"},
}


def avro_type(column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS) -> Any:
    """Return the Avro type of a column's values, without the null branch.

    Raises SchemaError for a type that Tidegate does not support.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return {"type": "array", "items": ["null", avro_type(column_type.element, timestamps)]}
    if column_type.code == "TIMESTAMP":
        return _TIMESTAMP_TYPES[timestamps]
    if column_type.code == "NUMERIC" and column_type.annotation == "PG_NUMERIC":
        return "string"
    try:
        return _AVRO_TYPES[column_type.code]
    except KeyError as error:
        raise SchemaError("unsupported column type", type=column_type.code) from error


def is_carried(column_type: ColumnType) -> bool:
    """Whether values of a type have an Avro type."""
    try:
        avro_type(column_type)
    except SchemaError:
        return False
    return True


def differ_in_timestamps(schema: Any, other_schema: Any) -> bool:
    """Whether two Avro types, or two lists of fields, differ only in their `TimestampForm`."""
    return bool(schema != other_schema and _with_micros(schema) == _with_micros(other_schema))


def _with_micros(schema: Any) -> Any:
    if schema == _TIMESTAMP_TYPES[TimestampForm.STRING]:
        return _TIMESTAMP_TYPES[TimestampForm.MICROS]
    if isinstance(schema, dict):
        return {name: _with_micros(part) for name, part in schema.items()}
    return [_with_micros(part) for part in schema] if isinstance(schema, list) else schema


def namespace_of(name: str) -> str:
    """Return a topic's or table's Avro namespace; each part begins with a letter or underscore."""
    parts = (_NOT_IN_NAMESPACE.sub("_", part) for part in name.split("."))
    return ".".join(part if AVRO_NAME.fullmatch(part) else f"_{part}" for part in parts)
