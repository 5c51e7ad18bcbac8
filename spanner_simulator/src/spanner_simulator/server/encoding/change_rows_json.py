"""Change stream rows as bytes: PostgreSQL's one JSON object per row, immutable key ranges.

An object has exactly one key, which names the kind of record; all keys are alphabetical, and counts
are numbers.
"""

from __future__ import annotations

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
from spanner_simulator.core.timestamps import format_ns, format_us
from spanner_simulator.server.wire_bytes import row_bytes, string_bytes

_SHARED_MAX = 4096


class JsonRows:
    """Encodes rows of one change stream; `function` is its read function, the column's name."""

    def __init__(self, function: str) -> None:
        kind = spanner.Type(
            code=spanner.TypeCode.JSON, type_annotation=spanner.TypeAnnotationCode.PG_JSONB
        )
        field = spanner.StructType.Field(name=function, type_=kind)
        self.metadata: bytes = spanner.ResultSetMetadata.serialize(
            spanner.ResultSetMetadata(row_type=spanner.StructType(fields=[field]))
        )
        # Keyed by identity; the value keeps its key alive, so an id is never used twice.
        self._types: dict[int, tuple[tuple[ColumnType, ...], Any]] = {}

    def encode(self, row: StreamRow) -> bytes:
        """The row as the `values` field of a PartialResultSet."""
        match row:
            case DataChangeRecord():
                document = {"data_change_record": self._data_record(row)}
            case HeartbeatRecord():
                document = {"heartbeat_record": {"timestamp": format_ns(row.timestamp_ns)}}
            case ChildPartitionsRecord():
                document = {"child_partitions_record": _children(row)}
            case _:
                raise TypeError(f"immutable key ranges have no {type(row).__name__}")
        return row_bytes([string_bytes(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))])

    def _data_record(self, record: DataChangeRecord) -> dict[str, Any]:
        return {
            "column_types": self._column_types(record.column_types),
            "commit_timestamp": format_us(record.commit_timestamp_us),
            "is_last_record_in_transaction_in_partition": (
                record.is_last_record_in_transaction_in_partition
            ),
            "is_system_transaction": record.is_system_transaction,
            "mod_type": record.mod_type,
            "mods": [
                {"keys": mod.keys, "new_values": mod.new_values, "old_values": mod.old_values}
                for mod in record.mods
            ],
            "number_of_partitions_in_transaction": record.number_of_partitions_in_transaction,
            "number_of_records_in_transaction": record.number_of_records_in_transaction,
            "record_sequence": record.record_sequence,
            "server_transaction_id": record.server_transaction_id,
            "table_name": record.table_name,
            "transaction_tag": record.transaction_tag,
            "value_capture_type": record.value_capture_type,
        }

    def _column_types(self, types: tuple[ColumnType, ...]) -> Any:
        cached = self._types.get(id(types))
        if cached is None:
            if len(self._types) >= _SHARED_MAX:
                self._types.clear()
            document = [
                {
                    "is_primary_key": column.is_primary_key,
                    "name": column.name,
                    "ordinal_position": column.ordinal_position,
                    "type": orjson.loads(column.type_json),
                }
                for column in types
            ]
            encoded = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
            cached = self._types[id(types)] = (types, orjson.Fragment(encoded))
        return cached[1]


def _children(record: ChildPartitionsRecord) -> dict[str, Any]:
    return {
        "child_partitions": [
            {"parent_partition_tokens": list(child.parent_tokens), "token": child.token}
            for child in record.children
        ],
        "record_sequence": record.record_sequence,
        "start_timestamp": format_ns(record.start_timestamp_ns),
    }
