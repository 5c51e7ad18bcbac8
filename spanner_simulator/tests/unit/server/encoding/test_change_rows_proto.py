from __future__ import annotations

import base64
from typing import Any

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.records import (
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRow,
)
from spanner_simulator.server.encoding.change_rows_proto import ProtoRows

ARRAY = '{"array_element_type":{"code":"JSON","type_annotation":"PG_JSONB"},"code":"ARRAY"}'


def decode(row: StreamRow) -> Any:
    rows = ProtoRows("ChangeRecord", "GOOGLE_STANDARD_SQL")
    message = spanner.PartialResultSet.pb().FromString(rows.encode(row))
    (value,) = message.values
    return spanner.ChangeStreamRecord.deserialize(base64.b64decode(value.string_value))


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
