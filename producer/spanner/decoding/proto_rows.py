"""Decodes response messages of a change stream query: MUTABLE_KEY_RANGE, in both dialects.

A row is one serialised `google.spanner.v1.ChangeStreamRecord`: PROTO in GoogleSQL, BYTES in
PostgreSQL, and in both cases base64 in a text.  The records equal those of the other forms, except
for those about other stream partitions.  Any other row type, and a record of an unknown kind, is
rejected, never read as something else.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from google.cloud.spanner_v1.types import ChangeStreamRecord, Type, TypeCode
from google.protobuf.message import DecodeError

from tidegate.producer.records import (
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    RecordColumn,
    StreamRecord,
)
from tidegate.producer.spanner.decoding.response import (
    TEXT,
    RowDecoder,
    Serialised,
    content_of,
)
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import ColumnType

_MESSAGE: Any = ChangeStreamRecord.pb()
_DATA: Any = ChangeStreamRecord.DataChangeRecord.pb()
_PROTO_NAME = "google.spanner.v1.ChangeStreamRecord"
_DEFAULT_SCHEMA = "public."
_MOD_TYPE_NAMES: Any = _DATA.ModType.DESCRIPTOR.values_by_number
_CAPTURE_TYPES: Any = _DATA.ValueCaptureType.DESCRIPTOR.values_by_number
_TYPE_FIELDS: Any = Type.pb().DESCRIPTOR.fields_by_name
_TYPE_CODES: Any = _TYPE_FIELDS["code"].enum_type.values_by_number
_ANNOTATIONS: Any = _TYPE_FIELDS["type_annotation"].enum_type.values_by_number
_MOD_TYPES = ("INSERT", "UPDATE", "DELETE")
_NS_PER_S = 1_000_000_000


class ProtoResponseDecoder(RowDecoder):
    """Decodes the response messages of one query, in their order."""

    def __init__(self, columns: ColumnTypesCache, *, column_type: int) -> None:
        """Expect one column: PROTO in a GoogleSQL database, BYTES in a PostgreSQL one."""
        super().__init__()
        self._column_lists = columns
        self._column_type = column_type

    def _require_form(self, columns: Any) -> None:
        fields = list(columns.fields)
        kinds = [(field.type_.code, field.type_.proto_type_fqn) for field in fields]
        name = _PROTO_NAME if self._column_type == TypeCode.PROTO else ""
        if kinds != [(self._column_type, name)]:
            raise SchemaError(
                "a change stream's response is not of the form for mutable key ranges",
                hint="Only this form is supported",
                columns=[field.name for field in fields][:4],
            )

    def _record(self, value: Serialised) -> StreamRecord:
        record = _parsed(value)
        kind = record.WhichOneof("record")
        read = self._READERS.get(kind)
        if read is None:
            raise SchemaError("a row is not one change stream record", kind=str(kind))
        return read(self, getattr(record, kind))

    def _data_change(self, record: Any) -> DataChangeRecord:
        columns = self._columns(record)
        mod_type = _name(_MOD_TYPE_NAMES, record.mod_type, "mod_type")
        if mod_type not in _MOD_TYPES:
            raise SchemaError("a record with an unknown mod type", mod_type=mod_type)
        return DataChangeRecord(
            commit_timestamp_ns=_instant(record, "commit_timestamp"),
            record_sequence=record.record_sequence,
            server_transaction_id=record.server_transaction_id,
            is_last_record_in_transaction_in_partition=(
                record.is_last_record_in_transaction_in_partition
            ),
            # As the catalogue names it, whichever way the service does.
            table_name=record.table.removeprefix(_DEFAULT_SCHEMA),
            columns=columns,
            mods=tuple(
                [
                    Mod(
                        _values(mod.keys, columns),
                        _values(mod.new_values, columns),
                        _values(mod.old_values, columns),
                    )
                    for mod in record.mods
                ]
            ),
            mod_type=mod_type,  # type: ignore[arg-type]  # one of the three
            value_capture_type=_name(
                _CAPTURE_TYPES, record.value_capture_type, "value_capture_type"
            ),
            number_of_records_in_transaction=record.number_of_records_in_transaction,
            number_of_partitions_in_transaction=record.number_of_partitions_in_transaction,
            transaction_tag=record.transaction_tag,
            is_system_transaction=record.is_system_transaction,
        )

    def _columns(self, record: Any) -> tuple[RecordColumn, ...]:
        """Return the columns; equal lists are one object, which identifies cached translations."""
        serialised = b"".join(
            [column.SerializeToString() + b"\0" for column in record.column_metadata]
        )
        return self._column_lists.get(
            (), serialised, lambda _: tuple([_column(column) for column in record.column_metadata])
        )

    def _heartbeat(self, record: Any) -> HeartbeatRecord:
        return HeartbeatRecord(_instant(record, "timestamp"))

    def _start(self, record: Any) -> PartitionStartRecord:
        tokens = tuple(record.partition_tokens)
        return PartitionStartRecord(
            _instant(record, "start_timestamp"), record.record_sequence, tokens
        )

    def _end(self, record: Any) -> PartitionEndRecord:
        return PartitionEndRecord(_instant(record, "end_timestamp"), record.record_sequence)

    def _event(self, record: Any) -> PartitionEventRecord:
        return PartitionEventRecord(
            _instant(record, "commit_timestamp"),
            record.record_sequence,
            tuple([move.source_partition_token for move in record.move_in_events]),
            tuple([move.destination_partition_token for move in record.move_out_events]),
        )

    _READERS: ClassVar[Mapping[str | None, Callable[[ProtoResponseDecoder, Any], StreamRecord]]] = {
        "data_change_record": _data_change,
        "heartbeat_record": _heartbeat,
        "partition_start_record": _start,
        "partition_end_record": _end,
        "partition_event_record": _event,
    }


def _name(names: Mapping[int, Any], number: int, field: str) -> str:
    """Return the name of an enum's number; an unknown number is a SchemaError."""
    member = names.get(number)
    if member is None:
        raise SchemaError(
            "a change record with a number that is not known", field=field, number=number
        )
    return str(member.name)


