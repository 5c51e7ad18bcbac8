"""An event of Datastream but for its payload: what is said of a change of Spanner, in both formats.

The one place that makes it, for messages and for files (`docs/protocol.md`, 3.10): a change is the
same event wherever it is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, US_PER_MS, format_rfc3339
from tidegate.schemas.order_key import sequence_pair

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
"""Fields of `source_metadata` that are those of `source` in our own envelope."""


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
    """Return what is the same in all events of a data change record.

    `source` has the fields of `source` in our own envelope, `commit_timestamp` in microseconds, of
    which `mod_number` and `partition_token` may be missing.  `stream` is the change stream's full
    name.  Raises SchemaError for coordinates that are not Unicode, and for a record sequence in
    another notation.
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
    """Return the facts of one event of a record: that of its mod with this number.

    `captured` are the columns that its payload holds, those of the key included, in the payload's
    order.
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
    """Return an event's facts as JSON shows them: times are text."""
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
    """Return the id of a record's events, all but the eight digits of the mod's number.

    A UUID of version 8, whose digits are computed from the stream and Spanner's coordinates of the
    record.
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
