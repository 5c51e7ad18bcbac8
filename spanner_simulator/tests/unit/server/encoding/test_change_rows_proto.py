from __future__ import annotations

import base64
from typing import Any

import pytest
from google.cloud.spanner_v1 import types as spanner
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.change_streams.records import (
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.row_mod import Mod
from spanner_simulator.core.values import Plain
from spanner_simulator.server.encoding.change_rows_proto import PROTO_NAME, ProtoRows

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


@given(
    index=st.integers(1, 200),
    value=st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False), st.text()),
    timestamp_us=st.integers(0, 4 * 10**15),
    count=st.integers(1, 2**31 - 1),
)
def test_the_bytes_are_those_of_protobuf_itself(
    index: int, value: Plain, timestamp_us: int, count: int
) -> None:
    types = tuple(
        ColumnType(f"c{number}", '{"code":"STRING"}', number == 0, number + 1)
        for number in range(index + 1)
    )
    record = DataChangeRecord(
        timestamp_us, "0-1", "7", False, "t", types,
        (Mod({"c0": "k"}, {f"c{index}": value, "c0": [value, None]}, {}),) * 2,
        "DELETE", "NEW_ROW", count, count, "", False,
    )  # fmt: skip
    rows = ProtoRows("ChangeRecord", "GOOGLE_STANDARD_SQL")
    (sent,) = spanner.PartialResultSet.pb().FromString(rows.encode(record)).values
    raw = base64.b64decode(sent.string_value)

    assert spanner.ChangeStreamRecord.pb().FromString(raw).SerializeToString() == raw


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


def test_the_column_is_a_proto_or_bytes() -> None:
    google = ProtoRows("ChangeRecord", "GOOGLE_STANDARD_SQL").metadata
    postgres = ProtoRows("read_proto_bytes_s", "POSTGRESQL").metadata
    first, second = (
        spanner.ResultSetMetadata.deserialize(one).row_type.fields[0] for one in (google, postgres)
    )

    assert (first.type_.code.name, first.type_.proto_type_fqn) == ("PROTO", PROTO_NAME)
    assert (second.name, second.type_.code.name) == ("read_proto_bytes_s", "BYTES")


def test_child_records_have_no_such_form() -> None:
    with pytest.raises(TypeError):
        decode(ChildPartitionsRecord(1, "0", ()))
