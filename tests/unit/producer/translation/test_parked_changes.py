"""Parked changes come back as the messages that they would have been, in order, each once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_parked_record import (
    DAMAGE,
    DEAD_LETTER,
    LIMIT,
    Bench,
    Limits,
    record_of,
)
from tidegate.producer.errors import MessageTooLarge, RedriveFailed
from tidegate.producer.messages import (
    FORM_EVENT,
    FORM_MESSAGE,
    FORM_RECORD,
    FORM_REDRIVEN,
    ChangeMessage,
    DeadLetter,
    ParkedChange,
)
from tidegate.producer.records import Mod
from tidegate.producer.translation import parked_changes
from tidegate.producer.translation.dead_letter_groups import DeadLetterGroups, grouped
from tidegate.producer.translation.parked_changes import (
    KeyName,
    ParkedSurvey,
    ParkedTranslator,
    batches,
    same_key,
)
from tidegate.producer.translation.pipeline import POISON
from tidegate.schemas.checksums import origin_of, parked_key
from tidegate.schemas.errors import SchemaError, UnreachableError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.output_form import Envelope

LARGE = {"p.t": 10 * LIMIT, DEAD_LETTER: 1_000_000}
A, B = KeyName("p.t", b"a"), KeyName("p.t", b"b")


def readable(text, name):
    assert (text, name) == (DAMAGE, "new_values")
    return {"note": "repaired"}


def unreadable(_text, _name):
    raise AssertionError("no values of this change are text")


def translator_of(bench, read_values=unreadable):
    return ParkedTranslator(bench.limited, bench.limits, read_values)


def place(order):
    return OrderKey(order * 1_000_000, "tx", (0, 7), 2).encode()


def change(key, order, form=FORM_MESSAGE, *, topic="p.t", mod=b"U", reason="SchemaError",
           error="text"):  # fmt: skip
    return ParkedChange(topic, key, place(order), mod, b"v", form, reason, error, "token")


def redriven(key, order):
    return change(key, order, FORM_REDRIVEN)


def in_log(changes):
    return [DeadLetter(0, offset, record) for offset, record in enumerate(changes)]


@pytest.mark.parametrize("envelope", Envelope)
def test_a_change_becomes_what_it_would_have_been(envelope):
    bench = Bench(envelope=envelope)
    (large,) = bench.translate("good", "good", "large").parked
    (damaged,) = bench.translate("unreadable").parked
    repaired = record_of(mods=(Mod({"id": "0"}, {"note": "repaired"}, {"note": "old"}),))
    (expected,) = bench.limited.translate(repaired, token="token").messages
    assert translator_of(bench, readable).message(damaged) == expected
    bench.limits.of.update(LARGE)
    whole = bench.limited.translate(record_of("good", "good", "large"), token="token")
    assert translator_of(bench).message(large) == whole.messages[2]


@pytest.mark.parametrize("kind", ["large", "nanoseconds", "unknown column"])
def test_what_is_still_poison_is_an_error(kind):
    bench = Bench()
    (parked,) = bench.translate(kind).parked
    with pytest.raises(POISON) as caught:
        translator_of(bench).message(parked)
    assert type(caught.value).__name__ == parked.reason


def test_a_good_change_comes_back_as_it_is_if_its_topic_takes_it():
    bench = Bench()
    (good,) = bench.translate("good").messages
    parked = ParkedChange(
        *good[:2], good.order_key, good.mod, good.value, FORM_MESSAGE, "", "", "token"
    )
    assert translator_of(bench).message(parked) == good
    other = parked._replace(token="other")
    assert translator_of(bench).message(other) == good._replace(origin=origin_of("other"))
    limits = Limits()
    limits.of["p.t"] = good.size_bytes  # which leaves no room for another header
    with pytest.raises(MessageTooLarge) as caught:
        ParkedTranslator(bench.limited, limits, unreadable).message(parked)
    assert caught.value.fields["topic"] == "p.t"
    assert caught.value.fields["commit_timestamp_us"] == 7_000
    limits.of["p.t"] = caught.value.fields["size_bytes"]
    assert ParkedTranslator(bench.limited, limits, unreadable).message(parked) == good


def test_a_change_that_has_another_key_now_stays_parked_and_the_others_are_put_back():
    bench = Bench()
    changes = [*bench.translate("large").parked, *bench.translate("good", "large").parked]
    bench.limits.of.update(LARGE)
    translate = translator_of(bench).message
    with pytest.raises(SchemaError, match="another key"):
        translate(changes[0]._replace(key=b"other"))
    with pytest.raises(SchemaError):
        translate(changes[0]._replace(content=b"{}"))
    letters = in_log([changes[0]._replace(key=b"of before"), changes[1]])
    survey = ParkedSurvey(translate)
    for letter in letters:
        survey.add(letter)
    selection = survey.select()
    (left,) = selection.left
    assert (left.name.key, left.reason) == (b"of before", "SchemaError")
    assert "backfill the table" in left.error
    (batch,) = batches(letters, survey, selection, translate)
    assert [message for record in batch for message in record.messages] == [translate(changes[1])]


class Translate:
    def __init__(self, *poison):
        self.poison, self.asked = [place(order) for order in poison], []

    def __call__(self, change_message):
        self.asked.append(change_message.order_key)
        if change_message.order_key in self.poison:
            raise SchemaError("still poison")


def surveyed(translate, *changes, todays_key=same_key):
    survey = ParkedSurvey(translate, todays_key)
    letters = in_log(changes) if not isinstance(changes[0], DeadLetter) else changes
    for letter in letters:
        survey.note_redriven(letter)
    for letter in letters:
        survey.add(letter)
    return survey


def test_a_key_is_put_back_as_a_whole():
    survey = surveyed(
        Translate(), change(b"a", 1), change(b"b", 2), change(b"a", 3, FORM_RECORD, mod=b"D"),
        change(b"c", 1, FORM_EVENT, topic=""),  # an event of a file has no key
    )  # fmt: skip
    chosen, left = survey.select()
    assert (list(chosen), left) == ([A, B], [])
    key = chosen[A]
    assert (key.changes, key.first, key.last, key.mod) == (2, place(1), place(3), b"D")
    assert key.is_sorted
    assert survey.select().numbers == {parked_key(*A), parked_key(*B)}
    assert survey.select().changes == 3


def test_one_change_that_is_still_poison_keeps_its_key():
    translate = Translate(3)
    survey = surveyed(translate, change(b"a", 1), change(b"b", 2), change(b"a", 3), change(b"a", 4))
    chosen, (left,) = survey.select()
    assert list(chosen) == [B]
    assert (left.name, left.changes, left.reason) == (A, 3, "SchemaError")
    assert "still poison" in left.error
    assert translate.asked == [place(1), place(2), place(3)]


def test_the_keys_of_one_row_go_back_together_and_in_the_order_of_the_row():
    def lower(_topic, key):
        return key.lower()

    both = change(b"A", 1), change(b"b", 2), change(b"a", 3), change(b"A", 4)
    chosen, left = surveyed(Translate(), *both, todays_key=lower).select()
    assert (list(chosen), left) == ([KeyName("p.t", b"A"), A, B], [])
    assert {name.key: key.is_sorted for name, key in chosen.items()} == {
        b"A": False, b"a": False, b"b": True
    }  # fmt: skip
    for poison, reasons in ((1, {b"A": "SchemaError", b"a": "SharedNumber"}),
                            (3, {b"A": "SharedNumber", b"a": "SchemaError"})):  # fmt: skip
        chosen, left = surveyed(Translate(poison), *both, todays_key=lower).select()
        assert list(chosen) == [B]
        assert {key.name.key: key.reason for key in left} == reasons
    # A table that is known only after its first change was translated.
    survey = ParkedSurvey(Translate(), lambda _topic, key: key.lower() if known else key)
    known = []
    survey.add(in_log(both)[0])
    known.append(True)
    survey.add(in_log(both)[2])
    assert not any(key.is_sorted for key in survey.select().chosen.values())


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ((change(b"a", 1), change(b"a", 2), redriven(b"a", 2), change(b"a", 9)), (1, place(9))),
        # What comes later is another change, whatever its order: the stream may have been reset.
        ((change(b"a", 4), redriven(b"a", 5), change(b"a", 3)), (1, place(3))),
        ((change(b"a", 9), redriven(b"a", 5), redriven(b"a", 3)), (1, place(9))),
        # In another topic partition a marker counts by its order.
        ((DeadLetter(1, 0, redriven(b"a", 5)), DeadLetter(0, 7, change(b"a", 5)),
          DeadLetter(0, 8, change(b"a", 6))), (1, place(6))),
    ],
    ids=["parked again", "a lower order later", "two markers", "another topic partition"],
)  # fmt: skip
def test_a_marker_is_about_what_stands_before_it(changes, left):
    (key,) = surveyed(Translate(), *changes).select().chosen.values()
    assert (key.name, key.changes, key.first) == (A, *left)


def test_what_was_put_back_is_over():
    changes = change(b"a", 1), change(b"a", 2), redriven(b"a", 2), change(b"b", 1)
    survey = surveyed(Translate(1, 2), *changes)
    assert [key.name for key in survey.select().left] == [B]
    assert [survey.is_parked(letter) for letter in in_log(changes)] == [False, False, False, True]


@pytest.mark.parametrize("poison", [(), (2,)])
def test_keys_that_share_a_number_go_together(monkeypatch, poison):
    """A stream partition that forgets one of them would let later changes of the other pass."""
    monkeypatch.setattr(parked_changes, "parked_key", lambda _topic, key: len(key))
    other = change(b"b", 2, topic="p.u")
    chosen, left = surveyed(Translate(*poison), change(b"a", 1), other, change(b"cc", 3)).select()
    assert (A in chosen) == (not poison)
    assert KeyName("p.t", b"cc") in chosen
    assert [key.reason for key in left] == (["SharedNumber", "SchemaError"] if poison else [])
    # The other table is not to be put back, so its key stays, and A with it.
    _, (stays,) = surveyed(Translate(), change(b"a", 1), other).select("p.t")
    assert (stays.name, stays.reason) == (A, "SharedNumber")
    assert "p.u" in stays.error


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(1, 20)), unique=True, min_size=1)
)
def test_disorder_is_noticed(places):
    survey = surveyed(Translate(), *(change(key, order) for key, order in places))
    for name, key in survey.select().chosen.items():
        orders = [order for own, order in places if own == name.key]
        assert key.is_sorted == (orders == sorted(orders))
        assert (key.first, key.last) == (place(min(orders)), place(max(orders)))


def as_message(change):
    return ChangeMessage(
        change.topic, change.key, change.content, change.order_key, change.mod, bytes(8)
    )


def put_back(changes, *, topic=None, pauses=(), again=None, todays_key=same_key):
    """Return (messages, markers) of all batches, and the batches."""
    survey = (
        surveyed(as_message, *changes, todays_key=todays_key) if changes else ParkedSurvey(None)
    )
    read = in_log(changes if again is None else again)
    for position in pauses:
        read.insert(position, None)
    record_batches = list(batches(read, survey, survey.select(topic), as_message))
    records = [record for batch in record_batches for record in batch]
    messages = [message for record in records for message in record.messages]
    markers = [marker for record in records for marker in record.parked]
    return messages, markers, record_batches


KEYS = st.sampled_from([b"a", b"b", b"c"])
CHANGES = st.lists(st.tuples(KEYS, st.integers(1, 50)), unique=True, max_size=30)


@given(CHANGES, st.integers(0, 30), st.lists(st.integers(0, 30), max_size=3))
def test_every_change_comes_once_in_the_order_of_its_key_and_then_a_marker(places, limit, pauses):
    changes = [change(key, order) for key, order in places]
    before = [redriven(key, limit) for key in (b"a", b"b") if limit]
    messages, markers, _ = put_back([*changes, *before], pauses=pauses)
    for key in (b"a", b"b", b"c"):
        done = limit if key != b"c" else 0
        due = sorted(order for own, order in places if own == key and order > done)
        assert [message.order_key for message in messages if message.key == key] == [
            place(n) for n in due
        ]
        own = [marker for marker in markers if marker.key == key]
        assert [marker.order_key for marker in own] == [place(n) for n in due[-1:]]
        assert all(marker.form == FORM_REDRIVEN and marker.value is None for marker in own)


@given(CHANGES)
def test_the_changes_of_a_row_of_two_keys_come_in_their_order_and_each_key_has_its_marker(places):
    row_of = {b"a": b"a", b"b": b"a", b"c": b"c"}
    messages, markers, _ = put_back(
        [change(key, order) for key, order in places], todays_key=lambda _topic, key: row_of[key]
    )
    for row in (b"a", b"c"):
        due = sorted(order for key, order in places if row_of[key] == row)
        own = [message.order_key for message in messages if row_of[message.key] == row]
        assert own == [place(n) for n in due]
    last = {key: place(max(n for own, n in places if own == key)) for key, _ in places}
    assert {marker.key: marker.order_key for marker in markers} == last


def test_batches_are_small_and_come_also_while_nothing_is_read(monkeypatch):
    monkeypatch.setattr(parked_changes, "_BATCH_CHANGES", 3)
    changes = [change(b"a", order) for order in range(1, 9)]
    assert [len(batch) for batch in put_back(changes, pauses=(4,))[2]] == [3, 1, 3, 2]
    monkeypatch.setattr(parked_changes, "_BATCH_BYTES", 2)
    assert [len(batch) for batch in put_back(changes)[2]] == [2, 2, 2, 2, 1]
    assert put_back([], pauses=(0,))[2] == [()]


def test_one_table_may_be_chosen_and_other_changes_stay():
    survey = surveyed(Translate(2), change(b"a", 1), change(b"a", 2, topic="p.u"))
    chosen, left = survey.select("p.u")
    assert (chosen, [key.name for key in left]) == ({}, [KeyName("p.u", b"a")])
    changes = [change(b"a", 1), change(b"a", 2, topic="p.u"), change(b"b", 3)]
    messages, markers, _ = put_back(changes, topic="p.t")
    assert [message.order_key for message in messages] == [place(1), place(3)]
    assert [marker.key for marker in markers] == [b"a", b"b"]


def test_a_topic_that_changed_meanwhile_and_errors_that_may_pass_end_the_batches():
    for again in ([], [1], [1, 2, 3]):
        with pytest.raises(RedriveFailed, match="changed"):
            put_back(
                [change(b"a", 1), change(b"a", 2)], again=[change(b"a", number) for number in again]
            )

    def fail(_change):
        raise UnreachableError("no registry")

    with pytest.raises(UnreachableError):
        surveyed(fail, change(b"a", 1))
    survey = surveyed(as_message, change(b"a", 1))
    with pytest.raises(UnreachableError):
        list(batches(in_log([change(b"a", 1)]), survey, survey.select(), fail))


def event(file, record, reason="InvalidEvent"):
    content = json.dumps({"file": file, "record": record, "error": "why"}).encode()
    return ParkedChange("", b"k", b"", b"", content, FORM_EVENT, reason, "why", "object")


def groups_of(*changes, groups_max=1_000):
    letters = [
        DeadLetter(0, offset, letter, 1_000 * offset) for offset, letter in enumerate(changes, 1)
    ]
    return grouped(lambda: iter([None, *letters]), groups_max=groups_max)


def test_records_of_one_reason_and_table_are_one_group_with_the_newest_one():
    groups = groups_of(
        change(b"a", 1), change(b"b", 2, topic="p.u"), change(b"a", 3, error=""),
        change(b"a", 4, reason="KeyParked", error=""),
    )  # fmt: skip
    assert groups.records == 4
    assert [(group.reason, group.subject, group.count) for group in groups.listed()] == [
        ("KeyParked", "p.t", 1), ("SchemaError", "p.t", 2), ("SchemaError", "p.u", 1),
    ]  # fmt: skip
    group = groups.listed()[1]
    assert (group.first_us, group.last_us, group.offset, group.topic_partition) == (
        1_000,
        3_000,
        3,
        0,
    )
    # A text stays when a newer record has none.
    assert (group.error, group.token, group.is_file) == ("text", "token", False)
    assert group.place == "1970-01-01T00:00:03Z, tx, 7, 2"


def test_events_of_files_are_by_file_and_what_was_put_back_is_left_out():
    first, second = groups_of(
        event("o/a.avro", 3), event("o/b.avro", 0, "FileCutShort"), event("o/a.avro", 9)
    ).listed()
    assert (first.subject, first.place, first.count) == ("o/a.avro", "record 9", 2)
    assert first.is_file
    assert (second.reason, second.subject, second.place) == ("FileCutShort", "o/b.avro", "record 0")
    groups = groups_of(change(b"a", 1), change(b"a", 2), redriven(b"a", 2), change(b"b", 1),
                      change(b"a", 9))  # fmt: skip
    assert groups.records == 2
    (group,) = groups.listed()
    assert (group.count, group.first_us, group.last_us) == (2, 4_000, 5_000)


def test_what_cannot_be_read_or_has_no_time_is_counted_too():
    odd = event("f", 1)._replace(content=b"{}"), change(b"a", 1)._replace(order_key=b"x")
    assert [(group.subject, group.place) for group in groups_of(*odd).listed()] == [
        ("p.t", "unknown"), ("unknown", "unknown"),
    ]  # fmt: skip
    groups = DeadLetterGroups()
    for offset, at_us in enumerate((None, 5, None, 3)):
        groups.add(DeadLetter(0, offset, change(b"a", offset + 1), at_us))
    (group,) = groups.listed()
    assert (group.count, group.first_us, group.last_us) == (4, 3, 5)


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 12))
def test_of_more_groups_than_it_holds_the_newest_stay(files, groups_max):
    groups = groups_of(*(event(f"f{number}", 1) for number in files), groups_max=groups_max)
    assert groups.records == len(files)
    newest = list(dict.fromkeys(f"f{number}" for number in reversed(files)))
    assert [group.subject for group in groups.listed()] == newest[:groups_max]
    assert (groups.dropped > 0) == (len(set(files)) > groups_max)
    assert groups.dropped or sum(group.count for group in groups.listed()) == len(files)


def test_the_topic_is_read_twice_and_says_how_far_it_is():
    seen, reads = [], []

    def read():
        reads.append(1)
        return iter([DeadLetter(0, 0, change(b"a", 1)), None])

    grouped(read, progress=lambda what, done: seen.append((what.split()[0], done)))
    assert len(reads) == 2
    assert seen == [("looking", 1), ("looking", 1), ("counting", 1), ("counting", 1)]
