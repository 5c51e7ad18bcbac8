"""A benchmark's worker on the broker in memory: what it knows of its topics, and how it ends."""

import pytest

from benchmarks.producer.memory_fleet import data_topic, step, topic_id
from tidegate.producer.errors import TopicsChangedError
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.group import Group
from tidegate.schemas.errors import InvariantViolation


class Stopped:
    def __init__(self, error):
        self.error = error

    def step(self):
        return False


def test_topics_are_known_as_the_broker_has_them():
    broker = MemoryBroker({"data": 4, "progress": 2}, group=Group(2))
    found = data_topic(broker, "data")
    assert (found.topic_id, found.topic_partitions) == (broker.describe_topic("data").topic_id, 4)
    assert topic_id(broker, "progress") == broker.describe_topic("progress").topic_id


def test_a_worker_that_has_stopped_ends_its_benchmark():
    with pytest.raises(TopicsChangedError, match="re-created"):
        step(Stopped(TopicsChangedError(["a topic was re-created"])))
    with pytest.raises(InvariantViolation):
        step(Stopped(None))
