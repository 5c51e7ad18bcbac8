"""Change stream rows as bytes: GoogleSQL's `ChangeRecord ARRAY<STRUCT<..>>`, immutable key ranges.

Written for speed: the parts that many records share (column types, the fields after the mods) are
encoded once, the rest is joined from bytes without a protobuf object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.records import (
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.row_mod import Mod, RowMod
from spanner_simulator.core.timestamps import format_ns, format_us
from spanner_simulator.core.values import Plain
from spanner_simulator.server.wire_bytes import (
    FALSE,
    TRUE,
    list_bytes,
    row_bytes,
    sized,
    string_bytes,
    varint,
)

# A list is an array, a dictionary a struct.
_COLUMN_TYPE = {
    "name": "STRING",
    "type": "JSON",
    "is_primary_key": "BOOL",
    "ordinal_position": "INT64",
}
_DATA_CHANGE_RECORD = {
    "commit_timestamp": "TIMESTAMP",
    "record_sequence": "STRING",
    "server_transaction_id": "STRING",
    "is_last_record_in_transaction_in_partition": "BOOL",
    "table_name": "STRING",
    "column_types": [_COLUMN_TYPE],
    "mods": [{"keys": "JSON", "new_values": "JSON", "old_values": "JSON"}],
    "mod_type": "STRING",
    "value_capture_type": "STRING",
    "number_of_records_in_transaction": "INT64",
    "number_of_partitions_in_transaction": "INT64",
    "transaction_tag": "STRING",
    "is_system_transaction": "BOOL",
}
_CHILD_PARTITIONS_RECORD = {
    "start_timestamp": "TIMESTAMP",
    "record_sequence": "STRING",
    "child_partitions": [{"token": "STRING", "parent_partition_tokens": ["STRING"]}],
}
_ROW_TYPE = {
    "ChangeRecord": [
        {
            "data_change_record": [_DATA_CHANGE_RECORD],
            "heartbeat_record": [{"timestamp": "TIMESTAMP"}],
            "child_partitions_record": [_CHILD_PARTITIONS_RECORD],
        }
    ]
}


def _type(shape: Any) -> Any:
    if isinstance(shape, list):
        return spanner.Type(code=spanner.TypeCode.ARRAY, array_element_type=_type(shape[0]))
    if isinstance(shape, dict):
        return spanner.Type(code=spanner.TypeCode.STRUCT, struct_type=_struct_type(shape))
    return spanner.Type(code=getattr(spanner.TypeCode, shape))


def _struct_type(shape: Mapping[str, Any]) -> Any:
    fields = [
        spanner.StructType.Field(name=name, type_=_type(field_shape))
        for name, field_shape in shape.items()
    ]
    return spanner.StructType(fields=fields)


CHANGE_RECORD_METADATA: bytes = spanner.ResultSetMetadata.serialize(
    spanner.ResultSetMetadata(row_type=_struct_type(_ROW_TYPE))
)
"""The serialised metadata of every change stream query's first message."""

_EMPTY_LISTS = b"\x0a\x02\x32\x00" * 2
_IS_TRUE, _IS_FALSE = sized(b"\x0a", TRUE), sized(b"\x0a", FALSE)
_SHARED_MAX = 4096


