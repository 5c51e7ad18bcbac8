"""Avro schemas of a data topic's keys and values, made from a table's columns.

The key is a record of the primary key columns in primary key order; it never changes while an
epoch lasts, or keys would move between topic partitions.  The value is the change record of
`docs/protocol.md`: what happened, the row after and before, which columns were captured, and
Spanner's coordinates.  Every column is nullable and defaults to null, so that an added column is a
BACKWARD-compatible version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidegate.schemas.errors import SchemaError

if TYPE_CHECKING:
    from tidegate.schemas.tables import ColumnType, TableSchema

__all__ = ["avro_type", "key_schema", "value_schema"]

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
    "JSON": "string",
    "UUID": {"type": "string", "logicalType": "uuid"},
    "INTERVAL": "string",
}

_SOURCE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "doc": "Every field of Spanner's data change record that is not a value.",
    "fields": [
        {
            "name": "commit_timestamp",
            "type": {"type": "long", "logicalType": "timestamp-micros"},
        },
        {"name": "server_transaction_id", "type": "string"},
        {"name": "record_sequence", "type": "string"},
        {"name": "mod_number", "type": "int"},
        {"name": "is_last_record_in_transaction_in_partition", "type": "boolean"},
        {"name": "number_of_records_in_transaction", "type": "long"},
        {"name": "number_of_partitions_in_transaction", "type": "long"},
        {"name": "transaction_tag", "type": "string"},
        {"name": "is_system_transaction", "type": "boolean"},
        {"name": "value_capture_type", "type": "string"},
        {"name": "change_stream", "type": "string"},
        {"name": "partition_token", "type": "string"},
    ],
}


def avro_type(column_type: ColumnType) -> Any:
    """Return the Avro type that holds a column's values (without the null branch).

    Raises SchemaError for a type that has no place in the contract.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return {"type": "array", "items": ["null", avro_type(column_type.element)]}
    if column_type.code == "NUMERIC" and column_type.annotation == "PG_NUMERIC":
        return "string"
    try:
        return _AVRO_TYPES[column_type.code]
    except KeyError as error:
        message = "a column type that Tidegate cannot carry"
        raise SchemaError(message, code=column_type.code) from error


def key_schema(topic: str, table: TableSchema) -> dict[str, Any]:
    """Return the schema of a topic's keys; raises SchemaError for a table without a primary key."""
    if not table.key_columns:
        message = "a watched table has no primary key"
        raise SchemaError(message, table=table.name)
    return {
        "type": "record",
        "name": "Key",
        "namespace": _namespace(topic),
        "fields": [
            {"name": _field(c.name, table), "type": ["null", avro_type(c.type)]}
            for c in table.key_columns
        ],
    }


def value_schema(topic: str, table: TableSchema) -> dict[str, Any]:
    """Return the schema of a topic's values: the change record."""
    row = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": _field(c.name, table), "type": ["null", avro_type(c.type)], "default": None}
            for c in table.columns
        ],
    }
    names = {"type": "array", "items": "string"}
    mod_types = {"type": "enum", "name": "ModType", "symbols": ["INSERT", "UPDATE", "DELETE"]}
    return {
        "type": "record",
        "name": "Change",
        "namespace": _namespace(topic),
        "fields": [
            {"name": "mod_type", "type": mod_types},
            {"name": "new_values", "type": ["null", row], "default": None},
            {"name": "old_values", "type": ["null", "Row"], "default": None},
            {"name": "new_columns", "type": ["null", names], "default": None},
            {"name": "old_columns", "type": ["null", names], "default": None},
            {"name": "source", "type": _SOURCE_SCHEMA},
        ],
    }


def _namespace(topic: str) -> str:
    """Return an Avro namespace that tells topics apart; each part begins with a letter."""
    parts = (_NOT_IN_NAMESPACE.sub("_", part) for part in topic.split("."))
    return ".".join(part if _AVRO_NAME.fullmatch(part) else f"_{part}" for part in parts)


def _field(name: str, table: TableSchema) -> str:
    if not _AVRO_NAME.fullmatch(name):
        message = "a column's name is no Avro name"
        raise SchemaError(message, table=table.name, column=name)
    return name
