"""Descriptions of topics are requested and delivered without waiting; needs no broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from tidegate.producer.core.events import AccessDenied, TopicsObserved, TopicState
from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka import topic_monitor
from tidegate.producer.kafka.topic_monitor import TopicMonitor

INTERVAL = topic_monitor._INTERVAL_US
AGE_MAX = topic_monitor._AGE_MAX_US


class Admins:
    """Stands for the class of admin clients: remembers what each was asked."""

    def __init__(self):
        self.made = 0
        self.asked = []

    def __call__(self, _config):
        self.made += 1
        return self

    def describe_topics(self, topics, **_):
        promises = {topic: Future() for topic in topics}
        self.asked.append(promises)
        return promises

    def answer(self, **states):
        """Answer the last question: (id, topic partitions) by topic, or an error code."""
        for topic, promise in self.asked[-1].items():
            state = states[topic]
            if isinstance(state, int):
                promise.set_exception(KafkaException(KafkaError(state, "refused")))
            else:
                topic_id, count = state
                described = SimpleNamespace(topic_id=topic_id, partitions=[None] * count)
                promise.set_result(described)


@pytest.fixture
def admins(monkeypatch):
    made = Admins()
    monkeypatch.setattr(kafka_admin, "AdminClient", made)
    monkeypatch.setattr(topic_monitor, "TopicCollection", list)
    return made


@pytest.fixture
def monitor(admins):
    """A worker's monitor, first polled at 0."""
    made = TopicMonitor(kafka_admin.SharedAdmin({}), progress="p", data=["a", "b"])
    assert made.poll(0) is None
    return made


def test_nothing_is_asked_before_the_interval_has_passed(monitor, admins):
    assert monitor.poll(INTERVAL - 1) is None
    assert not admins.asked
    monitor.poll(INTERVAL)
    monitor.poll(INTERVAL + 1)

    assert [list(asked) for asked in admins.asked] == [["p", "a", "b"]]


def test_an_answer_becomes_a_description(monitor, admins):
    monitor.poll(INTERVAL)
    assert monitor.poll(INTERVAL + 1) is None, "no answer yet"
    admins.answer(p=("id-0", 4), a=("id-1", 2), b=KafkaError.UNKNOWN_TOPIC_OR_PART)

    assert monitor.poll(INTERVAL + 2) == TopicsObserved(
        TopicState("p", "id-0", 4), (TopicState("a", "id-1", 2), TopicState("b", None, 0))
    )
    assert monitor.poll(INTERVAL + 3) is None, "each answer is delivered once"


def test_one_more_topic_is_described_from_the_next_question_on(monitor, admins):
    monitor.poll(INTERVAL)
    monitor.add("c")
    states = {"p": ("id-0", 4), "a": ("id-1", 2), "b": ("id-2", 2), "c": ("id-3", 2)}
    admins.answer(**states)
    assert [one.topic for one in monitor.poll(INTERVAL + 1).data] == ["a", "b"]
    monitor.poll(2 * INTERVAL)
    admins.answer(**states)

    assert [one.topic for one in monitor.poll(2 * INTERVAL + 1).data] == ["a", "b", "c"]


def test_a_missing_right_names_the_topic(monitor, admins):
    monitor.poll(INTERVAL)
    admins.answer(p=("id-0", 4), a=KafkaError.TOPIC_AUTHORIZATION_FAILED, b=("id-2", 2))

    assert monitor.poll(INTERVAL + 1) == AccessDenied("topic a", "refused")


def test_a_late_answer_is_dropped_and_another_one_requested(monitor, admins):
    whole = {"p": ("id-0", 4), "a": ("id-1", 2), "b": ("id-2", 2)}
    monitor.poll(INTERVAL)
    admins.answer(**whole)
    assert monitor.poll(INTERVAL + AGE_MAX) is None
    monitor.poll(2 * INTERVAL)
    admins.answer(**whole)

    assert monitor.poll(2 * INTERVAL + 1) is not None
    assert admins.made == 2


def test_an_answer_that_never_comes_is_not_waited_for(monitor, admins):
    monitor.poll(INTERVAL)
    monitor.poll(2 * INTERVAL)

    assert len(admins.asked) == 2
    assert admins.made == 2


def test_an_error_about_one_topic_leaves_out_that_one_and_makes_a_new_client(monitor, admins):
    """The others are compared all the same."""
    with capture_logs() as lines:
        for times in (1, 2):
            monitor.poll(times * INTERVAL)
            admins.answer(p=("id-0", 4), a=KafkaError._TRANSPORT, b=("id-2", 2))
            assert monitor.poll(times * INTERVAL + 1) == TopicsObserved(
                TopicState("p", "id-0", 4), (TopicState("b", "id-2", 2),)
            )
    monitor.poll(3 * INTERVAL)

    assert admins.made == 3
    failed = {"event": "topic description failed", "topic": "a", "reason": "refused"}
    assert lines == [{**failed, "log_level": "warning"}]


def test_without_the_progress_topic_there_is_no_description(monitor, admins):
    monitor.poll(INTERVAL)
    admins.answer(p=KafkaError._TRANSPORT, a=("id-1", 2), b=("id-2", 2))

    assert monitor.poll(INTERVAL + 1) is None
