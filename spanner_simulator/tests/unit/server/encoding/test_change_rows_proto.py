from __future__ import annotations

import base64
from typing import Any

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
from spanner_simulator.core.change_streams.row_mod import Mod
from spanner_simulator.server.encoding.change_rows_proto import ProtoRows

ARRAY = '{"array_element_type":{"code":"JSON","type_annotation":"PG_JSONB"},"code":"ARRAY"}'


def decode(row: StreamRow) -> Any:
    rows = ProtoRows("ChangeRecord", "GOOGLE_STANDARD_SQL")
    message = spanner.PartialResultSet.pb().FromString(rows.encode(row))
    (value,) = message.values
    return spanner.ChangeStreamRecord.deserialize(base64.b64decode(value.string_value))


def test_a_data_change_record_field_by_field() -> None:
    record = DataChangeRecord(
        commit_timestamp_us=1_500_000,
        record_sequence="00000000000000ff-00000001",
        server_transaction_id="7",
        is_last_record_in_transaction_in_partition=True,
        table_name="t",
        column_types=(
            ColumnType("k", '{"code":"INT64"}', True, 1),
            ColumnType("v", '{"code":"FLOAT64"}', False, 2),
            ColumnType("a", ARRAY, False, 3),
        ),
        mods=(
            Mod({"k": "1"}, {"a": ["{}", None], "v": None}, {"v": 1.5, "a": None}),
            Mod({"k": "2"}, {"v": 2.0}, {}),
        ),
        mod_type="UPDATE",
        value_capture_type="NEW_ROW_AND_OLD_VALUES",
        number_of_records_in_transaction=3,
        number_of_partitions_in_transaction=2,
        transaction_tag="tag",
        is_system_transaction=True,
    )
    data = decode(record).data_change_record
    again = decode(record._replace(transaction_tag="", is_system_transaction=False))

    assert not again.data_change_record.is_system_transaction
    assert data.commit_timestamp.timestamp() == 1.5
    assert data.record_sequence == "00000000000000ff-00000001"
    assert (data.server_transaction_id, data.table, data.transaction_tag) == ("7", "t", "tag")
    assert data.is_last_record_in_transaction_in_partition
    assert data.is_system_transaction
    assert [
        (one.name, one.type_.code.name, one.is_primary_key, one.ordinal_position)
        for one in data.column_metadata
    ] == [("k", "INT64", True, 1), ("v", "FLOAT64", False, 2), ("a", "ARRAY", False, 3)]
    assert data.column_metadata[2].type_.array_element_type.type_annotation.name == "PG_JSONB"
    first, second = data.mods
    assert [(one.column_metadata_index, one.value) for one in first.keys] == [(0, "1")]
    assert [(one.column_metadata_index, one.value) for one in first.new_values] == [
        (1, None),
        (2, ["{}", None]),
    ]
    assert [(one.column_metadata_index, one.value) for one in first.old_values] == [
        (1, 1.5),
        (2, None),
    ]
    assert [(one.column_metadata_index, one.value) for one in second.new_values] == [(1, 2.0)]
    assert (data.mod_type.name, data.value_capture_type.name) == (
        "UPDATE",
        "NEW_ROW_AND_OLD_VALUES",
    )
    assert data.number_of_records_in_transaction == 3
    assert data.number_of_partitions_in_transaction == 2


def test_heartbeat_start_end_and_event() -> None:
    heartbeat = decode(HeartbeatRecord(1_500_000_001)).heartbeat_record
    start = decode(PartitionStartRecord(2_000_000_000, "a-0", ("t", "u"))).partition_start_record
    end = decode(PartitionEndRecord(3_000_000, "a-1", "t")).partition_end_record
    event = decode(PartitionEventRecord(4_000_000, "a-2", "t", ("x", "y"), ("z",)))
    moved = event.partition_event_record

    assert heartbeat.timestamp.timestamp() == 1.5
    assert heartbeat.timestamp.nanosecond == 500_000_001
    assert (start.start_timestamp.timestamp(), start.record_sequence) == (2, "a-0")
    assert list(start.partition_tokens) == ["t", "u"]
    assert end.end_timestamp.timestamp() == 3
    assert (end.record_sequence, end.partition_token) == ("a-1", "t")
    assert (moved.commit_timestamp.timestamp(), moved.partition_token) == (4, "t")
    assert [one.source_partition_token for one in moved.move_in_events] == ["x", "y"]
    assert [one.destination_partition_token for one in moved.move_out_events] == ["z"]