class Heads(dict[int, bytes]):
    """The tags and sizes before a payload of a given size, for values inside values.

    `tags` are from the outside in; `further_bytes` bytes follow the payload inside the tag at the
    same place.  Depends only on the size, so it is computed once per size.
    """

    def __init__(self, tags: bytes, further_bytes: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._levels = tuple(zip(tags, further_bytes or (0,) * len(tags), strict=True))[::-1]

    def __missing__(self, size: int) -> bytes:
        head, inside = b"", size
        for tag, extra in self._levels:
            inside += extra
            head = varint(bytes((tag,)), len(head) + inside) + head
        if len(self) < 16_384:
            self[size] = head
        return head


# A string in a list; a list of one list in a list; and everything around a data change record.
_STRING = Heads(b"\x0a\x1a")
_LIST = Heads(b"\x0a\x32")
_ONE_LIST = Heads(b"\x0a\x32\x0a\x32")
_ROW = Heads(b"\x12\x32\x0a\x32\x0a\x32\x0a\x32", (0, 0, 0, len(_EMPTY_LISTS), 0, 0, 0, 0))


def _element(raw: bytes) -> bytes:
    """A string as an element of a list value."""
    return _STRING[len(raw)] + raw


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
                record = self._data_record(row)
                return b"".join((_ROW[len(record)], record, _EMPTY_LISTS))
            case HeartbeatRecord():
                time = list_bytes([string_bytes(format_ns(row.timestamp_ns))])
                return _small_row(heartbeat=time)
            case ChildPartitionsRecord():
                return _small_row(children=_children(row))
            case _:
                raise TypeError(f"immutable key ranges have no {type(row).__name__}")

    def _data_record(self, record: DataChangeRecord) -> bytes:
        """The elements of the record's list value."""
        time, sequence = format_us(record.commit_timestamp_us).encode(), record.record_sequence
        transaction = record.server_transaction_id.encode()
        if len(record.mods) == 1:
            (mod,) = record.mods
            mods = _json(mod.keys) + _json(mod.new_values) + _json(mod.old_values)
            head = _ONE_LIST[len(mods)]
        else:
            mods = b"".join([_mod(mod) for mod in record.mods])
            head = _LIST[len(mods)]
        return b"".join(
            (
                _STRING[len(time)],
                time,
                _STRING[len(sequence)],
                sequence.encode(),
                _STRING[len(transaction)],
                transaction,
                _IS_TRUE if record.is_last_record_in_transaction_in_partition else _IS_FALSE,
                self._table(record),
                head,
                mods,
                self._tail(record),
            )
        )

    def _table(self, record: DataChangeRecord) -> bytes:
        """Table name and column types."""
        types = record.column_types
        key = (id(types), record.table_name)
        cached = self._tables.get(key)
        if cached is None:
            if len(self._tables) >= _SHARED_MAX:
                self._tables.clear()
            encoded = _element(record.table_name.encode()) + sized(b"\x0a", _types(types))
            cached = self._tables[key] = (types, encoded)
        return cached[1]

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
        cached = self._tails.get(key)
        if cached is None:
            if len(self._tails) >= _SHARED_MAX:
                self._tails.clear()
            texts = b"".join([_element(str(part).encode()) for part in key[:5]])
            cached = self._tails[key] = texts + (
                _IS_TRUE if record.is_system_transaction else _IS_FALSE
            )
        return cached


def _types(types: tuple[ColumnType, ...]) -> bytes:
    return list_bytes(
        [
            list_bytes(
                [
                    string_bytes(column.name),
                    string_bytes(column.type_json),
                    TRUE if column.is_primary_key else FALSE,
                    string_bytes(str(column.ordinal_position)),
                ]
            )
            for column in types
        ]
    )


_NOTHING = _element(b"{}")


def _json(values: Mapping[str, Plain]) -> bytes:
    if not values:
        return _NOTHING
    raw = orjson.dumps(values, option=orjson.OPT_SORT_KEYS)
    return _STRING[len(raw)] + raw


def _mod(mod: Mod | RowMod) -> bytes:
    parts = _json(mod.keys) + _json(mod.new_values) + _json(mod.old_values)
    return _LIST[len(parts)] + parts


def _small_row(*, heartbeat: bytes | None = None, children: bytes | None = None) -> bytes:
    fields = [
        list_bytes([] if record is None else [record]) for record in (None, heartbeat, children)
    ]
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
                            list_bytes([string_bytes(token) for token in child.parent_tokens]),
                        ]
                    )
                    for child in record.children
                ]
            ),
        ]
    )
