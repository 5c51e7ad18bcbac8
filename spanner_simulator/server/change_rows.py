"""Change stream rows as bytes: GoogleSQL's `ChangeRecord ARRAY<STRUCT<..>>`.

`ChangeRowEncoder` keeps the bytes of each data change record, because a record is usually read by
several queries and always re-read after a resume; other rows are small and encoded when sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

import orjson
from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.core.change_streams.assembly import (
    ColumnType,
    DataChangeRecord,
    Mod,
)
from tidegate.spanner_simulator.core.change_streams.stream_query import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    StreamRow,
)
from tidegate.spanner_simulator.core.timestamps import format_ns, format_us
from tidegate.spanner_simulator.server.wire_bytes import (
    FALSE,
    TRUE,
    list_bytes,
    row_bytes,
    string_bytes,
)

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.values import Plain

__all__ = ["CHANGE_RECORD_METADATA", "ChangeRowEncoder"]

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

_EMPTY = list_bytes([])


class ChangeRowEncoder:
    """Encodes rows of the change streams of one database."""

    def __init__(self) -> None:
        # Keyed by identity; the value keeps its key alive, so an id is never used twice.
        self._data: dict[int, tuple[DataChangeRecord, bytes]] = {}
        self._column_types: dict[int, tuple[tuple[ColumnType, ...], bytes]] = {}

    def encode(self, row: StreamRow) -> bytes:
        """The row as the `values` field of a PartialResultSet."""
        match row:
            case DataChangeRecord():
                kept = self._data.get(id(row))
                if kept is None:
                    kept = self._data[id(row)] = (row, _row(data=self._data_record(row)))
                return kept[1]
            case HeartbeatRecord():
                return _row(heartbeat=list_bytes([string_bytes(format_ns(row.timestamp_ns))]))
            case ChildPartitionsRecord():
                return _row(children=_children(row))
            case _:
                assert_never(row)

    def _data_record(self, record: DataChangeRecord) -> bytes:
        return list_bytes(
            [
                string_bytes(format_us(record.commit_timestamp_us)),
                string_bytes(record.record_sequence),
                string_bytes(record.server_transaction_id),
                TRUE if record.is_last_record_in_transaction_in_partition else FALSE,
                string_bytes(record.table_name),
                self._types(record.column_types),
                list_bytes([_mod(mod) for mod in record.mods]),
                string_bytes(record.mod_type),
                string_bytes(record.value_capture_type),
                string_bytes(str(record.number_of_records_in_transaction)),
                string_bytes(str(record.number_of_partitions_in_transaction)),
                string_bytes(record.transaction_tag),
                TRUE if record.is_system_transaction else FALSE,
            ]
        )

    def _types(self, types: tuple[ColumnType, ...]) -> bytes:
        kept = self._column_types.get(id(types))
        if kept is None:
            encoded = list_bytes(
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
            kept = self._column_types[id(types)] = (types, encoded)
        return kept[1]


def _row(
    *, data: bytes | None = None, heartbeat: bytes | None = None, children: bytes | None = None
) -> bytes:
    fields = [_EMPTY if one is None else list_bytes([one]) for one in (data, heartbeat, children)]
    return row_bytes([list_bytes([list_bytes(fields)])])


def _mod(mod: Mod) -> bytes:
    return list_bytes([_json(mod.keys), _json(mod.new_values), _json(mod.old_values)])


def _json(values: dict[str, Plain]) -> bytes:
    return string_bytes(orjson.dumps(values, option=orjson.OPT_SORT_KEYS))


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
