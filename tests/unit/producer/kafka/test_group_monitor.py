"""Group descriptions are requested and delivered without waiting; needs no broker."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.core.events import GroupDescribed
from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka import group_monitor
from tidegate.producer.kafka.admin import CALL_TIMEOUT_S
from tidegate.producer.kafka.group_monitor import GroupMonitor

INTERVAL = group_monitor._INTERVAL_US
AGE_MAX = group_monitor._AGE_MAX_US
GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
ASSIGNMENTS = {"w": frozenset({0}), "x": frozenset({1})}


class Question:
    """A call that a thread of the monitor makes; it returns or raises what `answer` is given."""

    def __init__(self, run):
        self._run = run

    def answer(self, outcome):
        self.outcome = outcome
        self._run()


class Admins:
    """Stands for the class of admin clients and for that of threads."""

    def __init__(self):
        self.made = 0
        self.asked = []

    def client(self, _config):
        self.made += 1
        return self

    def thread(self, *, target, **_):
        return SimpleNamespace(start=lambda: self.asked.append(Question(target)))

    def list_groups(self, group, timeout):
        assert (group, timeout) == ("g", CALL_TIMEOUT_S)
        (outcome,) = [one.outcome for one in self.asked if hasattr(one, "outcome")][-1:]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def admins(monkeypatch):
    made = Admins()
    monkeypatch.setattr(kafka_admin, "AdminClient", made.client)
    monkeypatch.setattr(group_monitor, "Thread", made.thread)
    return made


@pytest.fixture
def monitor(admins):
    """A worker's monitor, first polled at 0."""
    made = GroupMonitor(kafka_admin.SharedAdmin({}), group="g", worker="w", client_id="w-1")
    assert made.poll(0) is None
    return made


def assignment(*slots):
    """Encode an assignment as a Kafka client does."""
    topics = struct.pack(">h1si", 1, b"t", len(slots)) + struct.pack(f">{len(slots)}i", *slots)
    return struct.pack(">hi", 0, 1) + topics + struct.pack(">i", 0)


def answer(*, state="Stable", client_id="w-1", worker="w", error=None):
    """Return the client's answer: a group of w and x with a slot each."""
    members = [
        SimpleNamespace(
            id=f"{name}-{uuid4()}",
            client_id=client,
            assignment=assignment(*slots),
        )
        for name, client, slots in ((worker, client_id, [0]), ("x", "x-1", [1]))
    ]
    return [SimpleNamespace(state=state, members=members, error=error)]


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
            answer(state="PreparingRebalance"),
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
    admins.asked[-1].answer(answered)

    assert monitor.poll(INTERVAL + 2) == expected
    assert monitor.poll(INTERVAL + 3) is None, "each answer is delivered once"


def test_one_client_asks_again_after_the_interval(monitor, admins):
    for number in (1, 2):
        monitor.poll(number * INTERVAL)
        admins.asked[-1].answer(answer())
        assert monitor.poll(number * INTERVAL + 1) is not None

    assert len(admins.asked) == 2
    assert admins.made == 1


def test_a_late_answer_is_dropped_and_another_one_requested(monitor, admins):
    monitor.poll(INTERVAL)
    admins.asked[-1].answer(answer())
    assert monitor.poll(INTERVAL + AGE_MAX) is None
    monitor.poll(2 * INTERVAL)
    admins.asked[-1].answer(answer())

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
        admins.asked[-1].answer(answer())
    monitor.poll(INTERVAL + AGE_MAX)
    monitor.poll(2 * INTERVAL)

    assert admins.made == 2


def test_an_error_delivers_nothing_and_makes_a_new_client(monitor, admins):
    monitor.poll(INTERVAL)
    admins.asked[-1].answer(GONE)
    assert monitor.poll(INTERVAL + 1) is None
    monitor.poll(2 * INTERVAL)
    admins.asked[-1].answer(answer())

    assert monitor.poll(2 * INTERVAL + 1) is not None
    assert admins.made == 2


@pytest.mark.parametrize(
    "answered",
    [[], answer(error=KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))],
    ids=["not listed", "not described"],
)
def test_a_group_without_a_coordinator_is_not_described(monitor, admins, answered):
    monitor.poll(INTERVAL)
    admins.asked[-1].answer(answered)

    assert monitor.poll(INTERVAL + 1) is None


@pytest.mark.parametrize("slots", [(), (3,), (0, 5, 70_000)])
def test_an_assignment_is_read_as_kafka_writes_it(slots):
    assert group_monitor._assigned(assignment(*slots)) == frozenset(slots)


def test_a_member_without_an_assignment_has_none():
    assert group_monitor._assigned(b"") == frozenset()
