"""Spanner's change stream records, as the rest of the producer sees them.

Field names are Spanner's own (from Spanner's documentation: "Data change records", "Heartbeat
records", "Child partitions records"; `google.spanner.v1.ChangeStreamRecord` for MUTABLE_KEY_RANGE,
which has start, end and event records in place of child partitions records).  Values are still what
the JSON of `keys`, `new_values` and `old_values` holds; the translation turns them into Avro.
Instants are nanoseconds since 1970, as exact as Spanner's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.tables import ColumnType

ModType: TypeAlias = Literal["INSERT", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """A column as a data change record names it; an UPDATE names only the columns it touched."""

    name: str
    type: ColumnType
    is_primary_key: bool
    ordinal: int


class UnreadableValues(Mapping[str, Any]):
    """The values of a change whose JSON cannot be read; every access raises the error.

    So a damaged change does not affect the other changes of its record, and none is published
    without its values.
    """

    def __init__(self, text: str, error: SchemaError) -> None:
        """Keep the text that was not a JSON object, and why it cannot be read."""
        self.text = text
        self.error = error

    def __getitem__(self, name: str) -> NoReturn:
        """Raise the error."""
        raise self.error

    def __iter__(self) -> Iterator[str]:
        """Raise the error."""
        raise self.error

    def __len__(self) -> int:
        """Raise the error."""
        raise self.error


class Mod(NamedTuple):
    """One row change.  A name that is absent was not captured; a None was set to NULL.

    `new_values` and `old_values` may be `UnreadableValues`; `keys` never are.
    """

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
    first_mod_number: int = 0
    """The number of the first of `mods` in Spanner's record; above 0 only in a part of a record."""

    def part(self, position: int) -> DataChangeRecord:
        """Return the record with only one of its mods, which keeps its number."""
        number = self.first_mod_number + position
        return self._replace(mods=self.mods[position : position + 1], first_mod_number=number)


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


@dataclass(frozen=True, slots=True)
class PartitionStartRecord:
    """Stream partitions to query from `start_ns` on; the one that returned this may go on."""

    start_ns: int
    record_sequence: str
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionEndRecord:
    """The stream partition that returned this returns no more records."""

    end_ns: int
    record_sequence: str


@dataclass(frozen=True, slots=True)
class PartitionEventRecord:
    """Keys moved at `commit_timestamp_ns`: in from `sources`, or out to `destinations`."""

    commit_timestamp_ns: int
    record_sequence: str
    sources: tuple[str, ...]
    destinations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilesClosedRecord:
    """Files of a stream partition that are not listed again; only in sources of files."""

    first_open_minute: int
    """Minutes since 1970: earlier files are not listed again, except those in the boundary."""
    files: tuple[str, ...]
    """The files, by their names in the boundary."""
    source: str = ""
    """New facts about the source of the files, in the boundary's form; empty if there are none."""


LineageRecord: TypeAlias = (
    ChildPartitionsRecord
    | PartitionStartRecord
    | PartitionEndRecord
    | PartitionEventRecord
    | FilesClosedRecord
)
"""Records about other stream partitions, about the end of this one, and about its progress."""

StreamRecord: TypeAlias = DataChangeRecord | HeartbeatRecord | LineageRecord
