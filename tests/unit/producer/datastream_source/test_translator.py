"""What is published has the place of a file's record; what is refused goes aside or stops."""

import pytest

from tidegate.producer.datastream_source.aside import copied_event
from tidegate.producer.datastream_source.event_records import place_of
from tidegate.producer.datastream_source.found_file import found_file
from tidegate.producer.datastream_source.translator import EventTranslator
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    QueryInterrupted,
    TopicRefused,
)
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.schemas.errors import SchemaError

FILE = "0a1b2c3d4e5f6071"
MESSAGE = ChangeMessage("t", b"k", b"v", b"o", b"I", b"origin")
RECORD = DataChangeRecord(
    9_000, place_of(7, 2), f"01ff-{FILE}-00000005", True, "shop.orders", (),
    (Mod({"id": 1}, {}, {}),), "INSERT", "NEW_ROW", 1, 1, "o/a.avro", False,
)  # fmt: skip


class Inner:
    """Returns a message, None, or raises."""

    def __init__(self, outcome=None, *, now=True):
        self.outcome = outcome
        self.now = now

    def translate_now(self, record, *, token):
        return self.translate(record, token=token) if self.now else None

    def translate(self, record, *, token):
        if self.outcome is not None:
            raise self.outcome
        return PublishableRecord(1, record.server_transaction_id, "0", (MESSAGE,))


def translator(inner, *, parks):
    return EventTranslator(inner, parks=parks, columns_of=lambda _table: None)


def test_the_place_is_the_file_and_its_record():
    for translate in (translator(Inner(), parks=False).translate,
                      translator(Inner(), parks=False).translate_now):  # fmt: skip
        found = translate(RECORD, token="t")
        assert found == PublishableRecord(7, FILE, "5/2", (MESSAGE,))
    assert translator(Inner(now=False), parks=True).translate_now(RECORD, token="t") is None


def test_one_that_is_late_by_its_place_stands_at_its_release_time():
    record = RECORD._replace(record_sequence=place_of(5_000, 2))
    found = translator(Inner(), parks=False).translate(record, token="t")
    assert found == PublishableRecord(9, FILE, "5/2", (MESSAGE,))


@pytest.mark.parametrize(
    "error",
    [SchemaError("x"), IncompatibleChange("x"), MessageTooLarge("x", reason="y"),
     TopicRefused("x")],
)  # fmt: skip
def test_a_refused_event_stops_or_is_a_dead_letter(error):
    with pytest.raises(type(error)):
        translator(Inner(error), parks=False).translate(RECORD, token="t")
    parking = translator(Inner(error), parks=True)
    assert parking.translate_now(RECORD, token="t") is None
    found = parking.translate(RECORD, token="t")
    (letter,) = found.parked
    assert found.server_transaction_id == FILE
    assert letter.reason == type(error).__name__
    assert b'"file": "o/a.avro", "record": 5, "table": "shop.orders"' in letter.content


def test_what_may_pass_is_raised():
    error = QueryInterrupted("later", code="UNAVAILABLE")
    with pytest.raises(QueryInterrupted):
        translator(Inner(error), parks=True).translate(RECORD, token="t")


def test_a_copy_is_never_translated():
    file = found_file("o/2024/02/29/23/59/a.avro", within="o", modified_us=0)
    copy = copied_event(file, 5, earliest_us=7, turn=2)
    found = translator(Inner(SchemaError("x")), parks=False).translate_now(copy, token="t")
    assert (found.server_transaction_id, found.filtered) == (file.name, 1)
