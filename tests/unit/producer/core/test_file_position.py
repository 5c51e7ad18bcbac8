"""Positions in files: records of files, whatever their time."""

import pytest

from tidegate.producer.core.file_position import CLOSED, FILES_PREFIX, FilePosition, position_of
from tidegate.producer.core.position import Position
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import FilesClosedRecord, PartitionStartRecord
from tidegate.schemas.errors import InvariantViolation


def record(file, number, turn=1):
    return PublishableRecord(7, file, f"{number}/{turn}", ())


def test_the_token_says_which_rules_hold():
    assert type(position_of(f"{FILES_PREFIX}object/1/a", 5)) is FilePosition
    assert type(position_of("P", 5, [("t", "0")])) is Position
    assert position_of("P", 5, [("t", "0")]) == Position(5, {"t": "0"})


def test_records_of_a_file_are_covered_up_to_the_last_one():
    position = FilePosition(5).with_record(record("a", 9)).with_record(record("b", 1, 2))
    assert position.boundary == {"a": "9/1", "b": "1/2"}
    assert position.covers(record("a", 9))
    assert not position.covers(record("a", 10))
    assert not position.covers(record("c", 1))


def test_a_heartbeat_moves_the_watermark_and_forgets_no_file():
    position = FilePosition(5).with_record(record("a", 9))
    assert position.with_heartbeat(100) == FilePosition(99, {"a": "9/1"})
    assert position.with_heartbeat(4) is position


def test_closed_files_leave_it():
    position = FilePosition(5, {"a": "9/1", "b": "1/2"})
    closed = position.with_closed(FilesClosedRecord(70, ("a", "x")))
    assert closed == FilePosition(5, {"b": "1/2", CLOSED: "70"})
    assert closed.resumption == closed.boundary


def test_a_stream_partition_is_named_once():
    start = PartitionStartRecord(1, "0", ("t",))
    position = FilePosition(5)
    assert not position.covers_start(start)
    assert position.with_start(start).covers_start(start)


def test_no_other_position_has_files():
    with pytest.raises(InvariantViolation, match="reads none"):
        Position(5).with_closed(FilesClosedRecord(70, ()))
    assert Position(5, {"t": "0"}).resumption == {}
