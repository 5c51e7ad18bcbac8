"""Change stream rows as bytes: one ChangeStreamRecord message per row, mutable key ranges.

GoogleSQL declares the column PROTO, PostgreSQL BYTES; on the wire both are base64 in a string.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import orjson
from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.core.change_streams.records import (
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.spanner_simulator.server.wire_bytes import plain_bytes, row_bytes, string_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spanner_simulator.core.change_streams.assembly import RowMod
    from tidegate.spanner_simulator.core.change_streams.records import ColumnType, Mod, StreamRow
    from tidegate.spanner_simulator.core.values import Dialect, Plain

__all__ = ["PROTO_NAME", "ProtoRows"]

PROTO_NAME = "google.spanner.v1.ChangeStreamRecord"
_RECORD: Any = spanner.ChangeStreamRecord.pb()
_DATA: Any = spanner.ChangeStreamRecord.DataChangeRecord.pb()
_SHARED_MAX = 4096


class ProtoRows:
    """Encodes rows of one change stream; `column` names the result's only column."""

    def __init__(self, column: str, dialect: Dialect) -> None:
        kind = (
            spanner.Type(code=spanner.TypeCode.BYTES)
            if dialect == "POSTGRESQL"
            else spanner.Type(code=spanner.TypeCode.PROTO, proto_type_fqn=PROTO_NAME)
        )
        field = spanner.StructType.Field(name=column, type_=kind)
        self.metadata: bytes = spanner.ResultSetMetadata.serialize(
            spanner.ResultSetMetadata(row_type=spanner.StructType(fields=[field]))
        )
        # Keyed by identity; the value keeps its key alive, so an id is never used twice.
        self._types: dict[int, tuple[tuple[ColumnType, ...], bytes]] = {}

    def encode(self, row: StreamRow) -> bytes:
        """The row as the `values` field of a PartialResultSet."""
        return row_bytes([string_bytes(base64.b64encode(self._message(row)))])

    def _message(self, row: StreamRow) -> bytes:
        message = _RECORD()
        match row:
            case DataChangeRecord():
                self._fill_data(message.data_change_record, row)
            case HeartbeatRecord():
                _fill_time(message.heartbeat_record.timestamp, row.timestamp_ns)
            case PartitionStartRecord():
                start = message.partition_start_record
                _fill_time(start.start_timestamp, row.timestamp_ns)
                start.record_sequence = row.record_sequence
                start.partition_tokens.extend(row.partition_tokens)
            case PartitionEndRecord():
                end = message.partition_end_record
                _fill_time(end.end_timestamp, row.commit_timestamp_us * 1000)
                end.record_sequence = row.record_sequence
                end.partition_token = row.partition_token
            case PartitionEventRecord():
                event = message.partition_event_record
                _fill_time(event.commit_timestamp, row.commit_timestamp_us * 1000)
                event.record_sequence = row.record_sequence
                event.partition_token = row.partition_token
                for token in row.move_in_sources:
                    event.move_in_events.add().source_partition_token = token
                for token in row.move_out_destinations:
                    event.move_out_events.add().destination_partition_token = token
            case _:
                raise TypeError(f"mutable key ranges have no {type(row).__name__}")
        serialised: bytes = message.SerializeToString()
        return serialised

    def _fill_data(self, out: Any, record: DataChangeRecord) -> None:
        _fill_time(out.commit_timestamp, record.commit_timestamp_us * 1000)
        out.record_sequence = record.record_sequence
        out.server_transaction_id = record.server_transaction_id
        out.is_last_record_in_transaction_in_partition = (
            record.is_last_record_in_transaction_in_partition
        )
        out.table = record.table_name
        out.MergeFromString(self._column_metadata(record.column_types))
        index_of = {one.name: index for index, one in enumerate(record.column_types)}
        for mod in record.mods:
            _fill_mod(out.mods.add(), mod, index_of)
        out.mod_type = _DATA.ModType.Value(record.mod_type)
        out.value_capture_type = _DATA.ValueCaptureType.Value(record.value_capture_type)
        out.number_of_records_in_transaction = record.number_of_records_in_transaction
        out.number_of_partitions_in_transaction = record.number_of_partitions_in_transaction
        out.transaction_tag = record.transaction_tag
        out.is_system_transaction = record.is_system_transaction

    def _column_metadata(self, types: tuple[ColumnType, ...]) -> bytes:
        """A data change record with nothing but column_metadata."""
        kept = self._types.get(id(types))
        if kept is None:
            if len(self._types) >= _SHARED_MAX:
                self._types.clear()
            part = _DATA()
            for one in types:
                column = part.column_metadata.add()
                column.name = one.name
                _fill_type(column.type_, orjson.loads(one.type_json))
                column.is_primary_key = one.is_primary_key
                column.ordinal_position = one.ordinal_position
            kept = self._types[id(types)] = (types, part.SerializeToString())
        return kept[1]


def _fill_time(out: Any, timestamp_ns: int) -> None:
    out.seconds, out.nanos = divmod(timestamp_ns, 10**9)
    out.SetInParent()


def _fill_type(out: Any, document: Mapping[str, Any]) -> None:
    out.code = getattr(spanner.TypeCode, document["code"])
    if "type_annotation" in document:
        out.type_annotation = getattr(spanner.TypeAnnotationCode, document["type_annotation"])
    if "proto_type_fqn" in document:
        out.proto_type_fqn = document["proto_type_fqn"]
    if "array_element_type" in document:
        _fill_type(out.array_element_type, document["array_element_type"])


def _fill_mod(out: Any, mod: Mod | RowMod, index_of: Mapping[str, int]) -> None:
    for values, wanted in (
        (out.keys, mod.keys),
        (out.new_values, mod.new_values),
        (out.old_values, mod.old_values),
    ):
        for name, plain in sorted(wanted.items(), key=lambda item: index_of[item[0]]):
            _fill_value(values.add(), index_of[name], plain)


def _fill_value(out: Any, index: int, plain: Plain) -> None:
    out.column_metadata_index = index
    out.value.MergeFromString(plain_bytes(plain))
