"""Group descriptions are requested and delivered without waiting; needs no broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from tidegate.producer.core.events import GroupDescribed
from tidegate.producer.kafka import group_monitor
from tidegate.producer.kafka.group_monitor import GroupMonitor

INTERVAL = group_monitor._INTERVAL_US
AGE_MAX = group_monitor._AGE_MAX_US
GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
ASSIGNMENTS = {"w": frozenset({0}), "x": frozenset({1})}


class Admins:
    """Stands for the class of admin clients: remembers what each was asked."""

    def __init__(self):
        self.made = 0
        self.asked = []

    def __call__(self, _config):
        self.made += 1
        return self

    def describe_consumer_groups(self, groups, **_):
        promise = Future()
        self.asked.append(promise)
        return dict.fromkeys(groups, promise)


@pytest.fixture
def admins(monkeypatch):
    made = Admins()
    monkeypatch.setattr(group_monitor, "AdminClient", made)
    return made


@pytest.fixture
def monitor(admins):
    """A worker's monitor, first polled at 0."""
    made = GroupMonitor({}, group="g", worker="w", client_id="w-1")
    assert made.poll(0) is None
    return made


def answer(*, state=ConsumerGroupState.STABLE, client_id="w-1", worker="w"):
    """Return the client's answer: a group of w and x with a slot each."""
    members = [
        SimpleNamespace(
            group_instance_id=name,
            member_id=f"{name}-id",
            client_id=client,
            assignment=SimpleNamespace(topic_partitions=[TopicPartition("t", n) for n in slots]),
        )
        for name, client, slots in ((worker, client_id, [0]), ("x", "x-1", [1]))
    ]
    return SimpleNamespace(state=state, members=members)


def test_nothing_is_asked_before_the_interval_has_passed(monitor, admins):
    assert monitor.poll(INTERVAL - 1) is None
    assert admins.made == 0
    monitor.poll(INTERVAL)
    monitor.poll(INTERVAL + 1)

    assert len(admins.asked) == 1


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (answer(), GroupDescribed(True, True, ASSIGNMENTS)),
        (
            answer(state=ConsumerGroupState.PREPARING_REBALANCING),
            GroupDescribed(False, True, ASSIGNMENTS),
        ),
        (answer(client_id="w-younger"), GroupDescribed(True, False, ASSIGNMENTS)),
        (
            answer(worker="y"),
            GroupDescribed(True, False, {"y": frozenset({0}), "x": frozenset({1})}),
        ),
    ],
    ids=["stable", "rebalancing", "replaced under its name", "not a member"],
)
def test_an_answer_becomes_a_description(monitor, admins, answered, expected):
    monitor.poll(INTERVAL)
    assert monitor.poll(INTERVAL + 1) is None, "no answer yet"
    admins.asked[-1].set_result(answered)

    assert monitor.poll(INTERVAL + 2) == expected
    assert monitor.poll(INTERVAL + 3) is None, "each answer is delivered once"


def test_one_client_asks_again_after_the_interval(monitor, admins):
    for number in (1, 2):
        monitor.poll(number * INTERVAL)
        admins.asked[-1].set_result(answer())
        assert monitor.poll(number * INTERVAL + 1) is not None

    assert len(admins.asked) == 2
    assert admins.made == 1


def test_a_late_answer_is_dropped_and_another_one_requested(monitor, admins):
    monitor.poll(INTERVAL)
    admins.asked[-1].set_result(answer())
    assert monitor.poll(INTERVAL + AGE_MAX) is None
    monitor.poll(2 * INTERVAL)
    admins.asked[-1].set_result(answer())

    assert monitor.poll(2 * INTERVAL + 1) is not None


def test_an_answer_that_never_comes_is_not_waited_for(monitor, admins):
    monitor.poll(INTERVAL)
    monitor.poll(INTERVAL + AGE_MAX)
    monitor.poll(2 * INTERVAL)

    assert len(admins.asked) == 2


@pytest.mark.parametrize("is_answered", [False, True], ids=["never", "late"])
def test_a_client_with_a_late_answer_is_not_asked_again(monitor, admins, is_answered):
    monitor.poll(INTERVAL)
    if is_answered:
        admins.asked[-1].set_result(answer())
    monitor.poll(INTERVAL + AGE_MAX)
    monitor.poll(2 * INTERVAL)

    assert admins.made == 2


def test_an_error_delivers_nothing_and_makes_a_new_client(monitor, admins):
    monitor.poll(INTERVAL)
    admins.asked[-1].set_exception(GONE)
    assert monitor.poll(INTERVAL + 1) is None
    monitor.poll(2 * INTERVAL)
    admins.asked[-1].set_result(answer())

    assert monitor.poll(2 * INTERVAL + 1) is not None
    assert admins.made == 2
