"""The search reads the root's slot once, over chunks and errors, and stops at the record."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from tidegate.producer.kafka import slot_consumer
from tidegate.producer.kafka.stream_start import KafkaStreamStartFinder
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    StreamStarted,
)
from tidegate.schemas.progress_chunks import split
from tidegate.schemas.progress_codec import encode_record
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import frame

STARTED = StreamStarted(
    stream="s",
    dialect="GOOGLE_STANDARD_SQL",
    start_ns=1_000,
    end_ns=None,
    group="g",
    slots=4,
    progress_topic_id="id",
    topics=(DataTopic("t", "id", 3, 1),),
    children=(ChildPartition("a", (), 1_000), ChildPartition("b", (), 1_000)),
)
END = KafkaError(KafkaError._PARTITION_EOF)


class Consumer:
    """Returns what a test gave it, batch by batch."""

    def __init__(self, config):
        self.config = config
        self.batches = []
        self.is_closed = False

    def assign(self, places):
        self.assigned = [(place.topic, place.partition, place.offset) for place in places]

    def consume(self, _count, _timeout_s):
        return self.batches.pop(0) if self.batches else []

    def close(self):
        self.is_closed = True


def message(offset, body):
    """Return a record as a message."""
    value = frame(1, encode_record(ProgressRecord("e", "w", body)))
    return SimpleNamespace(error=lambda: None, value=lambda: value, offset=lambda: offset)


def failed(error):
    """Return an event instead of a message."""
    return SimpleNamespace(error=lambda: error)


@pytest.fixture
def finder(monkeypatch):
    monkeypatch.setattr(slot_consumer, "Consumer", Consumer)
    return KafkaStreamStartFinder(
        bootstrap_servers="x", group="g", topic="g-progress", root_slot=2,
        decoder=ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[1]),
    )  # fmt: skip


@pytest.fixture
def batches(finder):
    """What the consumer returns, poll by poll."""
    return finder._consumer.batches


def test_it_reads_committed_records_from_the_beginning_and_joins_nothing(finder):
    consumer = finder._consumer

    assert consumer.assigned == [("g-progress", 2, 0)]
    assert consumer.config["isolation.level"] == "read_committed"
    assert consumer.config["group.id"] == "g-stream-start"
    finder.close()
    assert consumer.is_closed


def test_a_missing_acl_ends_the_search(finder, batches):
    batches.append([failed(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized"))])
    with pytest.raises(ConfigError, match="cannot read the progress topic: Kafka denies"):
        finder.poll()


def test_it_finds_the_record_among_others(finder, batches):
    announced = PartitionAnnounced(ChildPartition("a", (), 1), "")
    batches.append([message(0, announced), message(1, STARTED), failed(END)])

    assert finder.poll() == (ProgressRecord("e", "w", STARTED), False)


def test_chunks_may_come_in_several_polls(finder, batches):
    first, second = split(STARTED, items_max=1)
    batches += [[message(0, first)], [message(1, second)]]

    assert finder.poll() == (None, False)
    assert finder.poll() == (ProgressRecord("e", "w", STARTED), False)


@pytest.mark.parametrize(
    ("error", "at_end"), [(END, True), (KafkaError(KafkaError._TRANSPORT), False)]
)
def test_only_the_end_of_the_slot_is_its_end(finder, batches, error, at_end):
    batches.append([failed(error)])

    assert finder.poll() == (None, at_end)
