"""Queries that look again and again, over real tasks."""

import threading

import pytest

from tidegate.producer.datastream_source.waiting_query import RecordsResponse, WaitingQuery
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.records import HeartbeatRecord
from tidegate.schemas.errors import UnreachableError


@pytest.fixture
def tasks():
    found = TaskThread()
    yield found
    found.close()


class Steps(WaitingQuery):
    """Returns what it was given, then nothing for an hour."""

    earliest_us = 77

    def __init__(self, tasks, *steps, heartbeat_ms=50):
        super().__init__(tasks=tasks, clock=SystemClock(), heartbeat_ms=heartbeat_ms)
        self.steps = list(steps)
        self.stopped = 0
        self.calls = 0
        self.entered = threading.Event()
        self.may_go = threading.Event()

    def step(self):
        self.calls += 1
        if not self.steps:
            return [], self.clock.monotonic_us() + 3_600_000_000
        found = self.steps.pop(0)
        if found == "block":
            self.entered.set()
            self.may_go.wait(30)
            return [], 0
        if isinstance(found, Exception):
            raise found
        return found, 0

    def stop(self):
        self.stopped += 1


def following(tasks, query):
    async def run():
        if await query.next_size() is None:
            return None
        return (await query.receive()).decode()[0]

    return tasks.run(run)


def test_records_come_as_they_are_found(tasks):
    first, second = [HeartbeatRecord(1)], [HeartbeatRecord(2), HeartbeatRecord(3)]
    query = Steps(tasks, first, [], second, heartbeat_ms=3_600_000)
    assert following(tasks, query) == first
    assert following(tasks, query) == second


def test_a_quiet_query_says_that_it_lives(tasks):
    query = Steps(tasks)
    assert following(tasks, query) == [HeartbeatRecord(77_000)]


def test_a_quiet_query_takes_no_thread_before_there_is_something_to_do(tasks):
    query = Steps(tasks, heartbeat_ms=1)
    for _ in range(3):
        following(tasks, query)
    assert query.calls == 1


def test_an_error_comes_after_the_records_before_it(tasks):
    query = Steps(tasks, [HeartbeatRecord(1)])
    query.fail_with(UnreachableError("gone"))
    with pytest.raises(UnreachableError, match="gone"):
        following(tasks, query)
    direct = Steps(tasks, [HeartbeatRecord(1)], UnreachableError("away"), heartbeat_ms=3_600_000)
    assert following(tasks, direct) == [HeartbeatRecord(1)]
    with pytest.raises(UnreachableError, match="away"):
        following(tasks, direct)


def test_a_cancelled_query_ends_and_releases_what_is_open(tasks):
    query = Steps(tasks, heartbeat_ms=3_600_000)
    canceller = threading.Timer(0.05, query.cancel)
    canceller.start()
    assert following(tasks, query) is None
    canceller.join(30)  # the query ends before `cancel` has released what is open
    assert query.stopped >= 1


def test_a_step_that_runs_releases_what_is_open_itself(tasks):
    query = Steps(tasks, "block")
    found = []
    waiting = threading.Thread(target=lambda: found.append(following(tasks, query)))
    waiting.start()
    assert query.entered.wait(30)
    query.cancel()
    assert query.stopped == 0
    query.may_go.set()
    waiting.join(30)
    assert found == [None]
    assert query.stopped == 1


class Hungry(Steps):
    """Needs bytes for its first steps."""

    held_bytes = 30

    @property
    def needed_bytes(self):
        return 100 if len(self.steps) > 1 else 0


def test_a_step_that_needs_bytes_waits_until_they_are_held(tasks):
    query = Hungry(tasks, [], [HeartbeatRecord(1)], [HeartbeatRecord(2)], heartbeat_ms=3_600_000)
    sizes = []

    async def run():
        found = []
        for _ in range(3):
            sizes.append(await query.next_size())
            calls = query.calls
            response = await query.receive()
            assert query.calls == calls + (sizes[-1] == 70)  # beyond what is held already
            found.append(response.decode())
        return found

    assert tasks.run(run) == [
        ([], 30), ([HeartbeatRecord(1)], 30), ([HeartbeatRecord(2)], 30),
    ]  # fmt: skip
    assert sizes == [70, 70, 64]


def test_a_query_whose_steps_need_bytes_is_not_silent(tasks):
    query = Hungry(tasks, *[[]] * 3, heartbeat_ms=0)
    assert following(tasks, query) == [HeartbeatRecord(77_000)]


def test_a_response_counts_its_texts(tasks):
    assert RecordsResponse([HeartbeatRecord(1)] * 3).size_bytes == 3 * 64
