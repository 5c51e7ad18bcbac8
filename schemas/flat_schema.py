"""The flat envelope: a value is a row, and fields behind its columns say what happened to it.

The names are those of an unwrapped Debezium record where it has such a field; all begin with two
underscores, and so may no column (`docs/protocol.md`, 3.8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

FLAT_NAME = "FlatChange"
"""The record's name, by which a reader knows the envelope: a column may have any other name."""

_RESERVED = "__"

FLAT_FIELDS: tuple[Mapping[str, Any], ...] = (
    {"name": "__op", "type": "string"},
    {"name": "__deleted", "type": "string"},
    {"name": "__columns", "type": {"type": "array", "items": "string"}},
    {"name": "__commit_timestamp", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "__server_transaction_id", "type": "string"},
    {"name": "__record_sequence", "type": "string"},
    {"name": "__mod_number", "type": "int"},
    {"name": "__is_last_record_in_transaction_in_partition", "type": "boolean"},
    {"name": "__number_of_records_in_transaction", "type": "long"},
    {"name": "__number_of_partitions_in_transaction", "type": "long"},
    {"name": "__transaction_tag", "type": "string"},
    {"name": "__is_system_transaction", "type": "boolean"},
    {"name": "__value_capture_type", "type": "string"},
)
"""Those behind the columns, in their order."""


def is_flat(schema: Mapping[str, Any]) -> bool:
    """Whether a value schema is that of a flat envelope."""
    return schema.get("name") == FLAT_NAME


def reserved_names(columns: Iterable[str]) -> list[str]:
    """Return the columns that a flat envelope cannot have."""
    return [name for name in columns if name.startswith(_RESERVED)]