def _parsed(value: Serialised) -> Any:
    text = content_of(value, TEXT)
    if text is None:
        raise SchemaError("a change stream's row is not bytes")
    try:
        return _MESSAGE.FromString(binascii.a2b_base64(text, strict_mode=True))
    except (binascii.Error, DecodeError) as error:
        raise SchemaError(
            "a change stream's row cannot be read as a change stream record", cause=str(error)
        ) from error


def _instant(record: Any, name: str) -> int:
    """Return nanoseconds since 1970; a record without its time is a SchemaError."""
    if not record.HasField(name):
        raise SchemaError("a change record without its timestamp", field=name)
    instant = getattr(record, name)
    return int(instant.seconds * _NS_PER_S + instant.nanos)


def _column(described: Any) -> RecordColumn:
    return RecordColumn(
        name=described.name,
        type=type_of(described.type_),
        is_primary_key=described.is_primary_key,
        ordinal=described.ordinal_position,
    )


def type_of(message: Any) -> ColumnType:
    """Return the type of a `google.spanner.v1.Type`."""
    return ColumnType.from_type_json(_type(message))


def _type(message: Any) -> dict[str, Any]:
    """Return a type in the notation of the other forms; an unknown type is named by its number.

    Whether it matters depends on what is published, as for an unknown name.
    """
    code, annotation = _TYPE_CODES.get(message.code), _ANNOTATIONS.get(message.type_annotation)
    described: dict[str, Any] = {"code": f"TYPE_CODE {message.code}" if code is None else code.name}
    if message.type_annotation:
        described["type_annotation"] = (
            f"TYPE_ANNOTATION {message.type_annotation}" if annotation is None else annotation.name
        )
    if message.HasField("array_element_type"):
        described["array_element_type"] = _type(message.array_element_type)
    return described


def _values(mod_values: Any, columns: tuple[RecordColumn, ...]) -> dict[str, Any]:
    """Return values by their columns' names."""
    values = {}
    for mod_value in mod_values:
        index = mod_value.column_metadata_index
        if not 0 <= index < len(columns):
            raise SchemaError(
                "a value of a column that the record does not name",
                index=index,
                columns=len(columns),
            )
        values[columns[index].name] = plain(mod_value.value)
    return values


def plain(value: Any) -> Any:
    """Return a `google.protobuf.Value` as in JSON."""
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [plain(element) for element in value.list_value.values]
    if kind in (None, "null_value"):
        return None
    if kind == "struct_value":
        # Of a type that does not exist yet: whether it matters depends on what is published.
        return {name: plain(member) for name, member in value.struct_value.fields.items()}
    return getattr(value, kind)
