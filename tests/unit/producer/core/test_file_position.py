"""Positions in files: records of files, whatever their time."""

import pytest

from tidegate.producer.core.file_position import (
    CLOSED,
    FILES_PREFIX,
    PARTS_MAX,
    SOURCE,
    FilePosition,
    parts_of,
    position_of,
)
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


def test_a_file_that_was_read_in_parts_has_a_turn_for_each():
    position = FilePosition(5, {"a": "9/1"})
    for number, turn in ((10, 1), (11, 3), (12, 3), (13, 5)):
        position = position.with_record(record("a", number, turn))
    assert position.boundary == {"a": "10/1,12/3,13/5"}
    assert parts_of(position.boundary["a"]) == [(10, 1), (12, 3), (13, 5)]
    assert position.covers(record("a", 13, 7))
    assert not position.covers(record("a", 14, 5))


def test_the_first_parts_of_too_many_are_joined():
    position = FilePosition(5)
    for turn in range(1, PARTS_MAX + 3):
        position = position.with_record(record("a", 10 * turn, turn))
    parts = parts_of(position.boundary["a"])
    assert parts == [(10 * turn, turn) for turn in range(3, PARTS_MAX + 3)]


def test_a_refusal_takes_the_place_of_the_one_before():
    position = FilePosition(5, {"a": "9/1", "a!": "10/1"})
    assert position.with_record(record("a!", 12, 4)).boundary == {"a": "9/1", "a!": "12/4"}


def test_a_heartbeat_moves_the_watermark_and_forgets_no_file():
    position = FilePosition(5).with_record(record("a", 9))
    assert position.with_heartbeat(100) == FilePosition(99, {"a": "9/1"})
    assert position.with_heartbeat(4) is position


def test_closed_files_leave_it():
    position = FilePosition(5, {"a": "9/1", "b": "1/2"})
    closed = position.with_closed(FilesClosedRecord(70, ("a", "x")))
    assert closed == FilePosition(5, {"b": "1/2", CLOSED: "70"})
    assert closed.resumption == closed.boundary


def test_the_source_outlives_all_files():
    position = FilePosition(5, {"a": "9/1"})
    known = position.with_closed(FilesClosedRecord(70, (), "mysql/log"))
    assert known == FilePosition(5, {"a": "9/1", CLOSED: "70", SOURCE: "mysql/log"})
    closed = known.with_closed(FilesClosedRecord(80, ("a",)))
    assert closed == FilePosition(5, {CLOSED: "80", SOURCE: "mysql/log"})


def test_a_stream_partition_is_named_once():
    start = PartitionStartRecord(1, "0", ("t",))
    position = FilePosition(5)
    assert not position.covers_start(start)
    assert position.with_start(start).covers_start(start)


def test_no_other_position_has_files():
    with pytest.raises(InvariantViolation, match="reads none"):
        Position(5).with_closed(FilesClosedRecord(70, ()))
    assert Position(5, {"t": "0"}).resumption == {}
