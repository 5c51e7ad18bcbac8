"""Topics in memory are made once and never altered."""

from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.data_topics import MemoryDataTopics
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.message_limits import MemoryMessageLimits


def test_a_missing_topic_is_made_and_an_existing_one_kept():
    broker = MemoryBroker({"p-progress": 1, "p.old": 2}, group=Group(1))
    limits = MemoryMessageLimits(broker, ["p.old"])
    topics = MemoryDataTopics(broker, limits, topic_partitions=3)
    kept = broker.logs["p.old", 0]
    for _ in range(2):
        topics.ensure("p.new")
        topics.ensure("p.old")

    assert broker.topic_partitions("p.new") == 3
    assert broker.topic_partitions("p.old") == 2
    assert broker.logs["p.old", 0] is kept
    assert limits.bytes_max("p.new") == broker.bytes_max("p.new")
