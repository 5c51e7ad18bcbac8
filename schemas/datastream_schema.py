"""The schema of an event of Google's Datastream, with source metadata for Spanner.

Names, order and types are those of files that Datastream writes, and of its documentation; the
metadata for Spanner is modelled on its tables for other sources (`docs/protocol.md`, 3.10).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

DATASTREAM_NAME = "DatastreamEvent"
PAYLOAD = "payload"
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_NAMES = {"type": "array", "items": "string"}

_METADATA: dict[str, Any] = {
    "type": "record",
    "name": "source_metadata",
    "fields": [
        {"name": "database", "type": "string"},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "primary_keys", "type": _NAMES},
        {"name": "is_deleted", "type": "boolean"},
        {"name": "change_type", "type": "string"},
        {"name": "tx_id", "type": "string"},
        {"name": "record_sequence", "type": "string"},
        {"name": "mod_number", "type": "long"},
        {"name": "commit_timestamp", "type": _MICROS},
        {"name": "is_last_record_in_transaction_in_partition", "type": "boolean"},
        {"name": "number_of_records_in_transaction", "type": "long"},
        {"name": "number_of_partitions_in_transaction", "type": "long"},
        {"name": "transaction_tag", "type": "string"},
        {"name": "is_system_transaction", "type": "boolean"},
        {"name": "value_capture_type", "type": "string"},
        {"name": "captured_columns", "type": _NAMES},
    ],
}

DATASTREAM_HEAD: tuple[dict[str, Any], ...] = (
    {"name": "uuid", "type": "string"},
    {"name": "read_timestamp", "type": _MILLIS},
    {"name": "source_timestamp", "type": _MILLIS},
    {"name": "object", "type": "string"},
    {"name": "read_method", "type": "string"},
    {"name": "stream_name", "type": "string"},
    {"name": "schema_key", "type": "string"},
    {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
    {"name": "source_metadata", "type": _METADATA},
)
"""The fields before the payload, in the order of Datastream's files."""


def datastream_fields(columns: list[dict[str, Any]], _table: str) -> list[dict[str, Any]]:
    """Return the fields of an event whose payload has these fields."""
    payload = {"type": "record", "name": PAYLOAD, "fields": columns}
    return [*DATASTREAM_HEAD, {"name": PAYLOAD, "type": payload}]


def datastream_type(column_type: ColumnType, timestamps: TimestampForm) -> Any:
    """Return the unified type of a column in Avro, without the null branch.

    Written as in our own envelope: the types differ in what they are called.  Raises SchemaError
    for a type that Tidegate does not support.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return {
            "type": "array",
            "items": ["null", datastream_type(column_type.element, timestamps)],
        }
    if column_type.code == "JSON":
        return {"type": "string", "logicalType": "json"}
    if column_type.code == "NUMERIC" and column_type.annotation == "PG_NUMERIC":
        return {"type": "string", "logicalType": "number"}
    return avro_type(column_type, timestamps)


def payload_key(fields: Iterable[Mapping[str, Any]]) -> str:
    """Return what `schema_key` is for a payload with these fields: the same for the same fields.

    40 hexadecimal digits, as Datastream's own.
    """
    text = json.dumps(list(fields), sort_keys=True, separators=(",", ":"))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
