"""`dead-letters` reads the topic of a broker in this process, and says what to do."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from tests.unit.producer.commands.test_environment import started
from tidegate.producer.commands import dead_letters as command
from tidegate.producer.commands.dead_letters import (
    DeadLetterReport,
    ListedGroup,
    dead_letters,
    dead_letters_table,
)
from tidegate.producer.datastream import errors as file_errors
from tidegate.producer.datastream.errors import DatastreamError
from tidegate.producer.datastream_source.aside import dead_letter
from tidegate.producer.datastream_source.event_records import place_of
from tidegate.producer.errors import StreamNotStarted
from tidegate.producer.messages import FORM_RECORD, ParkedChange
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.parking import POISON
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.topics import TopicNames

NAMES = TopicNames("bank")
ORDER = OrderKey(1_700_000_000_000_000, "tx", (0, 1), 0).encode()
PARKED = ParkedChange(
    NAMES.data("Users"), b"k", ORDER, b"U", b"{}", FORM_RECORD, "MessageTooLarge", "too large", "t"
)
EVENT = dead_letter(
    SchemaError("no such day", column="d"),
    DataChangeRecord(9_000, place_of(7, 2), "x", True, "shop.orders", (), (), "INSERT", "NEW_ROW",
                     1, 1, "o/a.avro", False),
    file="0a1b2c3d4e5f6071", number=5, token="object",
)  # fmt: skip


def group(**changes):
    known = {
        "reason": "MessageTooLarge", "table": "Users", "file": None, "count": 3, "first": "a",
        "last": "b", "error": "too large", "token": "t", "place": "here", "topic_partition": 0,
        "offset": 4, "remedy": "Raise it",
    }  # fmt: skip
    return ListedGroup(**{**known, **changes})


def printed(report, rows_max=20):
    console = Console(width=100)
    with console.capture() as capture:
        console.print(dead_letters_table(report, rows_max=rows_max))
    return capture.get()


def test_what_is_set_aside_is_listed_with_what_to_do(place):
    place.record(started(place.config().stream_path))
    place.park(NAMES.dead_letter, PARKED, EVENT, PARKED._replace(reason="KeyParked", error=""))
    found = dead_letters(place.config(spanner_emulator_host="127.0.0.1:1"))
    assert (found.dead_letter, found.records, found.dropped) == ("bank-dead-letter", 3, 0)
    after, of_file, first = found.groups
    assert (first.reason, first.table, first.file, first.count) == (
        "MessageTooLarge", "Users", None, 1,
    )  # fmt: skip
    assert first.place == "2023-11-14T22:13:20Z, tx, 1, 0"
    assert "max.message.bytes" in first.remedy
    assert (of_file.reason, of_file.table, of_file.file) == ("SchemaError", None, "o/a.avro")
    assert (of_file.place, of_file.token) == ("record 5", "object")
    assert "backfill the object" in of_file.remedy
    assert (after.reason, after.error, after.offset) == ("KeyParked", "", 2)
    assert first.first == first.last
    assert first.first.startswith("20")
    assert json.loads(found.as_json())["groups"][2]["topic_partition"] == 0


def test_a_stream_without_the_topic_has_set_nothing_aside(place):
    place.record(started(place.config().stream_path))
    assert dead_letters(place.config()) == DeadLetterReport("bank-dead-letter", 0, (), 0)


def test_a_stream_that_has_not_begun_is_an_error(place):
    with pytest.raises(StreamNotStarted):
        dead_letters(place.config())


def test_each_class_of_an_error_has_a_remedy():
    of_files = {one.__name__ for one in DatastreamError.__subclasses__()}
    assert {one.__name__ for one in POISON} | {"KeyParked"} == set(command._REMEDIES)
    assert of_files == set(command._REMEDIES_OF_FILES)
    assert len(of_files) + len(POISON) > 12
    assert all(command._REMEDIES.values())
    assert all(command._REMEDIES_OF_FILES.values())
    assert set(file_errors.__all__) - {"DatastreamError"} <= of_files


def test_a_table_fits_a_hundred_columns_and_names_all_of_it():
    file = group(
        table=None, file="o/" + "x" * 80, reason="FileCutShort", error="", place="record 3"
    )
    text = printed(DeadLetterReport("bank-dead-letter", 1_003, (group(), file), 7))
    assert max(map(len, text.splitlines())) <= 100
    for shown in ("1,003 records", "MessageTooLarge", "Users", "Raise it", "record 3",
                  "7 older ones"):  # fmt: skip
        assert shown in text
    assert "1 more: --limit" in printed(DeadLetterReport("d", 6, (group(), file), 0), rows_max=1)
    assert "Nothing is set aside" in printed(DeadLetterReport("d", 0, (), 0))


def test_a_remedy_that_the_text_has_is_not_repeated():
    text = printed(DeadLetterReport("d", 3, (group(error="too large. Raise it"),), 0))
    assert text.count("Raise it") == 1
