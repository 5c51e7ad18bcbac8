"""After the first parked change of a key, every later one is parked, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.core.conftest import message, parked_change
from tidegate.producer.core.publication import PARKED_KEYS_MAX, ParkedKeys
from tidegate.producer.errors import TooManyParkedKeys
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord
from tidegate.schemas.checksums import parked_key


def good(key, number, topic="t"):
    return message(b"%04d" % number, key, topic, b"value-%d" % number)


def poison(key, number, topic="t"):
    return parked_change(b"%04d" % number, key, topic)


def divert(before, *changes):
    messages = tuple(change for change in changes if isinstance(change, ChangeMessage))
    parked = tuple(change for change in changes if isinstance(change, ParkedChange))
    record = PublishableRecord(1, "tx", "0", messages, parked)
    return before.divert(record, token="token")


ONE = ParkedKeys(frozenset({parked_key("t", b"a")}), 1)


def test_a_row_that_an_earlier_version_parked_under_another_key_is_parked():
    before = ParkedKeys(frozenset({parked_key("t", b"-0")}), 1)
    renamed = good(b"0", 2)._replace(former_keys=(b"-0",))
    other = good(b"1", 3)._replace(former_keys=(b"-1",))
    diverted, after = divert(before, renamed, other, good(b"0", 4, topic="u"))
    assert diverted.messages == (other, good(b"0", 4, topic="u"))
    assert [(one.key, one.order_key) for one in diverted.parked] == [(b"0", b"0002")]
    assert after.keys == before.keys


def test_a_record_without_parked_keys_stays_the_same_object():
    record = PublishableRecord(1, "tx", "0", (good(b"other", 1),))
    diverted, after = ONE.divert(record, token="token")
    assert diverted is record
    assert after is ONE


def test_as_many_keys_as_may_be_are_parked_and_no_further_one():
    changes = [poison(b"%d" % number, number) for number in range(PARKED_KEYS_MAX)]
    _, full = divert(ParkedKeys(), *changes)
    assert len(full.keys) == PARKED_KEYS_MAX
    diverted, after = divert(full, good(b"0", 5_000), poison(b"1", 5_001))
    assert (len(diverted.parked), after.keys) == (2, full.keys)
    for before in (full, ParkedKeys().inherit(range(PARKED_KEYS_MAX))):
        with pytest.raises(TooManyParkedKeys, match="why") as caught:
            divert(before, poison(b"another", 5_002))
        assert caught.value.fields["token"] == "token"


def test_parents_add_their_keys_and_not_their_changes():
    both = ParkedKeys(frozenset({1}), 9).inherit((2, 3)).inherit((1, 4))
    assert both == ParkedKeys(frozenset({1, 2, 3, 4}), 9)
    assert both.inherit((2,)) is both
    assert both.inherit(()) is both


def test_what_was_put_back_is_forgotten_and_stays_counted():
    parked = ParkedKeys(frozenset({1, 2}), 5)
    assert parked.without(frozenset({2, 7})) == ParkedKeys(frozenset({1}), 5)
    assert parked.without(frozenset({7})) is parked


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
TOPICS = st.sampled_from(["t", "u"])
RECORDS = st.lists(st.lists(st.tuples(st.booleans(), KEYS, TOPICS), max_size=5), max_size=6)


@given(RECORDS)
def test_per_key_what_is_published_comes_before_what_is_parked(records):
    number, state, published, parked = 0, ParkedKeys(), [], []
    expected_parked, bad, everything = [], set(), []
    for mods in records:
        changes = []
        for is_poison, key, topic in mods:
            number += 1
            changes.append((poison if is_poison else good)(key, number, topic))
            everything.append(b"%04d" % number)
            if is_poison:
                bad.add((topic, key))
            if (topic, key) in bad:
                expected_parked.append(b"%04d" % number)
        diverted, state = divert(state, *changes)
        published += diverted.messages
        parked += diverted.parked
    assert [one.order_key for one in parked] == expected_parked
    assert sorted(one.order_key for one in (*published, *parked)) == everything
    assert state == ParkedKeys(frozenset(parked_key(*place) for place in bad), len(parked))
