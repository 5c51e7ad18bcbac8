"""Checks before Spark starts: topics and prefixes."""

import re
import threading
from functools import partial

import pytest
import structlog

from tidegate.lineage.subscription import Subscription
from tidegate.program.health import Health
from tidegate.program.kafka_clients import list_topics
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.kafka import topics as kafka

SUBSCRIPTION = Subscription(TopicNames("bank"))


@pytest.fixture
def topics(monkeypatch):
    """Sets the topics that the broker knows."""

    seen = []

    def know(*names):
        def list_topics(address, options=None):
            seen.append((address, options))
            return frozenset(names)

        monkeypatch.setattr(kafka, "list_topics", list_topics)
        return seen

    return know


def test_a_progress_topic_is_enough(topics):
    topics("bank-progress", "bank.accounts", "bankers-progress", "other.x-progress")
    assert kafka.find_missing_topics("broker:9092", SUBSCRIPTION) == []


def test_a_missing_progress_topic_is_named(topics):
    topics("bank.accounts")
    assert kafka.find_missing_topics("broker:9092", SUBSCRIPTION) == ["bank-progress"]


def test_a_prefix_that_continues_another_prefix_is_refused_both_ways(topics):
    topics("bank.europe-progress", "bank-progress")
    for prefix, other in (("bank", "bank.europe"), ("bank.europe", "bank")):
        with pytest.raises(ConfigError, match=re.escape(f"['{other}-progress']")):
            kafka.find_missing_topics("broker:9092", Subscription(TopicNames(prefix)))


def test_a_broker_that_does_not_answer_at_first_ends_the_run(monkeypatch):
    monkeypatch.setattr(kafka, "list_topics", partial(list_topics, timeout_s=0.1))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        kafka.wait_for_topics("127.0.0.1:1", SUBSCRIPTION, stop=threading.Event(), health=Health())


def test_options_reach_the_client(topics):
    seen = topics("bank-progress")
    kafka.find_missing_topics("broker:9092", SUBSCRIPTION, options={"sasl.password": "hush"})
    assert seen == [("broker:9092", {"sasl.password": "hush"})]


class Waiting:
    """A stop event and a clock in one: each wait takes its time and does the next planned thing."""

    def __init__(self, *actions):
        self.actions = list(actions)
        self.seconds = 1_000.0
        self.is_stopped = False

    def now(self):
        return self.seconds

    def is_set(self):
        return self.is_stopped

    def wait(self, timeout):
        self.seconds += timeout
        if self.actions:
            self.actions.pop(0)()
        return self.is_stopped

    def stop(self):
        self.is_stopped = True


def wait(waiting, health=None):
    with structlog.testing.capture_logs() as lines:
        found = kafka.wait_for_topics(
            "b:1", SUBSCRIPTION, stop=waiting, health=health or Health(), now=waiting.now
        )
    return found, lines


def test_topics_that_exist_are_not_waited_for(topics):
    topics("bank-progress")
    assert wait(Waiting()) == (True, [])


def test_a_run_that_is_stopped_already_does_not_start(topics):
    topics("bank-progress")
    waiting = Waiting()
    waiting.stop()
    assert wait(waiting) == (False, [])


def test_missing_topics_are_named_at_once_and_every_30_seconds_until_they_exist(topics):
    topics()
    nothing = [lambda: None] * 31  # two seconds each
    found, lines = wait(Waiting(*nothing, lambda: topics("bank-progress")))
    assert found
    line = {"event": "waiting for topics", "log_level": "info", "topics": ["bank-progress"]}
    assert lines == [line] * 3


def test_a_run_that_waits_is_alive_and_not_ready(topics):
    topics()
    waiting = Waiting()
    health = Health(stalled_after_s=3, clock=waiting.now)
    seen = []
    look = [lambda: seen.append((health.fault, health.not_ready))] * 5
    wait(Waiting(*look, lambda: topics("bank-progress")), health)
    assert seen == [("", "waiting for topics: bank-progress")] * 5


def test_a_stop_ends_the_wait(topics):
    topics()
    waiting = Waiting()
    waiting.actions.append(waiting.stop)
    found, lines = wait(waiting)
    assert not found
    assert len(lines) == 1


def test_a_broker_that_stops_answering_is_waited_for_too(topics, monkeypatch):
    topics()

    def fail(*_arguments):
        raise UnreachableError("no Kafka broker answers")

    def stop_answering():
        monkeypatch.setattr(kafka, "list_topics", fail)

    nothing = [lambda: None] * 15
    found, lines = wait(Waiting(stop_answering, *nothing, lambda: topics("bank-progress")))
    assert found
    assert [line["event"] for line in lines] == ["waiting for topics", "waiting for Kafka"]
    assert "no Kafka broker answers" in lines[1]["error"]


def test_a_prefix_that_is_taken_during_the_wait_is_refused(topics):
    topics()
    with pytest.raises(ConfigError, match=r"bank\.europe-progress"):
        wait(Waiting(lambda: topics("bank.europe-progress")))
