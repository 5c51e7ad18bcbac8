"""The schema of Debezium's envelope: the form in which its connector for Spanner registers it.

Names, order and types are those of Debezium 3.6 with an Avro converter
(`docs/protocol/envelopes.md`, 3.9).  `source` has two more fields at its end: the columns that a
change captured, since a null in a row does not say whether the column was NULL or absent.
"""

from __future__ import annotations

from typing import Any

from tidegate.schemas.avro_types import avro_type, namespace_of
from tidegate.schemas.tables import ColumnType

DEBEZIUM_NAME = "Envelope"
BEFORE = "before"
_TEXTS = frozenset({"STRING", "NUMERIC", "DATE", "TIMESTAMP", "JSON", "INTERVAL"})
_UUID = {"type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Uuid"}
_NAMES: dict[str, Any] = {"type": "array", "items": "string"}


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


DEBEZIUM_SOURCE: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "namespace": "com.google.spanner.connector",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {
            "name": "snapshot",
            "type": [
                {
                    "type": "string",
                    "connect.version": 1,
                    "connect.parameters": {
                        "allowed": "true,first,first_in_data_collection,last_in_data_collection,"
                        "last,false,incremental"
                    },
                    "connect.default": "false",
                    "connect.name": "io.debezium.data.Enum",
                },
                "null",
            ],
            "default": "false",
        },
        {"name": "db", "type": "string"},
        _optional("sequence", "string"),
        _optional("ts_us", "long"),
        _optional("ts_ns", "long"),
        {"name": "project_id", "type": "string"},
        {"name": "instance_id", "type": "string"},
        {"name": "database_id", "type": "string"},
        {"name": "change_stream_name", "type": "string"},
        {"name": "table", "type": "string"},
        _optional("server_transaction_id", "string"),
        _optional("low_watermark", "long"),
        _optional("read_at_timestamp", "long"),
        _optional("number_records_in_transaction", "long"),
        _optional("transaction_tag", "string"),
        _optional("system_transaction", "boolean"),
        _optional("value_capture_type", "string"),
        _optional("partition_token", "string"),
        _optional("mod_number", "int"),
        _optional("is_last_record_in_transaction_in_partition", "boolean"),
        _optional("number_of_partitions_in_transaction", "long"),
        _optional("before_columns", _NAMES),
        _optional("after_columns", _NAMES),
    ],
}
"""The record `source`, whose last two fields are not Debezium's."""

_TRANSACTION = {
    "type": "record",
    "name": "block",
    "namespace": "event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ],
    "connect.version": 1,
    "connect.name": "event.block",
}

DEBEZIUM_TAIL: tuple[dict[str, Any], ...] = (
    {"name": "source", "type": DEBEZIUM_SOURCE},
    {"name": "op", "type": "string"},
    _optional("ts_ms", "long"),
    _optional("ts_us", "long"),
    _optional("ts_ns", "long"),
    _optional("transaction", _TRANSACTION),
)
"""The fields after `before` and `after`."""


def debezium_fields(columns: list[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    """Return the fields of an envelope whose rows have these fields."""
    namespace = namespace_of(table)
    row = {"type": "record", "name": "Value", "namespace": namespace, "fields": columns}
    return [_optional(BEFORE, row), _optional("after", f"{namespace}.Value"), *DEBEZIUM_TAIL]


def is_text(column_type: ColumnType) -> bool:
    """Whether Debezium carries values of a type as the text in Spanner's record."""
    return column_type.code in _TEXTS


def debezium_type(column_type: ColumnType) -> Any:
    """Return the Avro type of a column, without the null branch.

    PROTO, ENUM and INTERVAL, which Debezium cannot carry, have the type of Tidegate's own envelope.
    Raises SchemaError for a type that Tidegate does not support.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return {"type": "array", "items": ["null", debezium_type(column_type.element)]}
    if column_type.code == "UUID":
        return _UUID
    return "string" if is_text(column_type) else avro_type(column_type)
