"""What is set aside, by reason and by table or file, in bounded memory."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.messages import (
    FORM_EVENT,
    FORM_MESSAGE,
    FORM_RECORD,
    FORM_REDRIVEN,
    DeadLetter,
    ParkedChange,
)
from tidegate.producer.translation.dead_letter_groups import DeadLetterGroups, grouped
from tidegate.schemas.order_key import OrderKey


def order(number):
    return OrderKey(number * 1_000_000, "tx", (0, 7), 2).encode()


def change(key, number, reason="SchemaError", *, topic="p.t", form=FORM_RECORD, error="text"):
    return ParkedChange(topic, key, order(number), b"U", b"", form, reason, error, "token")


def redriven(key, number):
    return change(key, number, "", form=FORM_REDRIVEN)


def event(file, record, reason="InvalidEvent"):
    content = json.dumps({"file": file, "record": record, "error": "why"}).encode()
    return ParkedChange("", b"k", b"", b"", content, FORM_EVENT, reason, "why", "object")


def of(*changes, groups_max=1_000):
    letters = [DeadLetter(0, offset, one, 1_000 * offset) for offset, one in enumerate(changes, 1)]
    return grouped(lambda: iter([None, *letters]), groups_max=groups_max)


def test_records_of_one_reason_and_table_are_one_group_with_the_newest_one():
    found = of(
        change(b"a", 1), change(b"b", 2, topic="p.u"), change(b"a", 3, form=FORM_MESSAGE),
        change(b"a", 4, "KeyParked", error=""),
    )  # fmt: skip
    assert found.records == 4
    assert [(one.reason, one.subject, one.count) for one in found.listed()] == [
        ("KeyParked", "p.t", 1), ("SchemaError", "p.t", 2), ("SchemaError", "p.u", 1),
    ]  # fmt: skip
    one = found.listed()[1]
    assert (one.first_us, one.last_us, one.offset, one.topic_partition) == (1_000, 3_000, 3, 0)
    assert (one.error, one.token, one.is_file) == ("text", "token", False)
    assert one.place == "1970-01-01T00:00:03Z, tx, 7, 2"


def test_a_text_stays_when_a_newer_record_has_none():
    (one,) = of(change(b"a", 1, error="why"), change(b"a", 2, error="")).listed()
    assert (one.error, one.count, one.offset) == ("why", 2, 2)


def test_events_of_files_are_by_file_and_are_never_put_back():
    found = of(event("o/a.avro", 3), event("o/b.avro", 0, "FileCutShort"), event("o/a.avro", 9))
    first, second = found.listed()
    assert (first.subject, first.place, first.count, first.is_file) == (
        "o/a.avro", "record 9", 2, True,
    )  # fmt: skip
    assert (second.reason, second.subject, second.place) == ("FileCutShort", "o/b.avro", "record 0")


def test_what_was_put_back_is_left_out():
    found = of(
        change(b"a", 1), change(b"a", 2, "KeyParked"), redriven(b"a", 2), change(b"b", 1),
        change(b"a", 9),
    )  # fmt: skip
    assert found.records == 2
    (one,) = found.listed()
    assert (one.count, one.first_us, one.last_us) == (2, 4_000, 5_000)


def test_what_cannot_be_read_is_counted_too():
    odd = event("f", 1)._replace(content=b"{}"), change(b"a", 1)._replace(order_key=b"x")
    assert [(one.subject, one.place) for one in of(*odd).listed()] == [
        ("p.t", "unknown"), ("unknown", "unknown"),
    ]  # fmt: skip


def test_a_record_without_a_time_does_not_hide_the_others():
    groups = DeadLetterGroups()
    for offset, at_us in enumerate((None, 5, None, 3)):
        groups.add(DeadLetter(0, offset, change(b"a", offset + 1), at_us))
    (one,) = groups.listed()
    assert (one.count, one.first_us, one.last_us) == (4, 3, 5)


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 12))
def test_of_more_groups_than_it_holds_the_newest_stay(files, groups_max):
    found = of(*(event(f"f{number}", 1) for number in files), groups_max=groups_max)
    assert found.records == len(files)
    newest = list(dict.fromkeys(f"f{number}" for number in reversed(files)))
    assert [one.subject for one in found.listed()] == newest[:groups_max]
    assert (found.dropped > 0) == (len(set(files)) > groups_max)
    assert found.dropped or sum(one.count for one in found.listed()) == len(files)


def test_the_topic_is_read_twice_and_says_how_far_it_is():
    seen, reads = [], []

    def read():
        reads.append(1)
        return iter([DeadLetter(0, 0, change(b"a", 1)), None])

    grouped(read, progress=lambda what, done: seen.append((what.split()[0], done)))
    assert len(reads) == 2
    assert seen == [("looking", 1), ("looking", 1), ("counting", 1), ("counting", 1)]
