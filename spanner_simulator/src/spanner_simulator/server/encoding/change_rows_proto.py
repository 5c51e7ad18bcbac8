"""Change stream rows as bytes: one ChangeStreamRecord message per row, mutable key ranges.

GoogleSQL declares the column PROTO, PostgreSQL BYTES; on the wire both are base64 in a string.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import orjson
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.records import (
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.row_mod import Mod, RowMod
from spanner_simulator.core.values import Dialect, Plain
from spanner_simulator.server.encoding.change_rows_struct import Heads
from spanner_simulator.server.wire_bytes import plain_bytes, row_bytes, sized, string_bytes, varint

PROTO_NAME = "google.spanner.v1.ChangeStreamRecord"
_RECORD: Any = spanner.ChangeStreamRecord.pb()
_DATA: Any = spanner.ChangeStreamRecord.DataChangeRecord.pb()
_SHARED_MAX = 4096
_MOD_TYPES = {name: varint(b"\x40", number) for name, number in _DATA.ModType.items()}
_CAPTURE_TYPES = {name: varint(b"\x48", number) for name, number in _DATA.ValueCaptureType.items()}
# A Value that is a string, as field 2 of a ModValue.
_TEXT = Heads(b"\x12\x1a")


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
        self._types: dict[int, tuple[tuple[ColumnType, ...], bytes, dict[str, int]]] = {}

    def encode(self, row: StreamRow) -> bytes:
        """The row as the `values` field of a PartialResultSet."""
        return row_bytes([string_bytes(base64.b64encode(self._message(row)))])

    def _message(self, row: StreamRow) -> bytes:
        if isinstance(row, DataChangeRecord):
            return sized(b"\x0a", self._data_record(row))
        message = _RECORD()
        match row:
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

    def _data_record(self, record: DataChangeRecord) -> bytes:
        """The fields in order, as written by protobuf itself, but in a third of its time."""
        columns, index_of = self._columns(record.column_types)
        return b"".join(
            (
                sized(b"\x0a", _time_bytes(record.commit_timestamp_us)),
                sized(b"\x12", record.record_sequence.encode()),
                sized(b"\x1a", record.server_transaction_id.encode()),
                b"\x20\x01" if record.is_last_record_in_transaction_in_partition else b"",
                sized(b"\x2a", record.table_name.encode()),
                columns,
                *[_mod_bytes(mod, index_of) for mod in record.mods],
                _MOD_TYPES[record.mod_type],
                _CAPTURE_TYPES[record.value_capture_type],
                varint(b"\x50", record.number_of_records_in_transaction),
                varint(b"\x58", record.number_of_partitions_in_transaction),
                sized(b"\x62", tag) if (tag := record.transaction_tag.encode()) else b"",
                b"\x68\x01" if record.is_system_transaction else b"",
            )
        )

    def _columns(self, types: tuple[ColumnType, ...]) -> tuple[bytes, dict[str, int]]:
        """The field column_metadata, and the index of each column in it."""
        cached = self._types.get(id(types))
        if cached is None:
            if len(self._types) >= _SHARED_MAX:
                self._types.clear()
            part = _DATA()
            for column_type in types:
                column = part.column_metadata.add()
                column.name = column_type.name
                _fill_type(column.type_, orjson.loads(column_type.type_json))
                column.is_primary_key = column_type.is_primary_key
                column.ordinal_position = column_type.ordinal_position
            index_of = {column_type.name: index for index, column_type in enumerate(types)}
            cached = self._types[id(types)] = (types, part.SerializeToString(), index_of)
        return cached[1], cached[2]


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


def _time_bytes(timestamp_us: int) -> bytes:
    seconds, micros = divmod(timestamp_us, 10**6)
    return (varint(b"\x08", seconds) if seconds else b"") + (
        varint(b"\x10", micros * 1000) if micros else b""
    )


def _mod_bytes(mod: Mod | RowMod, index_of: Mapping[str, int]) -> bytes:
    return sized(
        b"\x3a",
        _value_bytes(b"\x0a", mod.keys, index_of)
        + _value_bytes(b"\x12", mod.old_values, index_of)
        + _value_bytes(b"\x1a", mod.new_values, index_of),
    )


def _value_bytes(tag: bytes, values: Mapping[str, Plain], index_of: Mapping[str, int]) -> bytes:
    """Mod values in the order of the columns; a field with the value 0 is left out."""
    if not values:
        return b""
    parts = []
    for index, plain in sorted(
        [(index_of[name], plain_value) for name, plain_value in values.items()], key=_INDEX
    ):
        if isinstance(plain, str):
            raw = plain.encode()
            value = _TEXT[len(raw)] + raw
        else:
            value = sized(b"\x12", plain_bytes(plain))
        parts.append(sized(tag, varint(b"\x08", index) + value if index else value))
    return b"".join(parts)


_INDEX = itemgetter(0)
