"""Parked changes come back as the messages that they would have been, in order, each once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_parking import (
    DAMAGE,
    DEAD_LETTER,
    LIMIT,
    RECORD,
    Bench,
    Limits,
    record_of,
)
from tidegate.producer.errors import MessageTooLarge, RedriveFailed
from tidegate.producer.messages import (
    FORM_MESSAGE,
    FORM_REDRIVEN,
    ChangeMessage,
    DeadLetter,
    ParkedChange,
)
from tidegate.producer.records import Mod
from tidegate.producer.translation import putting_back
from tidegate.producer.translation.parked_survey import ParkedSurvey, same_key
from tidegate.producer.translation.parking import POISON
from tidegate.producer.translation.putting_back import ParkedTranslator, batches
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.errors import SchemaError, UnreachableError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.output_form import Envelope

LARGE = {"p.t": 10 * LIMIT, DEAD_LETTER: 1_000_000}


def readable(text, name):
    assert (text, name) == (DAMAGE, "new_values")
    return {"note": "repaired"}


def unreadable(_text, _name):
    raise AssertionError("no values of this change are text")


def translator_of(bench, read_values=unreadable):
    return ParkedTranslator(bench.limited, bench.limits, read_values)


def parked(bench, *kinds, **fields):
    return bench.translate(record_of(*kinds, **fields)).parked


@pytest.mark.parametrize("envelope", Envelope)
def test_a_change_becomes_what_it_would_have_been(envelope):
    bench = Bench(envelope=envelope)
    (change,) = parked(bench, "good", "good", "large")
    bench.limits.of.update(LARGE)

    whole = bench.limited.translate(record_of("good", "good", "large"), token="token")
    assert translator_of(bench).message(change) == whole.messages[2]


@pytest.mark.parametrize("envelope", Envelope)
def test_values_that_can_be_read_now_are_published(envelope):
    bench = Bench(envelope=envelope)
    (change,) = parked(bench, "unreadable")

    repaired = RECORD._replace(mods=(Mod({"id": "0"}, {"note": "repaired"}, {"note": "old"}),))
    (expected,) = bench.limited.translate(repaired, token="token").messages
    assert translator_of(bench, readable).message(change) == expected


@pytest.mark.parametrize("kind", ["large", "nanoseconds", "unknown column"])
def test_what_is_still_poison_is_an_error(kind):
    bench = Bench()
    (change,) = parked(bench, kind)

    with pytest.raises(POISON) as caught:
        translator_of(bench).message(change)
    assert type(caught.value).__name__ == change.reason


def test_a_good_change_comes_back_as_it_is_if_its_topic_takes_it():
    bench = Bench()
    (good,) = bench.translate(record_of("good")).messages
    change = ParkedChange(
        *good[:2], good.order_key, good.mod, good.value, FORM_MESSAGE, "", "", "token"
    )

    assert translator_of(bench).message(change) == good
    other = change._replace(token="other")
    assert translator_of(bench).message(other) == good._replace(origin=origin_of("other"))
    limits = Limits()
    limits.of["p.t"] = good.size_bytes  # which leaves no room for another header
    with pytest.raises(MessageTooLarge) as caught:
        ParkedTranslator(bench.limited, limits, unreadable).message(change)
    assert caught.value.fields["topic"] == "p.t"
    assert caught.value.fields["commit_timestamp_us"] == 7_000
    limits.of["p.t"] = caught.value.fields["size_bytes"]
    assert ParkedTranslator(bench.limited, limits, unreadable).message(change) == good


def test_a_change_that_has_another_key_now_is_an_error():
    bench = Bench()
    (change,) = parked(bench, "large")
    bench.limits.of.update(LARGE)

    with pytest.raises(SchemaError, match="another key"):
        translator_of(bench).message(change._replace(key=b"other"))
    with pytest.raises(SchemaError):
        translator_of(bench).message(change._replace(content=b"{}"))


def test_a_change_that_has_another_key_now_stays_parked_and_the_others_are_put_back():
    bench = Bench()
    changes = [*parked(bench, "large"), *parked(bench, "good", "large")]
    bench.limits.of.update(LARGE)
    translate = translator_of(bench).message
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


# ---------------------------------------------------------------- batches


def place(order):
    return OrderKey(order, "tx", (0, 0), 0).encode()


def simple(key, order, form=FORM_MESSAGE, topic="p.t"):
    return ParkedChange(topic, key, place(order), b"U", b"v", form, "r", "e", "token")


def as_message(change):
    return ChangeMessage(
        change.topic, change.key, change.content, change.order_key, change.mod, bytes(8)
    )


def in_log(changes):
    """Return the changes as they stand in one topic partition."""
    return [DeadLetter(0, offset, change) for offset, change in enumerate(changes)]


def put_back(changes, *, topic=None, pauses=(), again=None, todays_key=same_key):
    """Return (messages, markers) of all batches, and the batches."""
    survey = ParkedSurvey(as_message, todays_key)
    for letter in in_log(changes):
        survey.note_redriven(letter)
    for letter in in_log(changes):
        survey.add(letter)
    read = in_log(changes if again is None else again)
    for position in pauses:
        read.insert(position, None)
    found = list(batches(read, survey, survey.select(topic), as_message))
    records = [record for batch in found for record in batch]
    messages = [message for record in records for message in record.messages]
    markers = [marker for record in records for marker in record.parked]
    return messages, markers, found


KEYS = st.sampled_from([b"a", b"b", b"c"])
CHANGES = st.lists(st.tuples(KEYS, st.integers(1, 50)), unique=True, max_size=30)


@given(CHANGES, st.integers(0, 30), st.lists(st.integers(0, 30), max_size=3))
def test_every_change_comes_once_in_the_order_of_its_key_and_then_a_marker(places, limit, pauses):
    changes = [simple(key, order) for key, order in places]
    before = [simple(key, limit, FORM_REDRIVEN) for key in (b"a", b"b") if limit]

    messages, markers, _ = put_back([*changes, *before], pauses=pauses)

    for key in (b"a", b"b", b"c"):
        done = limit if key != b"c" else 0
        due = sorted(order for own, order in places if own == key and order > done)
        assert [one.order_key for one in messages if one.key == key] == [place(n) for n in due]
        own = [one for one in markers if one.key == key]
        assert [one.order_key for one in own] == [place(n) for n in due[-1:]]
        assert all(one.form == FORM_REDRIVEN and one.value is None for one in own)


@given(CHANGES)
def test_the_changes_of_a_row_of_two_keys_come_in_their_order_and_each_key_has_its_marker(places):
    row_of = {b"a": b"a", b"b": b"a", b"c": b"c"}
    messages, markers, _ = put_back(
        [simple(key, order) for key, order in places],
        todays_key=lambda _topic, key: row_of[key],
    )
    for row in (b"a", b"c"):
        due = sorted(order for key, order in places if row_of[key] == row)
        own = [one.order_key for one in messages if row_of[one.key] == row]
        assert own == [place(n) for n in due]
    last = {key: place(max(n for own, n in places if own == key)) for key, _ in places}
    assert {one.key: one.order_key for one in markers} == last


def test_batches_are_small_and_come_also_while_nothing_is_read(monkeypatch):
    monkeypatch.setattr(putting_back, "_BATCH_CHANGES", 3)
    changes = [simple(b"a", order) for order in range(1, 9)]
    _, _, found = put_back(changes, pauses=(4,))
    assert [len(batch) for batch in found] == [3, 1, 3, 2]

    monkeypatch.setattr(putting_back, "_BATCH_BYTES", 2)
    _, _, found = put_back(changes)
    assert [len(batch) for batch in found] == [2, 2, 2, 2, 1]
    assert put_back([], pauses=(0,))[2] == [()]


def test_changes_that_are_not_selected_stay():
    changes = [simple(b"a", 1), simple(b"a", 2, topic="p.u"), simple(b"b", 3)]

    messages, markers, _ = put_back(changes, topic="p.t")
    assert [message.order_key for message in messages] == [place(1), place(3)]
    assert [marker.key for marker in markers] == [b"a", b"b"]


@pytest.mark.parametrize("again", [[], [simple(b"a", 1)], [simple(b"a", n) for n in (1, 2, 3)]])
def test_a_topic_that_changed_meanwhile_is_refused(again):
    with pytest.raises(RedriveFailed, match="changed"):
        put_back([simple(b"a", 1), simple(b"a", 2)], again=again)


def test_errors_of_the_translation_end_it():
    survey = ParkedSurvey(as_message)
    letters = in_log([simple(b"a", 1)])
    survey.add(*letters)

    def fail(_change):
        raise UnreachableError("no registry")

    with pytest.raises(UnreachableError):
        list(batches(letters, survey, survey.select(), fail))
