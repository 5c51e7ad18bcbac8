"""The broker: what `contract.py` does not ask of it, as it concerns this model alone."""

from __future__ import annotations

import pytest

from tests.unit.producer.memory.conftest import DATA, PROGRESS, SLOTS
from tidegate.producer.core.events import TopicState
from tidegate.producer.memory.broker import MemoryBroker, ProducerFenced
from tidegate.producer.memory.group import Group

FIRST, SECOND = (DATA, 0), (DATA, 1)


def values(broker, topic=DATA):
    return [entry.value for entry in broker.read(topic)]


def test_topics_have_their_partitions(broker):
    assert (broker.topic_partitions(DATA), broker.topic_partitions(PROGRESS)) == (2, SLOTS)


def test_a_topic_that_is_created_again_has_another_id_and_no_records(broker):
    broker.logs[FIRST].append(b"k", b"v", None)
    before = broker.describe_topic(DATA)
    broker.delete_topic(DATA)
    assert broker.describe_topic(DATA) == TopicState(DATA, None, 0)
    broker.create_topic(DATA, 2)

    assert broker.describe_topic(DATA).topic_id not in {None, before.topic_id}
    assert broker.read(DATA) == []


def test_a_topic_grows_and_keeps_its_id_and_records(broker):
    broker.logs[FIRST].append(b"k", b"v", None)
    before = broker.describe_topic(DATA)
    broker.add_topic_partitions(DATA, 5)

    assert broker.describe_topic(DATA) == TopicState(DATA, before.topic_id, 5)
    assert values(broker) == [b"v"]


def test_a_commit_shows_at_once(broker):
    handle = broker.init_producer("w")
    broker.produce(handle, FIRST, b"k", "one")
    assert values(broker) == []

    broker.end(handle, commit=True)
    assert values(broker) == ["one"]
    assert broker.unsettled == []


def test_markers_may_come_later_and_in_any_order():
    broker = MemoryBroker({DATA: 2}, group=Group(SLOTS), settles_at_once=False)
    handle = broker.init_producer("w")
    broker.produce(handle, FIRST, b"k", "one")
    broker.produce(handle, SECOND, b"k", "two")
    (transaction,) = [broker.end(handle, commit=True)]
    assert values(broker) == []

    broker.write_marker(transaction, 1)
    assert values(broker) == ["two"]
    broker.settle()
    assert values(broker) == ["one", "two"]


def test_a_transaction_that_timed_out_fences_its_producer(broker):
    handle = broker.init_producer("w")
    broker.produce(handle, FIRST, b"k", "late")
    assert broker.open_transactions == ["w"]
    assert broker.time_out("w")
    assert not broker.time_out("w")

    with pytest.raises(ProducerFenced):
        broker.end(handle, commit=True)
    assert values(broker) == []


def test_all_but_some_producers_are_timed_out(broker):
    kept, other = broker.init_producer("kept"), broker.init_producer("other")
    broker.produce(kept, FIRST, b"k", "kept")
    broker.produce(other, SECOND, b"k", "other")
    broker.time_out_all_but([kept])

    assert broker.open_transactions == ["kept"]


def test_a_transaction_that_sent_nothing_has_no_outcome(broker):
    assert broker.end(broker.init_producer("w"), commit=True) is None
