"""What the group's adapter does when the broker does not answer; no broker is needed for that."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tidegate.producer.adapters import kafka_slots
from tidegate.producer.adapters.kafka_slots import KafkaSlots
from tidegate.producer.core.events import SlotPassed
from tidegate.producer.core.group_watch import RejoinGroup
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

    def list_consumer_group_offsets(self, asked, *, require_stable=False, **_):
        if asked[0].group_id == "g-w":
            place = SimpleNamespace(error=None, metadata=self.answer)
            return {"g-w": self._promise(lambda: SimpleNamespace(topic_partitions=[place]))}
        assert require_stable, "an open transaction may move the offset"
        error = self.answer if isinstance(self.answer, KafkaError) else None
        place = SimpleNamespace(error=error, offset=-1001 if error else self.answer)
        promise = self._promise(lambda: SimpleNamespace(topic_partitions=[place]))
        return {one.group_id: promise for one in asked}

    def alter_consumer_group_offsets(self, asked, **_):
        error = self.answer if isinstance(self.answer, KafkaError) else None
        self.signed = asked[0].topic_partitions[0].metadata
        place = SimpleNamespace(error=error)
        promise = self._promise(lambda: SimpleNamespace(topic_partitions=[place]))
        return {one.group_id: promise for one in asked}


class Consumer:
    """Remembers where it was told to read; refuses the first `refusals` seeks."""

    def __init__(self, refusals=0):
        self.refusals = refusals
        self.places = []
        self.messages = []

    def incremental_assign(self, places):
        self.places += [(place.partition, place.offset) for place in places]

    def seek(self, place):
        if self.refusals:
            self.refusals -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.places.append((place.partition, place.offset))

    def consume(self, _count, _timeout):
        messages, self.messages = self.messages, []
        return messages


def end_of(slot, offset):
    """The event that a slot's end was reached."""
    error = KafkaError(KafkaError._PARTITION_EOF)
    return SimpleNamespace(error=lambda: error, partition=lambda: slot, offset=lambda: offset)


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
        slots=4,
        options={"log_level": 0},
    )


class Scripted:
    """An admin client for one answer after the other, as long as none of them is an error."""

    def __init__(self, answers):
        self.answers = answers

    def __getattr__(self, name):
        return getattr(Admin(self.answers.pop(0)), name)


def test_a_restart_of_the_broker_does_not_end_a_recovery(slots, admins, monkeypatch):
    answers = [GONE, 7, GONE, STALE, 42]
    monkeypatch.setattr(kafka_slots, "AdminClient", lambda _config: Scripted(answers))
    slots._consumer = Consumer()
    slots._assigned = {3}
    begun = slots.recover(3, 1)

    assert (begun.end_offset, begun.from_beginning) == (42, False)
    assert slots._consumer.places == [(3, 7)]


def test_a_slot_that_is_being_assigned_is_read_from_its_fence_at_once(slots, admins):
    """What is assigned twice within the callback is a rebalance that never ends."""
    slots._consumer, slots._admin = Consumer(), Scripted([7, 42, -1001, 42])
    slots._listener = SimpleNamespace(
        slots_assigned=lambda numbers: [slots.recover(number, 1) for number in numbers]
    )
    slots._on_assign(slots._consumer, [TopicPartition("t", 3), TopicPartition("t", 5)])

    assert slots._consumer.places == [(3, 7), (5, 0)]


def test_what_is_read_before_the_seek_is_old(slots):
    slots._consumer, slots._admin = Consumer(refusals=2), Scripted([7, 42])
    slots._assigned = {3}
    slots.recover(3, 9)
    slots._consumer.messages = [end_of(3, 40)]
    assert slots.poll(0.0) == []
    slots._consumer.messages = [end_of(3, 42)]

    assert slots.poll(0.0) == [SlotPassed(3, 9, 42)]
    assert slots._consumer.places == [(3, 7)]


def test_a_slot_that_is_gone_is_not_sought(slots):
    slots._consumer, slots._admin = Consumer(), Scripted([7, 42])
    slots.recover(3, 9)
    slots.poll(0.0)

    assert slots._consumer.places == []


def test_an_offset_that_cannot_be_read_is_asked_for_again(slots, monkeypatch):
    unstable = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    answers = [unstable, unstable, -1001, 42]
    slots._admin = Scripted(answers)
    monkeypatch.setattr(kafka_slots, "AdminClient", lambda _config: pytest.fail("not needed"))
    slots._consumer = Consumer()

    assert slots.recover(3, 1).from_beginning


@pytest.mark.parametrize("known", [[], [7]])
def test_patience_ends(slots, monkeypatch, known):
    monkeypatch.setattr(kafka_slots, "_PATIENCE_S", -1.0)
    slots._admin = Scripted([*known, GONE])
    slots._consumer = Consumer()

    with pytest.raises(UnreachableError, match="slot=3"):
        slots.recover(3, 1)


def test_the_name_is_signed_for_before_the_group_is_joined(slots, monkeypatch):
    admins = [Admin(GONE), Admin(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)), Admin("")]
    slots._admin, last = admins[0], admins[-1]
    monkeypatch.setattr(kafka_slots, "AdminClient", lambda _config: admins.pop(1))
    order = []
    slots._consumer = SimpleNamespace(subscribe=lambda *_, **__: order.append(last.signed))
    slots.start()

    assert order == [slots._client_id]


@pytest.mark.parametrize(
    ("signature", "expected"), [("mine", False), ("another's", True), ("", False), (None, False)]
)
def test_a_successor_is_who_has_signed_for_the_name_since(slots, admins, signature, expected):
    admins += [slots._client_id if signature == "mine" else signature]

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
    admins.append("")
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
        slots=4,
    )
    member.start()
    consumer = member._consumer
    consumer.callbacks["on_assign"](consumer, [TopicPartition("t", 3)])
    return member, told


def test_who_is_thrown_out_and_has_no_successor_joins_anew(thrown_out):
    """The error has no topic partition, and was once passed over for that."""
    member, told = thrown_out
    former = member._consumer
    member._admin = Admin(member._client_id)

    assert member.poll(0.0) == []
    assert told == [("assigned", (3,)), ("lost", (3,))]
    assert former.closed
    assert member._consumer is not former
    assert member._consumer.callbacks.keys() == {"on_assign", "on_revoke", "on_lost"}
    assert member.poll(0.0) == []


def test_who_is_thrown_out_by_a_successor_ends(thrown_out):
    member, told = thrown_out
    member._admin = Admin("another's")

    with pytest.raises(ProducerError, match="thrown this worker out"):
        member.poll(0.0)
    assert told == [("assigned", (3,))]


def test_a_member_that_finds_orphans_leaves_and_joins(admins, monkeypatch):
    calls = []
    made = SimpleNamespace(
        subscribe=lambda _topics, **_callbacks: calls.append("subscribe"),
        unsubscribe=lambda: calls.append("unsubscribe"),
        consume=lambda _count, _timeout: calls.append("consume") or [],
    )
    monkeypatch.setattr(kafka_slots, "Consumer", lambda _config: made)
    admins.append(GONE)
    member = KafkaSlots(
        bootstrap_servers="x",
        group="g",
        worker="w",
        topic="t",
        session_timeout_ms=6_000,
        listener=SimpleNamespace(),
        slots=4,
        on_orphans=lambda: calls.append("told"),
    )
    decisions = [RejoinGroup((2,)), None]
    member._lookout = SimpleNamespace(look=lambda _now_us: decisions.pop(0))
    member.poll(0.0)
    member.poll(0.0)

    assert calls == ["told", "unsubscribe", "subscribe", "consume", "consume"]
