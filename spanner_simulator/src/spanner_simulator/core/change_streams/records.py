"""The records of a change stream as values, field by field as the API has them.

Data change records are the same in both partition modes.  Immutable key ranges add child records,
mutable ones add start, end and event records; both have heartbeats.  No wire form is known here.
The records of commits are tuples, which take a fifth of the time of frozen dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from spanner_simulator.core.change_streams.row_mod import Mod, RowMod
from spanner_simulator.core.rows.mutations import ModType
from spanner_simulator.core.schema.schema_objects import CaptureType


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One entry of a record's column_types; `type_json` is the JSON text of the type."""

    name: str
    type_json: str
    is_primary_key: bool
    ordinal_position: int


class DataChangeRecord(NamedTuple):
    """Changes of one kind to one table by one transaction in one stream partition."""

    commit_timestamp_us: int
    record_sequence: str
    server_transaction_id: str
    is_last_record_in_transaction_in_partition: bool
    table_name: str
    column_types: tuple[ColumnType, ...]
    mods: tuple[Mod | RowMod, ...]
    mod_type: ModType
    value_capture_type: CaptureType
    number_of_records_in_transaction: int
    number_of_partitions_in_transaction: int
    transaction_tag: str
    is_system_transaction: bool


@dataclass(frozen=True, slots=True)
class HeartbeatRecord:
    """Everything up to this time, inclusive, was returned."""

    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class Child:
    """One child with all its parents."""

    token: str
    parent_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChildPartitionsRecord:
    """Children that start together."""

    start_timestamp_ns: int
    record_sequence: str
    children: tuple[Child, ...]


@dataclass(frozen=True, slots=True)
class PartitionStartRecord:
    """Stream partitions to read from this time on."""

    timestamp_ns: int
    record_sequence: str
    partition_tokens: tuple[str, ...]

    @property
    def commit_timestamp_us(self) -> int:
        """Its place in the order of a stream partition."""
        return self.timestamp_ns // 1000


@dataclass(frozen=True, slots=True)
class PartitionEndRecord:
    """The last record of a stream partition."""

    commit_timestamp_us: int
    record_sequence: str
    partition_token: str


@dataclass(frozen=True, slots=True)
class PartitionEventRecord:
    """Key ranges came in from sources, or went out to destinations.

    Past a move-in at T a reader may release nothing before the readers of all sources have
    processed everything up to T, inclusive.
    """

    commit_timestamp_us: int
    record_sequence: str
    partition_token: str
    move_in_sources: tuple[str, ...] = ()
    move_out_destinations: tuple[str, ...] = ()


LoggedRecord: TypeAlias = (
    DataChangeRecord | PartitionStartRecord | PartitionEndRecord | PartitionEventRecord
)
"""The records that a stream partition keeps, in the order in which its readers get them."""

StreamRow: TypeAlias = LoggedRecord | HeartbeatRecord | ChildPartitionsRecord
"""One row of a query's result."""
