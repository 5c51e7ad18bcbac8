"""Which failures of Kafka are retried, how long, and what is raised in the end."""

from __future__ import annotations

import gc
import weakref

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.kafka import retries

GONE = KafkaError(KafkaError._TRANSPORT, retriable=True)
REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Pauses pass at once; the list holds them."""
    pauses = []
    monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
    return pauses


def failing(*errors):
    """Return a call that raises these errors, one at a time, and then answers; and its count."""
    left = list(errors)
    calls = []

    def call():
        calls.append(len(left))
        if left:
            raise left.pop(0)
        return "answer"

    return call, calls


def test_a_call_is_retried_with_pauses_until_it_answers(clock):
    seen = []
    call, calls = failing(KafkaException(GONE), KafkaException(REFUSED))

    assert retries.retry(call, before_retry=seen.append) == "answer"
    assert len(calls) == 3
    assert clock == [retries.PAUSE_S] * 2
    assert [error.code() for error in seen] == [GONE.code(), REFUSED.code()]


def test_what_is_not_retriable_is_raised_at_once(clock):
    call, calls = failing(KafkaException(REFUSED))

    with pytest.raises(KafkaException):
        retries.retry(call, is_retriable=lambda error: error.retriable())
    assert len(calls) == 1
    assert clock == []


def test_other_errors_are_not_retried():
    call, calls = failing(ValueError("a bug"))

    with pytest.raises(ValueError, match="a bug"):
        retries.retry(call)
    assert len(calls) == 1


def test_the_last_error_is_raised_when_the_time_is_over(monkeypatch):
    monkeypatch.setattr(retries, "PATIENCE_S", -1.0)
    call, calls = failing(KafkaException(GONE), KafkaException(GONE))

    with pytest.raises(KafkaException) as raised:
        retries.retry(call)
    assert raised.value.args[0].code() == GONE.code()
    assert len(calls) == 1


def test_a_client_of_a_failed_call_is_freed_without_garbage_collection():
    """Collected in a thread of its own, a Kafka client ends the process."""

    class Client:
        def ask(self):
            raise KafkaException(GONE)

    clients = [Client()]
    freed = []

    def call():
        client = clients[0]
        return "answer" if freed else client.ask()

    def before_retry(_error):
        watched = weakref.ref(clients[0])
        clients[0] = Client()
        freed.append(watched() is None)

    gc.disable()
    try:
        assert retries.retry(call, before_retry=before_retry) == "answer"
    finally:
        gc.enable()
    assert freed == [True]
