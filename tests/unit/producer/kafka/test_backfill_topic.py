"""Requests in a topic: written, read to the end, and followed, on a broker in this process."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.kafka import backfill_topic as module
from tidegate.producer.kafka.backfill_topic import RequestFollower, read_requests, write_request
from tidegate.schemas.errors import UnreachableError

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


def test_what_was_written_is_read_and_the_newest_holds(broker):
    holder, servers = broker
    for one in (REQUEST, replace(REQUEST, state=RunState.STOPPED), TableRequest("u", 2, "p", 6)):
        write_request(TOPIC, one, bootstrap_servers=servers)
    holder.client.produce(TOPIC, b"not a request", b"v", partition=0)
    holder.client.produce(TOPIC, None, b"w", partition=0)
    holder.client.flush(_PATIENCE_S)
    found = read_requests(TOPIC, bootstrap_servers=servers, group="g")

    assert found.all == [replace(REQUEST, state=RunState.STOPPED), TableRequest("u", 2, "p", 6)]


def test_a_topic_that_does_not_exist_holds_nothing(broker):
    assert read_requests(TOPIC, bootstrap_servers=broker[1], group="g").all == []


def test_a_follower_begins_with_what_is_there_and_goes_on(broker):
    _, servers = broker
    write_request(TOPIC, REQUEST, bootstrap_servers=servers)
    requests = TableRequests()
    follower = RequestFollower(TOPIC, requests, bootstrap_servers=servers, group="g")
    follower.start()
    try:
        assert requests.all == [REQUEST]
        stopped = replace(REQUEST, state=RunState.STOPPED)
        write_request(TOPIC, stopped, bootstrap_servers=servers)
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
        write_request(TOPIC, REQUEST, bootstrap_servers=servers)
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


def _wait_until(condition):
    give_up_at = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
