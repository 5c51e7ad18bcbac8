"""Requests in a topic: written, read to the end, and followed, on a broker in this process."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, Producer
from structlog.testing import capture_logs

from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.kafka import backfill_topic as module
from tidegate.producer.kafka.backfill_topic import RequestFollower, read_requests, write_request
from tidegate.schemas.errors import ConfigError, UnreachableError

TOPIC = "bank-backfill-requests"
REQUEST = TableRequest("t", 1, "p", 5)
_PATIENCE_S = 30


@pytest.fixture
def broker():
    """The client whose mock is the broker, and the broker's address."""
    config = {"bootstrap.servers": "-", "test.mock.num.brokers": 1, "log_level": 0}
    holder = SimpleNamespace(client=Producer(config))
    (found,) = holder.client.list_topics(timeout=_PATIENCE_S).brokers.values()
    yield holder, f"{found.host}:{found.port}"
    holder.client.flush(0)
    del holder.client


def write(request, servers):
    known = {"transactional_id": "bank-fleet-_backfill", "group": "g"}
    written = write_request(TOPIC, lambda _: request, bootstrap_servers=servers, **known)
    assert written == request


def test_a_request_is_made_of_what_the_topic_says_and_is_not_written_if_that_forbids_it(broker):
    _, servers = broker
    write(REQUEST, servers)

    def refuse(known):
        assert known.all == [REQUEST]
        message = "no"
        raise ConfigError(message)

    with pytest.raises(ConfigError, match="no"):
        write_request(TOPIC, refuse, transactional_id="t", bootstrap_servers=servers, group="g")
    assert read_requests(TOPIC, bootstrap_servers=servers, group="g").all == [REQUEST]


def test_what_was_written_is_read_and_the_newest_holds(broker):
    holder, servers = broker
    for one in (REQUEST, replace(REQUEST, state=RunState.STOPPED), TableRequest("u", 2, "p", 6)):
        write(one, servers)
    holder.client.produce(TOPIC, b"not a request", b"v", partition=0)
    holder.client.produce(TOPIC, None, b"w", partition=0)
    holder.client.flush(_PATIENCE_S)
    found = read_requests(TOPIC, bootstrap_servers=servers, group="g")

    assert found.all == [replace(REQUEST, state=RunState.STOPPED), TableRequest("u", 2, "p", 6)]


def test_a_topic_that_lost_records_is_an_error_after_which_reading_begins_again():
    lost = SimpleNamespace(
        error=lambda: KafkaError(KafkaError._AUTO_OFFSET_RESET, "gone"),
        value=lambda: None,
        topic=lambda: TOPIC,
    )
    with pytest.raises(UnreachableError, match="cannot be read on"):
        module._take([lost], TableRequests(), pytest.fail)


def test_a_topic_that_does_not_exist_holds_nothing(broker):
    assert read_requests(TOPIC, bootstrap_servers=broker[1], group="g").all == []


def test_a_follower_begins_with_what_is_there_and_goes_on(broker):
    _, servers = broker
    write(REQUEST, servers)
    requests = TableRequests()
    follower = RequestFollower(TOPIC, requests, bootstrap_servers=servers, group="g")
    follower.start()
    try:
        assert requests.all == [REQUEST]
        stopped = replace(REQUEST, state=RunState.STOPPED)
        write(stopped, servers)
        _wait_until(lambda: requests.all == [stopped])
    finally:
        follower.close()


def test_a_follower_finds_a_topic_that_comes_later(broker, monkeypatch):
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.05)
    _, servers = broker
    requests = TableRequests()
    follower = RequestFollower(TOPIC, requests, bootstrap_servers=servers, group="g")
    follower.start()
    try:
        assert requests.all == []
        write(REQUEST, servers)
        _wait_until(lambda: requests.all == [REQUEST])
    finally:
        follower.close()


def test_a_broker_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(module, "_METADATA_S", 0.1)
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.05)
    follower = RequestFollower(
        TOPIC, TableRequests(), bootstrap_servers="127.0.0.1:1", group="g",
        options={"log_level": 0},
    )  # fmt: skip
    with pytest.raises(UnreachableError, match="the requests for backfills cannot be read"):
        follower.start()
    follower.close()


class Consumer:
    """A consumer whose next calls return these messages, and nothing behind them."""

    def __init__(self, *batches):
        self.batches = list(batches)

    def list_topics(self, **_known):
        return SimpleNamespace(topics={TOPIC: None})

    def get_watermark_offsets(self, _place, timeout):
        return 0, 0

    def assign(self, _places):
        pass

    def consume(self, _count, _seconds):
        time.sleep(0.001)
        return [self.batches.pop(0)] if self.batches else []

    def close(self):
        pass


def message(code, value=None):
    error = None if code is None else KafkaError(code)
    return SimpleNamespace(error=lambda: error, value=lambda: value)


AT_END, DENIED = KafkaError._PARTITION_EOF, KafkaError.TOPIC_AUTHORIZATION_FAILED
AWAY = KafkaError._ALL_BROKERS_DOWN


@pytest.fixture
def consumed(monkeypatch):
    """Sets what consumers of the topic return."""

    def set_messages(*messages):
        monkeypatch.setattr(module, "_consumer", lambda *_: Consumer(*messages))
        monkeypatch.setattr(module, "list_topics", lambda *_: {TOPIC})

    return set_messages


def test_a_right_that_is_denied_is_named_at_once(consumed):
    consumed(message(AWAY), message(DENIED))
    with pytest.raises(ConfigError, match=f"cannot read topic {TOPIC}: Kafka denies access"):
        read_requests(TOPIC, bootstrap_servers="k:1", group="g")
    follower = RequestFollower(TOPIC, TableRequests(), bootstrap_servers="k:1", group="g")
    with pytest.raises(ConfigError, match=f"cannot read topic {TOPIC}: Kafka denies access"):
        follower.start()
    follower.close()


def test_a_follower_says_what_keeps_it_from_reading_and_goes_on(consumed):
    stopped = replace(REQUEST, state=RunState.STOPPED)
    consumed(message(None, REQUEST.encode()), message(AT_END), message(DENIED), message(AWAY),
             message(None, stopped.encode()))  # fmt: skip
    requests = TableRequests()
    follower = RequestFollower(TOPIC, requests, bootstrap_servers="k:1", group="g")
    with capture_logs() as lines:
        follower.start()
        _wait_until(lambda: requests.all == [stopped])
        follower.close()
    assert [line["event"] for line in lines] == ["requests for backfills not read"] * 2
    assert "Kafka denies access to topics" in lines[0]["cause"]


def test_what_kept_a_command_from_reading_is_in_its_error(consumed, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    consumed(message(AWAY))
    with pytest.raises(UnreachableError, match=r"cannot be read to their end .*cause="):
        read_requests(TOPIC, bootstrap_servers="k:1", group="g")


def _wait_until(condition):
    give_up_at = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
