"""Spanner's change stream records, as the rest of the producer sees them.

Field names are Spanner's own (seed: "Data change records", "Heartbeat records", "Child partitions
records").  Values are still what the JSON of `keys`, `new_values` and `old_values` holds; the
translation turns them into Avro.  Instants are nanoseconds since 1970, as exact as Spanner's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.schemas.progress import ChildPartition
    from tidegate.schemas.tables import ColumnType

__all__ = [
    "ChildPartitionsRecord",
    "DataChangeRecord",
    "HeartbeatRecord",
    "Mod",
    "ModType",
    "RecordColumn",
    "StreamRecord",
]

ModType: TypeAlias = Literal["INSERT", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column as a data change record names it; an UPDATE names only what it touched."""

    name: str
    type: ColumnType
    is_primary_key: bool
    ordinal: int


class Mod(NamedTuple):
    """One row change.  A name that is absent was not captured; a None was set to NULL."""

    keys: Mapping[str, Any]
    new_values: Mapping[str, Any]
    old_values: Mapping[str, Any]


class DataChangeRecord(NamedTuple):
    """Changes of one table, one kind and one set of columns, made by one transaction."""

    commit_timestamp_ns: int
    record_sequence: str
    server_transaction_id: str
    is_last_record_in_transaction_in_partition: bool
    table_name: str
    columns: tuple[RecordColumn, ...]
    mods: tuple[Mod, ...]
    mod_type: ModType
    value_capture_type: str
    number_of_records_in_transaction: int
    number_of_partitions_in_transaction: int
    transaction_tag: str
    is_system_transaction: bool


@dataclass(frozen=True, slots=True)
class HeartbeatRecord:
    """Everything of the stream partition with a commit timestamp <= this was returned."""

    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class ChildPartitionsRecord:
    """Stream partitions that follow this one; several such records may come before the end."""

    start_ns: int
    record_sequence: str
    children: tuple[ChildPartition, ...]


StreamRecord: TypeAlias = DataChangeRecord | HeartbeatRecord | ChildPartitionsRecord
