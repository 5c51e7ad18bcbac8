"""Asking Kafka for the ids of topics."""

import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import ClassVar

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.kafka import topic_ids
from tidegate.spark_consumer.kafka.topic_ids import LiveTopicIds, may_exist


def answered(answer):
    future = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(SimpleNamespace(topic_id=answer))
    return future


@pytest.fixture
def admins(monkeypatch):
    """Counts the clients that are made, and gives them their answers."""
    made = []

    class Admin:
        answers: ClassVar = {}

        def __init__(self, config):
            made.append(config)

        def describe_topics(self, topics, *, request_timeout):
            return {name: answered(one) for name, one in self.answers.items()}

    monkeypatch.setattr(topic_ids, "AdminClient", Admin)
    return Admin, made


def test_a_topic_that_does_not_exist_has_no_id_and_one_without_an_answer_is_left_out(admins):
    admin, made = admins
    admin.answers = {
        "bank.a": "one",
        "bank.b": KafkaError.UNKNOWN_TOPIC_OR_PART,
        "bank.c": KafkaError._TIMED_OUT,
    }
    ids = LiveTopicIds("broker:9092", {"client.id": "x"})
    with structlog.testing.capture_logs() as lines:
        assert ids(["bank.a", "bank.b", "bank.c"]) == {"bank.a": "one", "bank.b": None}
    assert [(line["event"], line["topic"]) for line in lines] == [
        ("topic description failed", "bank.c")
    ]
    # A client that has failed is replaced by another one.
    admin.answers = {"bank.a": "one"}
    assert ids(["bank.a"]) == ids(["bank.a"]) == {"bank.a": "one"}
    assert len(made) == 2
    assert {config["client.id"] for config in made} == {"x"}


def test_a_closed_client_is_kept_by_nothing_and_a_later_call_starts_another(admins):
    admin, made = admins
    admin.answers = {"bank.a": "one"}
    ids = LiveTopicIds("broker:9092", {})
    client = weakref.ref(ids._admin)
    assert ids(["bank.a"]) == {"bank.a": "one"}
    ids.close()
    assert client() is None
    assert ids(["bank.a"]) == {"bank.a": "one"}
    assert len(made) == 2


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("one", True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
        (KafkaError._TIMED_OUT, True),
    ],
)
def test_a_topic_may_exist_unless_kafka_says_that_it_does_not(admins, answer, expected):
    admin, _ = admins
    admin.answers = {"bank.a": answer}
    assert may_exist("bank.a", bootstrap_servers="broker:9092", options={}) is expected


def test_options_that_the_client_rejects_are_an_error_at_once():
    with pytest.raises(ConfigError):
        LiveTopicIds("broker:9092", {"no.such.option": "x"})
