"""What the consumer asks a real broker about its topics: where they begin, and their ids."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.shared_stack import new_prefix
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.retention import complete_from_us, require_kept
from tidegate.spark_consumer.errors import ChangesExpired
from tidegate.spark_consumer.kafka.first_records import first_records
from tidegate.spark_consumer.kafka.topic_ids import LiveTopicIds

pytestmark = pytest.mark.integration

PREFIX, ELSE = new_prefix(), new_prefix()
TOPIC, OTHER, ANOTHER = f"{PREFIX}.accounts", f"{PREFIX}.ledger", f"{ELSE}.accounts"
SUBSCRIPTION = Subscription(TopicNames(PREFIX))
FIRST_MS = 1_700_000_000_000
PATIENCE_S = 60


@pytest.fixture(scope="module")
def address(kafka_and_registry):
    """A real broker's address."""
    return kafka_and_registry.bootstrap_servers


@pytest.fixture(scope="module")
def admin(address):
    return AdminClient({"bootstrap.servers": address})


def until(condition):
    """Wait for what a broker does a moment after it has answered."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.2)


def test_removed_records_are_seen_with_the_time_of_the_first_that_is_left(address, admin):
    topics = [NewTopic(TOPIC, 2, 1), NewTopic(ANOTHER, 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result()
    producer = Producer({"bootstrap.servers": address})
    for number in range(10):
        producer.produce(TOPIC, b"x", partition=1, timestamp=FIRST_MS + number)
    assert producer.flush(PATIENCE_S) == 0

    whole = first_records(address, {}, SUBSCRIPTION)
    assert TOPIC in whole
    assert ANOTHER not in whole
    assert set(whole[TOPIC]) == {0, 1}
    assert complete_from_us(whole, now_us=1) is None
    require_kept({TOPIC: {0: 0, 1: 0}}, whole)

    for future in admin.delete_records([TopicPartition(TOPIC, 1, 4)]).values():
        future.result()
    kept = first_records(address, {}, SUBSCRIPTION)
    assert (kept[TOPIC][1].offset, kept[TOPIC][1].timestamp_ms) == (4, FIRST_MS + 4)
    assert (kept[TOPIC][0].offset, kept[TOPIC][0].timestamp_ms) == (0, None)
    assert complete_from_us(kept, now_us=1) == (FIRST_MS + 4) * 1_000
    require_kept({TOPIC: {0: 0, 1: 4}}, kept)
    with pytest.raises(ChangesExpired, match="lost_from=3, lost_through=3"):
        require_kept({TOPIC: {0: 0, 1: 3}}, kept)

    for future in admin.delete_records([TopicPartition(TOPIC, 1, 10)]).values():
        future.result()
    assert complete_from_us(first_records(address, {}, SUBSCRIPTION), now_us=7) == 7


def test_a_topic_that_is_deleted_has_no_id_and_re_created_another_one(address, admin):
    ids = LiveTopicIds(address, {})
    for future in admin.create_topics([NewTopic(OTHER, 1, 1)]).values():
        future.result()
    until(lambda: ids([OTHER]).get(OTHER) is not None)
    before = ids([OTHER])[OTHER]
    for future in admin.delete_topics([OTHER]).values():
        future.result()
    until(lambda: ids([OTHER]) == {OTHER: None})
    for future in admin.create_topics([NewTopic(OTHER, 1, 1)]).values():
        future.result()
    until(lambda: ids([OTHER]).get(OTHER) not in (None, before))
