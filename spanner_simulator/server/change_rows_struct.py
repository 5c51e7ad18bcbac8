"""Change stream rows as bytes: GoogleSQL's `ChangeRecord ARRAY<STRUCT<..>>`, immutable key ranges.

Written for speed: what many records share (column types, the fields after the mods) is encoded
once, the rest is put together from bytes without a protobuf object.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson
from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.core.change_streams.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
)
from tidegate.spanner_simulator.core.timestamps import format_ns
from tidegate.spanner_simulator.server.wire_bytes import (
    FALSE,
    TRUE,
    list_bytes,
    row_bytes,
    sized,
    string_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spanner_simulator.core.change_streams.records import ColumnType, StreamRow
    from tidegate.spanner_simulator.core.values import Plain

__all__ = ["CHANGE_RECORD_METADATA", "StructRows", "time_text"]

_CODE = spanner.TypeCode


def _scalar(code: Any) -> Any:
    return spanner.Type(code=code)


def _struct(**fields: Any) -> Any:
    return spanner.Type(
        code=_CODE.STRUCT,
        struct_type=spanner.StructType(
            fields=[
                spanner.StructType.Field(name=name, type_=kind) for name, kind in fields.items()
            ]
        ),
    )


def _array(element: Any) -> Any:
    return spanner.Type(code=_CODE.ARRAY, array_element_type=element)


def _change_record_type() -> Any:
    string, int64, boolean = _scalar(_CODE.STRING), _scalar(_CODE.INT64), _scalar(_CODE.BOOL)
    timestamp, json = _scalar(_CODE.TIMESTAMP), _scalar(_CODE.JSON)
    column_type = _struct(name=string, type=json, is_primary_key=boolean, ordinal_position=int64)
    data_change_record = _struct(
        commit_timestamp=timestamp,
        record_sequence=string,
        server_transaction_id=string,
        is_last_record_in_transaction_in_partition=boolean,
        table_name=string,
        column_types=_array(column_type),
        mods=_array(_struct(keys=json, new_values=json, old_values=json)),
        mod_type=string,
        value_capture_type=string,
        number_of_records_in_transaction=int64,
        number_of_partitions_in_transaction=int64,
        transaction_tag=string,
        is_system_transaction=boolean,
    )
    child_partitions_record = _struct(
        start_timestamp=timestamp,
        record_sequence=string,
        child_partitions=_array(_struct(token=string, parent_partition_tokens=_array(string))),
    )
    return _array(
        _struct(
            data_change_record=_array(data_change_record),
            heartbeat_record=_array(_struct(timestamp=timestamp)),
            child_partitions_record=_array(child_partitions_record),
        )
    )


CHANGE_RECORD_METADATA: bytes = spanner.ResultSetMetadata.serialize(
    spanner.ResultSetMetadata(
        row_type=spanner.StructType(
            fields=[spanner.StructType.Field(name="ChangeRecord", type_=_change_record_type())]
        )
    )
)
"""The serialised metadata of every change stream query's first message."""

_EMPTY_LISTS = b"\x0a\x02\x32\x00" * 2
_IS_TRUE, _IS_FALSE = sized(b"\x0a", TRUE), sized(b"\x0a", FALSE)
# An element of a list that is a string: the two tags and sizes before a short one.
_SHORT = [bytes((0x0A, size + 2, 0x1A, size)) for size in range(126)]
_SHARED_MAX = 4096


def _element(raw: bytes) -> bytes:
    """A string as an element of a list value."""
    size = len(raw)
    return _SHORT[size] + raw if size < 126 else sized(b"\x0a", sized(b"\x1a", raw))


@lru_cache(maxsize=_SHARED_MAX)
def _second_text(second: int) -> str:
    return format_ns(second * 10**9).removesuffix("Z")


def time_text(timestamp_us: int) -> str:
    """As `format_us`, for many times that lie close together."""
    second, micro = divmod(timestamp_us, 10**6)
    text = _second_text(second)
    return f"{text}.{micro:06d}".rstrip("0") + "Z" if micro else f"{text}Z"


