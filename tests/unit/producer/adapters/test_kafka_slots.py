"""What the group's adapter does when the broker does not answer; no broker is needed for that."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tidegate.producer.adapters import kafka_slots
from tidegate.producer.adapters.kafka_slots import KafkaSlots
from tidegate.schemas.errors import UnreachableError

STALE = KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Admin:
    """Answers with what stands next in `ends`; an error until the leaders were learnt anew."""

    def __init__(self, ends):
        self.ends = iter(ends)
        self.refreshed = 0

    def list_offsets(self, places, **_):
        end = next(self.ends)
        answer = Future()
        if isinstance(end, Exception):
            answer.set_exception(end)
        else:
            answer.set_result(SimpleNamespace(offset=end))
        return dict.fromkeys(places, answer)

    def describe_consumer_groups(self, groups, **_):
        answer = Future()
        members = next(self.ends)
        if isinstance(members, Exception):
            answer.set_exception(members)
        else:
            found = [SimpleNamespace(group_instance_id=n, member_id=m) for n, m in members]
            answer.set_result(SimpleNamespace(members=found))
        return dict.fromkeys(groups, answer)

    def list_topics(self, *_, **__):
        self.refreshed += 1
        raise GONE


class Consumer:
    """Gives committed offsets from a script."""

    def __init__(self, answers):
        self.answers = iter(answers)
        self.assigned = []

    def committed(self, places, timeout):
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, KafkaError):
            return [SimpleNamespace(error=answer, offset=-1001)]
        return [SimpleNamespace(error=None, offset=answer)]

    def memberid(self):
        return "w-me"

    def incremental_unassign(self, places):
        pass

    def incremental_assign(self, places):
        self.assigned += [(place.partition, place.offset) for place in places]


@pytest.fixture
def slots(monkeypatch):
    monkeypatch.setattr(kafka_slots, "_ASK_AGAIN_S", 0.0)
    return KafkaSlots(
        bootstrap_servers="127.0.0.1:1",
        group="g",
        worker="w",
        topic="t",
        session_timeout_ms=6_000,
        listener=SimpleNamespace(),
        options={"log_level": 0},
    )


def test_a_restart_of_the_broker_does_not_end_a_recovery(slots):
    slots._admin = Admin([STALE, GONE, STALE, 42])
    slots._consumer = Consumer([GONE, 7])
    begun = slots.recover(3, 1)

    assert (begun.end_offset, begun.from_beginning) == (42, False)
    assert slots._consumer.assigned == [(3, 7)]
    assert slots._admin.refreshed >= 3


def test_an_offset_that_cannot_be_read_is_asked_for_again(slots):
    unstable = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    slots._admin = Admin([42])
    slots._consumer = Consumer([unstable, unstable, TopicPartition("t", 3).offset])

    assert slots.recover(3, 1).from_beginning


@pytest.mark.parametrize("what", ["offsets", "end"])
def test_patience_ends(slots, monkeypatch, what):
    monkeypatch.setattr(kafka_slots, "_PATIENCE_S", -1.0)
    slots._admin = Admin(itertools.repeat(GONE))
    slots._consumer = Consumer([GONE if what == "offsets" else 7])

    with pytest.raises(UnreachableError, match="slot=3"):
        slots.recover(3, 1)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([("w", "w-me"), ("other", "other-1")], False),
        ([("w", "w-younger")], True),
        ([("other", "other-1")], False),
        ([], False),
    ],
)
def test_a_successor_is_who_the_group_knows_by_the_same_name(slots, members, expected):
    slots._admin = Admin([GONE, members])
    slots._consumer = Consumer([])

    assert slots.has_successor() == expected
