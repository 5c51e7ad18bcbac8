"""The redriver's order of calls, and that nothing it meets leaves a transaction open."""

from __future__ import annotations

import pytest

from tidegate.producer.core import events as on
from tidegate.producer.driver.redriver import Redriver
from tidegate.producer.errors import RedriveFailed
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.instants import US_PER_SECOND

KEYS = frozenset({1, 2})
BATCH = (PublishableRecord(1, "", "", ()),)


class Stage:
    """Stands for the worker and its core; `plan` has what happens in a step, by its number."""

    def __init__(self, clock, *, ready_after=2, plan=()):
        self.clock, self.plan, self.ready_after = clock, dict(plan), ready_after
        self.calls = []
        self.steps = 0
        self.error = None
        self.is_stopped = False
        self.is_ready_to_redrive = False

    def start(self):
        self.calls.append("start")

    def close(self):
        self.calls.append("close")

    def request_drain(self):
        self.calls.append("drain")
        self.plan[self.steps + 1] = lambda: self.stop(None)

    def process(self, event):
        self.calls.append(event)

    def stop(self, error):
        self.is_stopped, self.error = True, error

    def step(self):
        self.steps += 1
        self.clock.advance(US_PER_SECOND)
        self.is_ready_to_redrive = self.steps >= self.ready_after
        self.plan.get(self.steps, lambda: None)()
        return not self.is_stopped


def redriver_over(stage):
    return Redriver(stage, stage, patience_s=10, clock=stage.clock)


@pytest.fixture
def clock():
    return ManualClock()


def test_all_batches_come_in_one_transaction(clock):
    stage = Stage(clock)
    stage.plan[6] = lambda: stage.stop(None)
    redriver = redriver_over(stage)
    redriver.join()
    redriver.keep_alive()
    redriver.put_back(KEYS, iter([BATCH, (), BATCH * 2][:2]))
    redriver.close()

    assert stage.calls == [
        "start",
        on.RedriveBegan(KEYS),
        on.RedriveRead(BATCH),
        on.RedriveEnded(),
        "close",
    ]


def test_slots_that_others_keep_are_given_up(clock):
    with pytest.raises(RedriveFailed, match="other members"):
        redriver_over(Stage(clock, ready_after=99)).join()


def test_what_stops_the_worker_is_raised(clock):
    stage = Stage(clock, ready_after=99)
    stage.plan[2] = lambda: stage.stop(ConfigError("no stream"))
    with pytest.raises(ConfigError, match="no stream"):
        redriver_over(stage).join()

    stage = Stage(clock)
    redriver = redriver_over(stage)
    redriver.join()
    stage.ready_after = 99
    with pytest.raises(RedriveFailed, match="joined"):
        redriver.keep_alive()


@pytest.mark.parametrize("step", [3, 4])
def test_a_transaction_that_fails_is_the_error(clock, step):
    """While the batches are read, and after that."""
    stage = Stage(clock)
    stage.plan[step] = lambda: stage.stop(RedriveFailed("aborted"))
    redriver = redriver_over(stage)
    redriver.join()

    with pytest.raises(RedriveFailed, match="aborted"):
        redriver.put_back(KEYS, [BATCH])


@pytest.mark.parametrize("error", [UnreachableError("no registry"), RedriveFailed("changed")])
def test_batches_that_cannot_be_read_abort_the_transaction(clock, error):
    def broken():
        yield BATCH
        raise error

    stage = Stage(clock)
    redriver = redriver_over(stage)
    redriver.join()
    with pytest.raises(type(error)):
        redriver.put_back(KEYS, broken())

    assert stage.calls[-1] == "drain"
    assert stage.is_stopped
    assert on.RedriveEnded() not in stage.calls
