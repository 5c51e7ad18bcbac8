"""Where topics begin, as Kafka's admin client answers."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import UnreachableError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.retention import FirstRecord
from tidegate.spark_consumer.kafka import first_records as kafka

SUBSCRIPTION = Subscription(TopicNames("bank"))
BEGINS = {("bank.a", 0): 7, ("bank.a", 1): 0, ("bank-progress", 0): 0, ("other.a", 0): 3}
FIRSTS = {("bank.a", 0): (8, 5_000), ("bank.a", 1): (-1, -1), ("bank-progress", 0): (0, 1_000)}


def done(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.fixture
def admin(monkeypatch):
    class Admin:
        def __init__(self, config):
            self.config = config

        def list_topics(self, *, timeout):
            topics = {}
            for topic, number in BEGINS:
                topics.setdefault(topic, SimpleNamespace(partitions={})).partitions[number] = None
            return SimpleNamespace(topics=topics)

        def list_offsets(self, specs, *, request_timeout):
            answers = {}
            for place, spec in specs.items():
                name = (place.topic, place.partition)
                offset, timestamp = {
                    "TimestampSpec": lambda name: FIRSTS[name],
                    "EarliestSpec": lambda name: (BEGINS[name], -1),
                    "LatestSpec": lambda name: (BEGINS[name] + 100, -1),
                }[type(spec).__name__](name)
                answers[place] = done(SimpleNamespace(offset=offset, timestamp=timestamp))
            return answers

    monkeypatch.setattr(kafka, "AdminClient", Admin)
    return Admin


def test_where_it_ends_and_offset_and_time_of_the_first_record_of_what_the_gate_reads(admin):
    assert kafka.first_records("broker:9092", {}, SUBSCRIPTION) == {
        "bank.a": {0: FirstRecord(7, 5_000, 107), 1: FirstRecord(0, None, 100)},
        "bank-progress": {0: FirstRecord(0, 1_000, 100)},
    }


def test_topics_of_others_are_passed_over_however_they_begin(admin, monkeypatch):
    for topic in ("bank-metrics", "bank.a.of.others", "bank-dead-letter", "bank_x-progress"):
        monkeypatch.setitem(BEGINS, (topic, 0), 3)
    found = kafka.first_records("broker:9092", {}, SUBSCRIPTION)
    assert found.keys() == {"bank.a", "bank-progress"}
    names = TopicNames("bank", "{prefix}.{table}.of.others")
    monkeypatch.setitem(FIRSTS, ("bank.a.of.others", 0), (3, 1))
    found = kafka.first_records("broker:9092", {}, Subscription(names))
    assert found.keys() == {"bank.a.of.others", "bank-progress"}


def test_a_broker_that_does_not_answer_is_unreachable(admin, monkeypatch):
    def fail(self, *, timeout):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(admin, "list_topics", fail)
    with pytest.raises(UnreachableError, match="broker:9092"):
        kafka.first_records("broker:9092", {}, SUBSCRIPTION)
