"""What the group's adapter does when the broker does not answer; no broker is needed for that."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tidegate.producer.adapters import kafka_slots
from tidegate.producer.adapters.kafka_slots import KafkaSlots
from tidegate.schemas.errors import ProducerError, UnreachableError

STALE = KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Admin:
    """Answers what it was given; an error stands for a client that has seen its broker go."""

    def __init__(self, answer):
        self.answer = answer

    def _promise(self, result):
        promise = Future()
        if isinstance(self.answer, Exception):
            promise.set_exception(self.answer)
        else:
            promise.set_result(result())
        return promise

    def list_offsets(self, places, **_):
        promise = self._promise(lambda: SimpleNamespace(offset=self.answer))
        return dict.fromkeys(places, promise)

    def describe_consumer_groups(self, groups, **_):
        def describe():
            found = [SimpleNamespace(group_instance_id=n, client_id=c) for n, c in self.answer]
            return SimpleNamespace(members=found)

        return dict.fromkeys(groups, self._promise(describe))


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

    def incremental_unassign(self, places):
        pass

    def incremental_assign(self, places):
        self.assigned += [(place.partition, place.offset) for place in places]


@pytest.fixture
def admins(monkeypatch):
    """The answers of admin clients, one client each."""
    monkeypatch.setattr(kafka_slots, "_ASK_AGAIN_S", 0.0)
    answers = []
    monkeypatch.setattr(kafka_slots, "AdminClient", lambda _config: Admin(answers.pop(0)))
    return answers


@pytest.fixture
def slots(admins):
    admins.append(GONE)
    return KafkaSlots(
        bootstrap_servers="127.0.0.1:1",
        group="g",
        worker="w",
        topic="t",
        session_timeout_ms=6_000,
        listener=SimpleNamespace(),
        options={"log_level": 0},
    )


def test_a_restart_of_the_broker_does_not_end_a_recovery(slots, admins):
    admins += [GONE, STALE, 42]
    slots._consumer = Consumer([GONE, 7])
    begun = slots.recover(3, 1)

    assert (begun.end_offset, begun.from_beginning) == (42, False)
    assert slots._consumer.assigned == [(3, 7)]


def test_an_offset_that_cannot_be_read_is_asked_for_again(slots, admins):
    unstable = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    admins += [42, 42]
    slots._consumer = Consumer([unstable, unstable, TopicPartition("t", 3).offset])

    assert slots.recover(3, 1).from_beginning


@pytest.mark.parametrize("what", ["offsets", "end"])
def test_patience_ends(slots, monkeypatch, what):
    monkeypatch.setattr(kafka_slots, "_PATIENCE_S", -1.0)
    slots._consumer = Consumer([GONE if what == "offsets" else 7])

    with pytest.raises(UnreachableError, match="slot=3"):
        slots.recover(3, 1)


@pytest.mark.parametrize(
    ("others", "has_me", "expected"),
    [
        ([("other", "other-1")], True, False),
        ([("w", "w-younger")], False, True),
        ([("other", "other-1")], False, False),
        ([], False, False),
    ],
)
def test_a_successor_is_another_client_by_the_same_name(slots, admins, others, has_me, expected):
    mine = [("w", slots._client_id)] if has_me else []
    admins += [[*others, *mine]]

    assert slots.has_successor() == expected


class ThrownOut:
    """A member whom the group fences at the first poll; a member that stays after that."""

    made = 0

    def __init__(self, _config):
        type(self).made += 1
        self.is_first = type(self).made == 1
        self.closed = False

    def subscribe(self, _topics, **callbacks):
        self.callbacks = callbacks

    def consume(self, _count, _timeout):
        error = KafkaError(KafkaError._FATAL, fatal=True)
        fenced = SimpleNamespace(error=lambda: error, partition=lambda: None, offset=lambda: None)
        return [fenced] if self.is_first else []

    def incremental_assign(self, places):
        pass

    def incremental_unassign(self, places):
        pass

    def close(self):
        self.closed = True
        self.callbacks["on_revoke"](self, [TopicPartition("t", 3)])


@pytest.fixture
def thrown_out(admins, monkeypatch):
    """A worker that owns slot 3 and is fenced; what its listener is told."""
    admins.append(GONE)
    monkeypatch.setattr(kafka_slots, "Consumer", type("Member", (ThrownOut,), {"made": 0}))
    told = []
    listener = SimpleNamespace(
        slots_assigned=lambda slots: told.append(("assigned", slots)),
        slots_revoked=lambda slots: told.append(("revoked", slots)),
        slots_lost=lambda slots: told.append(("lost", slots)),
    )
    member = KafkaSlots(
        bootstrap_servers="x",
        group="g",
        worker="w",
        topic="t",
        session_timeout_ms=6_000,
        listener=listener,
    )
    member.start()
    consumer = member._consumer
    consumer.callbacks["on_assign"](consumer, [TopicPartition("t", 3)])
    return member, told


def test_who_is_thrown_out_and_has_no_successor_joins_anew(thrown_out, admins):
    """The error has no topic partition, and was once passed over for that."""
    member, told = thrown_out
    former = member._consumer
    admins.append([])

    assert member.poll(0.0) == []
    assert told == [("assigned", (3,)), ("lost", (3,))]
    assert former.closed
    assert member._consumer is not former
    assert member._consumer.callbacks.keys() == {"on_assign", "on_revoke", "on_lost"}
    assert member.poll(0.0) == []


def test_who_is_thrown_out_by_a_successor_ends(thrown_out, admins):
    member, told = thrown_out
    admins.append([("w", "w-younger")])

    with pytest.raises(ProducerError, match="thrown this worker out"):
        member.poll(0.0)
    assert told == [("assigned", (3,))]
