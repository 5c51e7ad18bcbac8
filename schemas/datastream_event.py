"""Events of Google's Datastream with source metadata for Spanner: their schema and their metadata.

Names, order and types are those of files that Datastream writes, and of its documentation; the
metadata for Spanner follows its tables for other sources (`docs/protocol/envelopes.md`, 3.10).
Messages and files both take the metadata from this module, so a change is the same event in both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, US_PER_MS, format_rfc3339
from tidegate.schemas.order_key import sequence_pair
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

    Values are written as in Tidegate's own envelope; only the names of the types differ.  Raises
    SchemaError for a type that Tidegate does not support.
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
    """Return the `schema_key` of a payload with these fields: equal for equal fields.

    40 hexadecimal digits, as in Datastream's files.
    """
    text = json.dumps(list(fields), sort_keys=True, separators=(",", ":"))
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


READ_METHOD = "spanner-cdc"

_MS_PER_SECOND = 1_000

_SHARED = (
    "is_last_record_in_transaction_in_partition",
    "number_of_records_in_transaction",
    "number_of_partitions_in_transaction",
    "transaction_tag",
    "is_system_transaction",
    "value_capture_type",
)
"""Fields of `source_metadata` that equal those of `source` in Tidegate's own envelope."""


def record_facts(
    source: Mapping[str, Any],
    *,
    mod_type: str,
    table: str,
    key_columns: Sequence[str],
    stream: str,
    database: str,
    schema_key: str,
) -> dict[str, Any]:
    """Return the facts that all events of a data change record share.

    `source` has the fields of `source` in Tidegate's own envelope, with `commit_timestamp` in
    microseconds; `mod_number` and `partition_token` may be missing.  `stream` is the change
    stream's full name.  Raises SchemaError for coordinates that are not Unicode, and for a record
    sequence in another notation.
    """
    commit_us, transaction = source["commit_timestamp"], source["server_transaction_id"]
    schema, _, name = table.rpartition(".")
    high, low = sequence_pair(source["record_sequence"])
    at_ms = commit_us // US_PER_MS
    return {
        "uuid": _event_id(stream, commit_us, transaction, source["record_sequence"]),
        "read_timestamp": at_ms,
        "source_timestamp": at_ms,
        "object": table,
        "read_method": READ_METHOD,
        "stream_name": stream,
        "schema_key": schema_key,
        "sort_keys": [at_ms, commit_us, transaction, f"{high:016x}{low:016x}"],
        "source_metadata": {
            "database": database,
            "schema": schema,
            "table": name,
            "primary_keys": list(key_columns),
            "is_deleted": mod_type == "DELETE",
            "change_type": mod_type,
            "tx_id": transaction,
            "record_sequence": source["record_sequence"],
            "mod_number": 0,
            "commit_timestamp": commit_us,
            **{field: source[field] for field in _SHARED},
            "captured_columns": [],
        },
    }


def event_facts(
    of_record: Mapping[str, Any], *, number: int, captured: Sequence[str]
) -> dict[str, Any]:
    """Return the facts of one event of a record: the mod with this number.

    `captured` are the columns in its payload, key columns included, in the payload's order.
    """
    return {
        **of_record,
        "uuid": f"{of_record['uuid']}{number:08x}",
        "sort_keys": [*of_record["sort_keys"], number],
        "source_metadata": {
            **of_record["source_metadata"],
            "mod_number": number,
            "captured_columns": list(captured),
        },
    }


def facts_as_json(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event's facts as JSON, with times as text."""
    metadata = facts["source_metadata"]
    commit_us = metadata["commit_timestamp"]
    at_ms = commit_us // US_PER_MS
    second = format_rfc3339(at_ms // _MS_PER_SECOND * _MS_PER_SECOND * US_PER_MS * NS_PER_US)
    at = f"{second[:-1]}.{at_ms % _MS_PER_SECOND:03d}Z"
    return {
        **facts,
        "read_timestamp": at,
        "source_timestamp": at,
        "source_metadata": {**metadata, "commit_timestamp": format_rfc3339(commit_us * NS_PER_US)},
    }


def _event_id(stream: str, commit_us: int, transaction: str, sequence: str) -> str:
    """Return the id of a record's events without the eight digits of the mod's number.

    A UUID of version 8, computed from the stream and Spanner's coordinates of the record.
    """
    named = (stream, str(commit_us * NS_PER_US), transaction, sequence)
    try:
        digest = hashlib.sha256("\0".join(named).encode()).digest()[:12]
    except UnicodeEncodeError as error:
        raise SchemaError("coordinates of a change that are not Unicode") from error
    digits = (int.from_bytes(digest, "big") & ~_FIXED_DIGITS | _FIXED).to_bytes(12, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# The version's four bits and the variant's two, among the first 96 bits of a UUID.
_FIXED_DIGITS = 0xF << 44 | 0b11 << 30
_FIXED = 8 << 44 | 0b10 << 30
