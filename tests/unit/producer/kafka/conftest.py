"""Clients that answer from a script; no broker is needed."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka.admin import CommittedOffsets


class Cluster:
    """Answers the calls of all clients, one after the other.

    An answer is a value, a KafkaException that the call raises, or a KafkaError that stands in the
    answer for a topic partition.  `made` counts clients; `requests` holds what was asked for.
    """

    def __init__(self):
        self.answers = deque()
        self.made = 0
        self.requests = []
        self.on_commit = lambda _place: None

    def connect(self, _config):
        """Stand for the class of admin clients."""
        self.made += 1
        return self

    def _promise(self, result):
        promise = Future()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            promise.set_exception(answer)
        else:
            promise.set_result(result(answer))
        return promise

    def list_offsets(self, places, **options):
        self.requests.append((list(places), options))
        return dict.fromkeys(places, self._promise(lambda offset: SimpleNamespace(offset=offset)))

    def open_consumer(self, config):
        """Stand for the class of consumers that never join."""
        self.made += 1

        def committed(places, *, timeout):
            (place,) = places
            self.requests.append((config["group.id"], place, config))
            return [self._promise(_place).result()]

        def commit(*, offsets, asynchronous):
            assert not asynchronous
            (place,) = offsets
            self.on_commit(place)
            self.requests.append((config["group.id"], place, config))
            return [self._promise(_place).result()]

        return SimpleNamespace(committed=committed, commit=commit)


def _place(answer):
    return SimpleNamespace(
        error=answer if isinstance(answer, KafkaError) else None,
        offset=answer if isinstance(answer, int) else -1001,
        metadata=answer if isinstance(answer, str) else None,
    )


@pytest.fixture
def cluster(monkeypatch):
    """What every client of a test talks to; retries do not pause."""
    made = Cluster()
    monkeypatch.setattr(kafka_admin, "AdminClient", made.connect)
    monkeypatch.setattr(kafka_admin, "Consumer", made.open_consumer)
    monkeypatch.setattr(kafka_admin, "PAUSE_S", 0.0)
    return made


@pytest.fixture
def admin(cluster):
    return kafka_admin.RetryingAdmin({})


@pytest.fixture
def open_committed(cluster):
    return lambda group: CommittedOffsets({}, group=group)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(kafka_admin, "PATIENCE_S", -1.0)
