"""Topics in memory are made once and never altered."""

from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.data_topics import MemoryDataTopics
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.message_limits import MemoryMessageLimits
from tidegate.schemas.progress import DataTopic


def test_a_missing_topic_is_made_and_an_existing_one_kept():
    broker = MemoryBroker({"p-progress": 1, "p.old": 2}, group=Group(1))
    limits = MemoryMessageLimits(broker, ["p.old"])
    found = []
    topics = MemoryDataTopics(broker, limits, topic_partitions=3, on_found=found.append)
    kept = broker.logs["p.old", 0]
    for _ in range(2):
        topics.ensure("p.new", key_schema_id=7)
        topics.ensure("p.old", key_schema_id=8)

    assert broker.topic_partitions("p.new") == 3
    assert broker.topic_partitions("p.old") == 2
    assert broker.logs["p.old", 0] is kept
    ids = [broker.describe_topic(topic).topic_id for topic in ("p.new", "p.old")]
    new, old = DataTopic("p.new", ids[0], 3, 7), DataTopic("p.old", ids[1], 2, 8)
    assert found == [new, old, new, old]
    assert limits.bytes_max("p.new") == broker.bytes_max("p.new")
