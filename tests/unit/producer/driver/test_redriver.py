"""The redriver's order of calls, and that nothing it meets leaves a transaction open."""

from __future__ import annotations

import pytest

from tidegate.producer.core import events as on
from tidegate.producer.driver.redriver import Redriver, put_back_parked
from tidegate.producer.errors import RedriveFailed
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.messages import (
    FORM_MESSAGE,
    FORM_REDRIVEN,
    ChangeMessage,
    DeadLetter,
    ParkedChange,
    PublishableRecord,
)
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.order_key import OrderKey

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
        self.is_ready = False

    def start(self):
        self.calls.append("start")

    def close(self, **_options):
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
        self.is_ready = self.steps >= self.ready_after
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


class TestPutBackParked:
    """The dead-letter topic is read three times; without a redriver nothing is put back."""

    POISON, KEY = b"poison", b"k"

    def letters(self):
        yield DeadLetter(0, 0, self.change(b"a", order=1))
        yield None
        yield DeadLetter(0, 1, self.change(b"b", order=2))
        yield DeadLetter(0, 2, self.change(b"b", order=3, content=self.POISON))

    def change(self, key, *, order, content=b"value"):
        order_key = OrderKey(order, "t", (0, 0), 0).encode()
        return ParkedChange("p.t", key, order_key, b"U", content, FORM_MESSAGE, "r", "", "token")

    def translate(self, change):
        if change.content == self.POISON:
            raise SchemaError("still poison")
        return ChangeMessage(change.topic, change.key, change.content, change.order_key, b"U", b"")

    def test_a_key_that_is_still_poison_stays(self, clock):
        stage = Stage(clock)
        redriver = redriver_over(stage)
        redriver.join()
        stage.plan[stage.steps + 20] = lambda: stage.stop(None)
        selection = put_back_parked(self.letters, self.translate, redriver)

        assert [name.key for name in selection.chosen] == [b"a"]
        assert [(key.name.key, key.changes) for key in selection.left] == [(b"b", 2)]
        began, *_ = [call for call in stage.calls if isinstance(call, on.RedriveBegan)]
        assert began.keys == selection.numbers
        records = [r for c in stage.calls if isinstance(c, on.RedriveRead) for r in c.records]
        assert [message.key for one in records for message in one.messages] == [b"a"]
        assert [change.form for one in records for change in one.parked] == [FORM_REDRIVEN]

    def test_the_group_is_polled_while_nothing_comes(self, clock):
        stage = Stage(clock)
        redriver = redriver_over(stage)
        redriver.join()
        stage.ready_after = 99
        with pytest.raises(RedriveFailed, match="joined"):
            put_back_parked(lambda: iter([None]), self.translate, redriver)

    def test_without_a_redriver_it_only_looks(self):
        done = []
        selection = put_back_parked(
            self.letters, self.translate, None, progress=lambda what, number: done.append(what)
        )

        assert (len(selection.chosen), len(selection.left)) == (1, 1)
        assert len(done) == 8
