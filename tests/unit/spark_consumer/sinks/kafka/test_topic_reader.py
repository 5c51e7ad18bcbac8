"""The newest record is found from the end; a scripted consumer stands for confluent-kafka's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.program.kafka_errors import AT_END
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.sinks.kafka import topic_reader
from tidegate.spark_consumer.sinks.kafka.topic_reader import TopicReader

DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Message:
    def __init__(self, offset, value=None, error=None):
        self.offset, self.value, self.error = (lambda: offset), (lambda: value), (lambda: error)


class Broker:
    """Offsets of one topic: `records` are those that are committed, by topic partition."""

    def __init__(self, *records, begin=0, end=10):
        self.records, self.begin, self.end = records, begin, end
        self.stable_end = end
        self.starts = []
        self.closed = 0
        self.error = None

    # ------------------------------------------------------------ the admin client

    def list_offsets(self, places, *, isolation_level, request_timeout):
        assert isolation_level.name == "READ_UNCOMMITTED"
        kinds = {type(spec).__name__ for spec in places.values()}
        offset = self.begin if kinds == {"EarliestSpec"} else self.end
        return {place: SimpleNamespace(result=lambda: self.answer(offset)) for place in places}

    def answer(self, offset):
        if isinstance(self.error, KafkaError) and self.error.code() == KafkaError._TIMED_OUT:
            raise KafkaException(self.error)
        return SimpleNamespace(offset=offset)

    # ------------------------------------------------------------ the consumer

    def assign(self, places):
        (place,) = places
        self.starts.append((place.partition, place.offset))
        self.left = [
            Message(offset, value)
            for offset, value in self.records[place.partition]
            if place.offset <= offset < self.stable_end
        ]
        self.left.append(Message(self.stable_end, error=KafkaError(AT_END)))

    def consume(self, number, _timeout_s):
        if self.error is not None:
            return [Message(0, error=self.error)]
        found, self.left = self.left[:1], self.left[1:]
        return found

    def close(self):
        self.closed += 1


class Clock:
    now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def reader_of(monkeypatch):
    def make(broker, tail_offsets=1_000):
        monkeypatch.setattr(topic_reader, "AdminClient", lambda _config: broker)
        monkeypatch.setattr(topic_reader, "consume_from_beginning", lambda *_, **__: broker)
        monkeypatch.setattr(topic_reader, "time", Clock())
        return TopicReader("x", {}, patience_s=20.0, tail_offsets=tail_offsets)

    return make


def test_the_last_record_is_the_newest(reader_of):
    broker = Broker([(2, b"a"), (4, b"b"), (7, b"c")])
    assert reader_of(broker).newest_value("t") == b"c"
    assert broker.closed == 1


def test_reading_begins_near_the_end(reader_of):
    broker = Broker([(0, b"a"), (96, b"b")], end=100)
    assert reader_of(broker, tail_offsets=10).newest_value("t") == b"b"
    assert broker.starts == [(0, 90)]


def test_reading_goes_back_where_nothing_near_the_end_was_committed(reader_of):
    broker = Broker([(3, b"a")], begin=2, end=1_000)
    assert reader_of(broker, tail_offsets=10).newest_value("t") == b"a"
    assert broker.starts == [(0, 990), (0, 900), (0, 2)]


@pytest.mark.parametrize("begin", [0, 10])
def test_a_topic_without_committed_records_has_no_newest_one(reader_of, begin):
    assert reader_of(Broker([], begin=begin, end=10)).newest_value("t") is None


def test_an_open_transaction_is_waited_for(reader_of):
    broker = Broker([(2, b"a"), (8, b"b")])
    broker.stable_end = 5
    consume = broker.consume

    def consume_and_settle(number, timeout_s):
        if not broker.left and broker.stable_end == 5:
            broker.stable_end = 10
            broker.left = [Message(8, b"b"), Message(10, error=KafkaError(AT_END))]
        return consume(number, timeout_s)

    broker.consume = consume_and_settle
    assert reader_of(broker).newest_value("t") == b"b"


def test_a_transaction_that_stays_open_is_reported(reader_of):
    broker = Broker([(2, b"a")])
    broker.stable_end = 5
    with pytest.raises(UnreachableError, match="cannot be read to its end") as caught:
        reader_of(broker).newest_value("t")
    assert caught.value.fields == {"topic": "t", "end": 10}
    assert broker.closed == 1


def test_a_record_behind_the_end_is_not_read(reader_of):
    broker = Broker([(2, b"a"), (10, b"b")], end=10)
    broker.stable_end = 11
    assert reader_of(broker).newest_value("t") == b"a"


@pytest.mark.parametrize(
    ("records", "expected"),
    [([[], []], False), ([[], [(3, b"a")]], True), ([[(1, b"a")], []], True)],
)
def test_any_committed_record_counts(reader_of, records, expected):
    broker = Broker(*records)
    assert reader_of(broker).has_records("t", 2) is expected
    assert broker.closed == len(broker.starts)


def test_a_right_that_is_missing_is_named(reader_of):
    broker = Broker([(2, b"a")])
    broker.error = DENIED
    with pytest.raises(ConfigError, match="cannot read topic t"):
        reader_of(broker).newest_value("t")


def test_other_errors_are_the_clients_to_retry(reader_of):
    broker = Broker([(2, b"a")])
    broker.error = KafkaError(KafkaError._TRANSPORT)
    with pytest.raises(UnreachableError, match="cannot be read to its end"):
        reader_of(broker).newest_value("t")


def test_ends_that_kafka_does_not_give_are_reported(reader_of):
    broker = Broker([(2, b"a")])
    broker.error = KafkaError(KafkaError._TIMED_OUT)
    with pytest.raises(UnreachableError, match="cannot find the end of topic t"):
        reader_of(broker).newest_value("t")
