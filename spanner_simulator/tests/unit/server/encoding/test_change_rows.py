from __future__ import annotations

import random

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.records import (
    HeartbeatRecord,
    PartitionEndRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.schema.schema_objects import ChangeStream
from spanner_simulator.server.encoding.change_rows import ChangeRowEncoder
from spanner_simulator.server.wire_bytes import row_bytes, string_bytes


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
