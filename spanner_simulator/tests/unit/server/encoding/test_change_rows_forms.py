"""Small records in each form, and values of any size."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.records import (
    Child,
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.row_mod import Mod
from spanner_simulator.server.encoding.change_rows import RowForm
from spanner_simulator.server.encoding.change_rows_json import JsonRows
from spanner_simulator.server.encoding.change_rows_proto import ProtoRows
from spanner_simulator.server.encoding.change_rows_struct import StructRows
from spanner_simulator.server.messages import plain_of
from unit.conftest import data_record

CHILDREN = ChildPartitionsRecord(1_000, "00000000", (Child("c", ("p", "q")), Child("d", ())))


def decode(form: RowForm, row: StreamRow) -> Any:
    (value,) = spanner.PartialResultSet.pb().FromString(form.encode(row)).values
    return plain_of(value)


def test_a_heartbeat_and_children() -> None:
    struct, text = StructRows(), JsonRows("read_json_s")
    start = "1970-01-01T00:00:00.000001Z"
    assert decode(struct, HeartbeatRecord(1_000)) == [[[], [[start]], []]]
    assert (
        decode(text, HeartbeatRecord(1_000)) == f'{{"heartbeat_record":{{"timestamp":"{start}"}}}}'
    )
    assert decode(struct, CHILDREN) == [
        [[], [], [[start, "00000000", [["c", ["p", "q"]], ["d", []]]]]]
    ]
    assert decode(text, CHILDREN) == (
        '{"child_partitions_record":{"child_partitions":[{"parent_partition_tokens":["p","q"],'
        '"token":"c"},{"parent_partition_tokens":[],"token":"d"}],"record_sequence":"00000000",'
        f'"start_timestamp":"{start}"}}}}'
    )


@pytest.mark.parametrize("size", [0, 100, 128, 16_384, 3_000_000])
def test_values_of_any_size(size: int) -> None:
    for count in (1, 3):
        new = {"V": "ä" * size, "W": None}
        record = data_record(*(Mod({"K": "1"}, new, {}),) * count)
        ((data, heartbeats, children),) = decode(StructRows(), record)
        assert (heartbeats, children) == ([], [])
        assert len(data[0]) == 13
        assert [json.loads(one[1]) for one in data[0][6]] == [new] * count


def decode_proto(row: StreamRow) -> Any:
    text = decode(ProtoRows("ChangeRecord", "GOOGLE_STANDARD_SQL"), row)
    return spanner.ChangeStreamRecord.deserialize(base64.b64decode(text))


def test_heartbeat_start_end_and_event() -> None:
    heartbeat = decode_proto(HeartbeatRecord(1_500_000_001)).heartbeat_record
    start = decode_proto(PartitionStartRecord(2_000_000_000, "a-0", ("t", "u")))
    end = decode_proto(PartitionEndRecord(3_000_000, "a-1", "t")).partition_end_record
    event = decode_proto(PartitionEventRecord(4_000_000, "a-2", "t", ("x", "y"), ("z",)))
    started, moved = start.partition_start_record, event.partition_event_record
    assert heartbeat.timestamp.timestamp() == 1.5
    assert heartbeat.timestamp.nanosecond == 500_000_001
    assert (started.start_timestamp.timestamp(), started.record_sequence) == (2, "a-0")
    assert list(started.partition_tokens) == ["t", "u"]
    assert end.end_timestamp.timestamp() == 3
    assert (end.record_sequence, end.partition_token) == ("a-1", "t")
    assert (moved.commit_timestamp.timestamp(), moved.partition_token) == (4, "t")
    assert [one.source_partition_token for one in moved.move_in_events] == ["x", "y"]
    assert [one.destination_partition_token for one in moved.move_out_events] == ["z"]
