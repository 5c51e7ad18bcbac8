"""Which keys can be put back: those without a change that still cannot be published."""

import pytest
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
from tidegate.producer.translation import parked_survey
from tidegate.producer.translation.parked_survey import KeyName, ParkedSurvey
from tidegate.schemas.checksums import parked_key
from tidegate.schemas.errors import SchemaError, UnreachableError


def change(key, order, *, topic="p.t", form=FORM_RECORD, mod=b"U"):
    return ParkedChange(topic, key, bytes([order]), mod, b"", form, "r", "e", "token")


def redriven(key, order):
    return change(key, order, form=FORM_REDRIVEN)


class Translate:
    """Refuses the changes with these order keys."""

    def __init__(self, *poison):
        self.poison = poison
        self.asked = []

    def __call__(self, one):
        self.asked.append(one)
        if one.order_key[0] in self.poison:
            raise SchemaError("still poison", order=one.order_key[0])


def in_log(changes):
    """Return the changes as they stand in one topic partition."""
    return [DeadLetter(0, offset, one) for offset, one in enumerate(changes)]


def surveyed(translate, *changes):
    return surveyed_letters(translate, in_log(changes))


def surveyed_letters(translate, letters):
    survey = ParkedSurvey(translate)
    for letter in letters:
        survey.note_redriven(letter)
    for letter in letters:
        survey.add(letter)
    return survey


def names(selection):
    return [key.name for key in selection.left]


A, B = KeyName("p.t", b"a"), KeyName("p.t", b"b")


def test_an_event_of_a_file_is_of_no_key():
    survey = surveyed(Translate(), change(b"a", 1, topic="", form=FORM_EVENT), change(b"b", 2))
    assert list(survey.select().chosen) == [B]


def test_a_key_is_put_back_as_a_whole():
    survey = surveyed(
        Translate(), change(b"a", 1), change(b"b", 2), change(b"a", 3, form=FORM_MESSAGE, mod=b"D")
    )
    chosen, left = survey.select()

    assert left == []
    assert list(chosen) == [A, B]
    key = chosen[A]
    assert (key.changes, key.first, key.last, key.mod) == (2, b"\1", b"\3", b"D")
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
    assert [one.order_key[0] for one in translate.asked] == [1, 2, 3]


def test_the_keys_of_one_row_go_back_together_and_in_the_order_of_the_row():
    def todays_key(_topic, key):
        return key.lower()

    def surveyed_rows(translate, *changes):
        survey = ParkedSurvey(translate, todays_key)
        for letter in in_log(changes):
            survey.add(letter)
        return survey

    both = change(b"A", 1), change(b"b", 2), change(b"a", 3), change(b"A", 4)
    chosen, left = surveyed_rows(Translate(), *both).select()
    assert (list(chosen), left) == ([KeyName("p.t", b"A"), A, B], [])
    assert {name.key: key.is_sorted for name, key in chosen.items()} == {
        b"A": False, b"a": False, b"b": True
    }  # fmt: skip
    for poison in (1, 3):  # of either key
        chosen, left = surveyed_rows(Translate(poison), *both).select()
        assert list(chosen) == [B]
        assert {key.name.key: key.reason for key in left} == {
            b"A": "SchemaError" if poison == 1 else "SharedNumber",
            b"a": "SchemaError" if poison == 3 else "SharedNumber",
        }
    # A table that is known only after its first change was translated.
    survey = ParkedSurvey(Translate(), lambda _topic, key: key.lower() if known else key)
    known = []
    survey.add(in_log(both)[0])
    known.append(True)
    survey.add(in_log(both)[2])
    assert not any(key.is_sorted for key in survey.select().chosen.values())


def test_what_was_put_back_is_over():
    changes = change(b"a", 1), change(b"a", 2), redriven(b"a", 2), change(b"b", 1)
    translate = Translate(1, 2)
    survey = surveyed(translate, *changes)
    assert names(survey.select()) == [B]
    assert [survey.is_parked(one) for one in in_log(changes)] == [False, False, False, True]

    # Parked again, after it had been put back.
    again = surveyed(Translate(), *changes[:3], change(b"a", 9))
    (key,) = again.select().chosen.values()
    assert (key.name, key.changes, key.first) == (A, 1, b"\t")


def test_a_marker_is_about_what_stands_before_it():
    """What comes later is another change, whatever its order: the stream may have been reset."""
    survey = surveyed(Translate(), change(b"a", 4), redriven(b"a", 5), change(b"a", 3))
    (key,) = survey.select().chosen.values()
    assert (key.changes, key.first) == (1, b"\3")

    later = surveyed(Translate(), change(b"a", 9), redriven(b"a", 5), redriven(b"a", 3))
    assert later.select().chosen[A].changes == 1


def test_a_marker_in_another_topic_partition_counts_by_its_order():
    letters = [
        DeadLetter(1, 0, redriven(b"a", 5)),
        DeadLetter(0, 7, change(b"a", 5)),
        DeadLetter(0, 8, change(b"a", 6)),
    ]
    (key,) = surveyed_letters(Translate(), letters).select().chosen.values()
    assert (key.changes, key.first) == (1, b"\6")


def test_one_table_may_be_chosen():
    survey = surveyed(Translate(2), change(b"a", 1), change(b"a", 2, topic="p.u"))

    assert survey.select("p.u").chosen == {}
    assert names(survey.select("p.u")) == [KeyName("p.u", b"a")]
    assert list(survey.select("p.t").chosen) == [A]
    assert survey.select("p.t").left == []


@pytest.mark.parametrize("poison", [(), (2,)])
def test_keys_that_share_a_number_go_together(monkeypatch, poison):
    """A stream partition that forgets one of them would let later changes of the other pass."""
    monkeypatch.setattr(parked_survey, "parked_key", lambda _topic, key: len(key))
    other = change(b"b", 2, topic="p.u")
    survey = surveyed(Translate(*poison), change(b"a", 1), other, change(b"cc", 3))

    chosen, left = survey.select()
    assert (A in chosen) == (not poison)
    assert KeyName("p.t", b"cc") in chosen
    assert [key.reason for key in left] == (["SharedNumber", "SchemaError"] if poison else [])
    # The other table is not to be put back, so its key stays, and A with it.
    _, (stays,) = surveyed(Translate(), change(b"a", 1), other).select("p.t")
    assert (stays.name, stays.reason) == (A, "SharedNumber")
    assert "p.u" in stays.error


def test_what_may_pass_ends_the_survey():
    def translate(_change):
        raise UnreachableError("no registry")

    with pytest.raises(UnreachableError):
        surveyed(translate, change(b"a", 1))


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(1, 20)), unique=True))
def test_disorder_is_noticed(places):
    survey = surveyed(Translate(), *(change(key, order) for key, order in places))

    for name, key in survey.select().chosen.items():
        orders = [order for own, order in places if own == name.key]
        assert key.is_sorted == (orders == sorted(orders))
        assert (key.first, key.last) == (bytes([min(orders)]), bytes([max(orders)]))
