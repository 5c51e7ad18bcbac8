"""Looks at the group are asked for and taken in without waiting; no broker is needed for that."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from tidegate.producer.adapters import group_lookout
from tidegate.producer.adapters.group_lookout import GroupLookout
from tidegate.producer.core.group_watch import RejoinGroup, WatchLimits

EVERY = group_lookout._EVERY_US
LATE = group_lookout._LATE_US
GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Admins:
    """Stands for the class of admin clients: remembers what each was asked."""

    def __init__(self):
        self.made = 0
        self.asked = []

    def __call__(self, _config):
        self.made += 1
        return self

    def describe_consumer_groups(self, groups, **_):
        promise = Future()
        self.asked.append(promise)
        return dict.fromkeys(groups, promise)


@pytest.fixture
def admins(monkeypatch):
    made = Admins()
    monkeypatch.setattr(group_lookout, "AdminClient", made)
    monkeypatch.setattr(group_lookout, "_LIMITS", WatchLimits(patience_us=EVERY))
    return made


@pytest.fixture
def lookout(admins):
    """A worker's that has begun at 0."""
    made = GroupLookout({}, group="g", worker="w", client_id="w-1", slots=3)
    assert made.look(0) is None
    return made


def described(*, state=ConsumerGroupState.STABLE, client_id="w-1"):
    """Return a group of w and another one; slot 2 is nobody's."""
    members = [
        SimpleNamespace(
            group_instance_id=name,
            member_id=f"{name}-id",
            client_id=client,
            assignment=SimpleNamespace(topic_partitions=[TopicPartition("t", n) for n in slots]),
        )
        for name, client, slots in (("w", client_id, [0]), ("x", "x-1", [1]))
    ]
    return SimpleNamespace(state=state, members=members)


def look_twice(lookout, admins, *answers):
    """Ask and answer, and again; return what the second look decided."""
    decision = None
    for number, answer in enumerate(answers, 1):
        assert lookout.look(number * EVERY) is None
        admins.asked[-1].set_result(answer)
        decision = lookout.look(number * EVERY + 1)
    return decision


def test_nothing_is_asked_before_it_is_time(lookout, admins):
    assert lookout.look(EVERY - 1) is None
    assert admins.made == 0
    lookout.look(EVERY)
    lookout.look(EVERY + 1)

    assert len(admins.asked) == 1


def test_what_was_seen_twice_is_acted_upon(lookout, admins):
    assert look_twice(lookout, admins, described(), described()) == RejoinGroup((2,))
    assert admins.made == 1


@pytest.mark.parametrize(
    "second",
    [described(state=ConsumerGroupState.PREPARING_REBALANCING), described(client_id="w-younger")],
    ids=["within a round", "replaced"],
)
def test_what_a_round_or_a_successor_shows_is_not(lookout, admins, second):
    assert look_twice(lookout, admins, described(), second) is None


def test_a_late_answer_is_dropped_and_another_one_asked_for(lookout, admins):
    lookout.look(EVERY)
    admins.asked[-1].set_result(described())
    assert lookout.look(EVERY + LATE) is None
    lookout.look(2 * EVERY)
    admins.asked[-1].set_result(described())

    assert lookout.look(2 * EVERY + 1) is None, "the first look did not count"


def test_an_answer_that_never_comes_is_not_waited_for(lookout, admins):
    lookout.look(EVERY)
    lookout.look(EVERY + LATE)
    lookout.look(2 * EVERY)

    assert len(admins.asked) == 2


def test_a_failed_look_is_no_look_and_makes_a_new_client(lookout, admins):
    lookout.look(EVERY)
    admins.asked[-1].set_result(described())
    lookout.look(EVERY + 1)
    lookout.look(2 * EVERY)
    admins.asked[-1].set_exception(GONE)
    assert lookout.look(2 * EVERY + 1) is None
    lookout.look(3 * EVERY)
    admins.asked[-1].set_result(described())

    assert lookout.look(3 * EVERY + 1) == RejoinGroup((2,))
    assert admins.made == 2
