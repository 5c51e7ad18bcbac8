"""Events that are not published have a place all the same."""

import json

from tidegate.producer.core.parked_keys import ParkedKeys
from tidegate.producer.datastream.errors import FileCutShort, InvalidEvent
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream_source.aside import (
    copied_event,
    dead_letter,
    refused_event,
    refused_file,
    set_aside,
)
from tidegate.producer.datastream_source.event_records import file_and_record
from tidegate.producer.datastream_source.found_file import found_file
from tidegate.producer.messages import FORM_EVENT
from tidegate.schemas.errors import SchemaError

FILE = found_file("o/2024/02/29/23/59/a.avro", within="o", modified_us=0)


def test_a_copy_is_counted_as_left_out():
    record = copied_event(FILE, 5, earliest_us=70, turn=2)
    found = set_aside(record, file=FILE.name, number=5, token="t")
    assert (found.commit_timestamp_us, found.server_transaction_id) == (70, FILE.name)
    assert found.record_sequence == "5/2"
    assert (found.filtered, found.messages, found.parked) == (1, (), ())


def test_a_refused_event_is_a_dead_letter_with_file_record_and_error():
    error = InvalidEvent.at(Position(FILE.path, 5), "the value is wrong")
    record = refused_event(error, FILE, 5, earliest_us=70, turn=2)
    (letter,) = set_aside(record, file=FILE.name, number=5, token="t").parked
    assert (letter.form, letter.reason, letter.token) == (FORM_EVENT, "InvalidEvent", "t")
    content = json.loads(letter.content)
    assert (content["file"], content["record"]) == (FILE.path, 5)
    assert "the value is wrong" in content["error"]
    assert letter.error == content["error"]


def test_a_refused_file_has_a_place_beside_its_records():
    error = FileCutShort.at(Position(FILE.path, 4), "the file ends in the middle of a line")
    record = refused_file(error, FILE, 5, earliest_us=70, turn=2)
    assert file_and_record(record.server_transaction_id) == (FILE.name, 5)
    found = set_aside(record, file=FILE.name, number=5, token="t")
    assert (found.server_transaction_id, found.record_sequence) == (f"{FILE.name}!", "5/2")
    (letter,) = found.parked
    assert letter.key == f"{FILE.name}-00000005".encode()


def test_a_long_error_and_a_long_path_are_cut():
    letter = dead_letter(
        SchemaError("x" * 5_000),
        copied_event(FILE, 1, earliest_us=0, turn=1)._replace(transaction_tag="p" * 9_000),
        file=FILE.name, number=1, token="t",
    )  # fmt: skip
    assert len(letter.content) < 3_500
    assert len(letter.error) == 1_000


def test_it_parks_no_key():
    error = InvalidEvent.at(Position(FILE.path, 5), "the value is wrong")
    record = refused_event(error, FILE, 5, earliest_us=70, turn=2)
    found = set_aside(record, file=FILE.name, number=5, token="t")
    diverted, parked = ParkedKeys().divert(found, token="t")
    assert diverted == found
    assert (parked.keys, parked.changes) == (frozenset(), 1)
