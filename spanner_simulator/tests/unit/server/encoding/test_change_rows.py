from __future__ import annotations

import base64
import json
import random
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
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.schema.schema_objects import ChangeStream
from spanner_simulator.server.encoding.change_rows import ChangeRowEncoder, RowForm
from spanner_simulator.server.encoding.change_rows_json import JsonRows
from spanner_simulator.server.encoding.change_rows_proto import ProtoRows
from spanner_simulator.server.encoding.change_rows_struct import StructRows
from spanner_simulator.server.messages import plain_of
from spanner_simulator.server.wire_bytes import row_bytes, string_bytes
from unit.conftest import data_record


class TextRows:
    """Rows that are their record's sequence, and how often each was asked for."""

    metadata = b""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, row: StreamRow) -> bytes:
        assert isinstance(row, PartitionEndRecord)
        self.encoded.append(row.record_sequence)
        return row_bytes([string_bytes(row.record_sequence)])


def partition_of(count: int, *, token: str = "t", width: int = 4) -> StreamPartition:
    one = StreamPartition(token, (), 0)
    for index in range(count):
        one.records.append(PartitionEndRecord(index, f"{index:0{width}d}", ""))
    return one


def texts(rows: bytes) -> list[str]:
    return [one.string_value for one in spanner.PartialResultSet.pb().FromString(rows).values]


def test_records_come_in_runs_of_at_most_the_size_and_are_encoded_once() -> None:
    encoder, form, one = ChangeRowEncoder(), TextRows(), partition_of(1000)
    index, found = 100, []
    while index < 900:
        rows, after = encoder.records(form, one, range(index, 900), size_max=2000)
        assert index < after
        assert len(rows) <= 2000
        found += texts(rows)
        index = after
    assert found == [f"{number:04d}" for number in range(100, 900)]
    assert texts(encoder.records(form, one, range(900), size_max=10**6)[0])[99:102] == [
        "0099",
        "0100",
        "0101",
    ]
    assert len(form.encoded) == len(set(form.encoded)) == 900


def test_the_least_used_bytes_go_and_are_made_again() -> None:
    encoder, form = ChangeRowEncoder(kept_bytes_max=5000), TextRows()
    parts = [partition_of(256, token=str(number)) for number in range(5)]
    for one in parts:
        encoder.records(form, one, range(256), size_max=10**6)
    assert encoder.kept_bytes <= 5000
    again, _ = encoder.records(form, parts[0], range(256), size_max=10**6)
    assert len(texts(again)) == 256
    assert len(form.encoded) == 6 * 256


@pytest.mark.parametrize("seed", range(10))
def test_forgotten_records_leave_the_others_right(seed: int) -> None:
    chance = random.Random(seed)
    encoder, form, one = ChangeRowEncoder(), TextRows(), partition_of(600)
    for _ in range(30):
        first = one.records.first
        start = chance.randint(first, 599)
        stop = chance.randint(start + 1, 600)
        rows, after = encoder.records(form, one, range(start, stop), size_max=10**6)
        assert after == stop
        assert texts(rows) == [f"{number:04d}" for number in range(start, stop)]
        one.records.forget_before(min(598, first + chance.randint(0, 60)))


def columns(mode: str, dialect: str) -> tuple[str, object, object]:
    stream = ChangeStream("s", 0, None, (("partition_mode", mode),))
    form = ChangeRowEncoder().form(stream, dialect)  # type: ignore[arg-type]
    metadata = spanner.ResultSetMetadata.deserialize(form.metadata)
    (field,) = metadata.row_type.fields
    assert form.encode(HeartbeatRecord(1))
    return field.name, field.type_.code, field.type_.type_annotation


def test_dialect_and_mode_choose_the_form() -> None:
    code, plain = spanner.TypeCode, spanner.TypeAnnotationCode.TYPE_ANNOTATION_CODE_UNSPECIFIED
    google, postgres = "GOOGLE_STANDARD_SQL", "POSTGRESQL"
    fixed, mutable = "IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE"
    assert columns(fixed, google) == ("ChangeRecord", code.ARRAY, plain)
    assert columns(mutable, google) == ("ChangeRecord", code.PROTO, plain)
    assert columns(mutable, postgres) == ("read_proto_bytes_s", code.BYTES, plain)
    assert columns(fixed, postgres) == (
        "read_json_s",
        code.JSON,
        spanner.TypeAnnotationCode.PG_JSONB,
    )


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
