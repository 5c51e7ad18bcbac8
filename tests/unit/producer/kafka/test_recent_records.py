"""The records of a topic since a time: where they begin, their end, and which errors are raised."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition

from tidegate.producer.kafka import recent_records
from tidegate.producer.kafka.recent_records import RecentRecords
from tidegate.schemas.errors import ConfigError, UnreachableError

DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


def message(code=None, *, offset=0, partition=0):
    error = None if code is None else KafkaError(code)
    return SimpleNamespace(
        error=lambda: error, partition=lambda: partition, offset=lambda: offset,
        key=lambda: b"k", value=lambda: b"v", headers=lambda: [("order", b"o")],
        timestamp=lambda: (1, 5),
    )  # fmt: skip


AT_END = message(KafkaError._PARTITION_EOF)


class Consumer:
    """Gives the scripted batches, and then nothing."""

    def __init__(self, *batches, begin=0, error=None):
        self.batches, self.begin, self.error = list(batches), begin, error
        self.closed = False

    def offsets_for_times(self, places, *, timeout):
        found = [TopicPartition(place.topic, place.partition, self.begin) for place in places]
        return [self._with_error(place) for place in found]

    def _with_error(self, place):
        return SimpleNamespace(
            partition=place.partition, offset=-1001 if self.error else place.offset,
            error=self.error,
        )  # fmt: skip

    def assign(self, places):
        self.assigned = places

    def consume(self, count, timeout):
        return self.batches.pop(0) if self.batches else []

    def close(self):
        self.closed = True


@pytest.fixture
def recent(monkeypatch):
    monkeypatch.setattr(recent_records, "_SECONDS_MAX", 0.05)

    def read(consumer):
        monkeypatch.setattr(recent_records, "make_client", lambda *_: consumer)
        return RecentRecords("t", [0], since_ms=9, bootstrap_servers="b:1", client_group="g")

    return read


def test_records_come_up_to_the_end(recent):
    records = recent(Consumer([message(offset=7)], [message(offset=8), AT_END]))
    assert [(record.offset, record.written_us) for record in records] == [(7, 5_000), (8, 5_000)]
    assert (records.count, records.is_cut) == (2, False)


def test_a_topic_partition_without_a_record_since_then_is_not_read(recent):
    assert list(recent(Consumer(begin=-1))) == []


def test_an_end_that_does_not_come_is_not_awaited_for_good(recent):
    records = recent(Consumer([message(), message(KafkaError._TRANSPORT)]))
    assert len(list(records)) == 1
    assert records.is_cut


def test_a_topic_of_which_nothing_could_be_read_is_not_an_empty_one(recent):
    away = message(KafkaError._TRANSPORT)
    with pytest.raises(UnreachableError, match=r"topic t cannot be read to its end .*cause="):
        list(recent(Consumer(*[[away]] * 10_000)))


def test_a_missing_right_to_read_is_an_error(recent):
    with pytest.raises(ConfigError, match=r"cannot read topic t.*denies access to topics"):
        list(recent(Consumer([message(DENIED)])))


def test_a_group_that_only_names_the_client_needs_no_right(recent):
    denied = message(KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert len(list(recent(Consumer([denied, message(), AT_END])))) == 1


def test_a_beginning_that_cannot_be_found_is_an_error(recent):
    consumer = Consumer(error=KafkaError(DENIED))
    with pytest.raises(ConfigError, match="cannot read topic t"):
        recent(consumer)
    assert consumer.closed