class StructRows:
    """Encodes rows of change streams of a GoogleSQL database with immutable key ranges."""

    metadata = CHANGE_RECORD_METADATA

    def __init__(self) -> None:
        # Keyed by identity; the value keeps its key alive, so an id is never used twice.
        self._tables: dict[tuple[int, str], tuple[tuple[ColumnType, ...], bytes]] = {}
        self._tails: dict[tuple[object, ...], bytes] = {}

    def encode(self, row: StreamRow) -> bytes:
        """The row as the `values` field of a PartialResultSet."""
        match row:
            case DataChangeRecord():
                record = sized(b"\x32", sized(b"\x0a", sized(b"\x32", self._data_record(row))))
                fields = sized(b"\x0a", record) + _EMPTY_LISTS
                element = sized(b"\x0a", sized(b"\x32", fields))
                return sized(b"\x12", sized(b"\x32", element))
            case HeartbeatRecord():
                time = list_bytes([string_bytes(format_ns(row.timestamp_ns))])
                return _small_row(heartbeat=time)
            case ChildPartitionsRecord():
                return _small_row(children=_children(row))
            case _:
                raise TypeError(f"immutable key ranges have no {type(row).__name__}")

    def _data_record(self, record: DataChangeRecord) -> bytes:
        """The elements of the record's list value."""
        is_last = record.is_last_record_in_transaction_in_partition
        mods = b"".join([_mod(mod.keys, mod.new_values, mod.old_values) for mod in record.mods])
        return b"".join(
            (
                _element(time_text(record.commit_timestamp_us).encode()),
                _element(record.record_sequence.encode()),
                _element(record.server_transaction_id.encode()),
                _IS_TRUE if is_last else _IS_FALSE,
                self._table(record),
                sized(b"\x0a", sized(b"\x32", mods)),
                self._tail(record),
            )
        )

    def _table(self, record: DataChangeRecord) -> bytes:
        """Table name and column types."""
        types = record.column_types
        key = (id(types), record.table_name)
        kept = self._tables.get(key)
        if kept is None:
            if len(self._tables) >= _SHARED_MAX:
                self._tables.clear()
            encoded = _element(record.table_name.encode()) + sized(b"\x0a", _types(types))
            kept = self._tables[key] = (types, encoded)
        return kept[1]

    def _tail(self, record: DataChangeRecord) -> bytes:
        """Everything after the mods."""
        key = (
            record.mod_type,
            record.value_capture_type,
            record.number_of_records_in_transaction,
            record.number_of_partitions_in_transaction,
            record.transaction_tag,
            record.is_system_transaction,
        )
        kept = self._tails.get(key)
        if kept is None:
            if len(self._tails) >= _SHARED_MAX:
                self._tails.clear()
            texts = b"".join([_element(str(part).encode()) for part in key[:5]])
            kept = self._tails[key] = texts + (
                _IS_TRUE if record.is_system_transaction else _IS_FALSE
            )
        return kept


def _types(types: tuple[ColumnType, ...]) -> bytes:
    return list_bytes(
        [
            list_bytes(
                [
                    string_bytes(one.name),
                    string_bytes(one.type_json),
                    TRUE if one.is_primary_key else FALSE,
                    string_bytes(str(one.ordinal_position)),
                ]
            )
            for one in types
        ]
    )


_NOTHING = _element(b"{}")


def _json(values: Mapping[str, Plain]) -> bytes:
    if not values:
        return _NOTHING
    return _element(orjson.dumps(values, option=orjson.OPT_SORT_KEYS))


def _mod(keys: Mapping[str, Plain], new: Mapping[str, Plain], old: Mapping[str, Plain]) -> bytes:
    return sized(b"\x0a", sized(b"\x32", _json(keys) + _json(new) + _json(old)))


def _small_row(*, heartbeat: bytes | None = None, children: bytes | None = None) -> bytes:
    fields = [list_bytes([] if one is None else [one]) for one in (None, heartbeat, children)]
    return row_bytes([list_bytes([list_bytes(fields)])])


def _children(record: ChildPartitionsRecord) -> bytes:
    return list_bytes(
        [
            string_bytes(format_ns(record.start_timestamp_ns)),
            string_bytes(record.record_sequence),
            list_bytes(
                [
                    list_bytes(
                        [
                            string_bytes(child.token),
                            list_bytes([string_bytes(one) for one in child.parent_tokens]),
                        ]
                    )
                    for child in record.children
                ]
            ),
        ]
    )
