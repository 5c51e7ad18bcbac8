"""The pause of an idle stream: when there is one, and what ends it."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.spark_consumer.batch.test_figures import batch_without_parts
from tidegate.spark_consumer.batch.batch import Batch
from tidegate.spark_consumer.batch.idle_wait import IdleWait
from tidegate.spark_consumer.core.batch_state import Segment, State

ENDS = {"bank.accounts": {0: 7}}
SETTLED = State(prefix="bank", query_id="q", batch=3, watermark_us=9, next_release=4)
NOTHING_TO_DO = SimpleNamespace(steps=(), end_offsets=ENDS)


class Time:
    """A clock that passes while somebody waits for the event, and 0.01 s with each look."""

    def __init__(self, *, changes_at_s=None, look_s=0.01, stops_at_s=None):
        self.now_s, self.looks = 100.0, []
        self._changes_at_s, self._look_s, self._stops_at_s = changes_at_s, look_s, stops_at_s

    def wait(self, seconds):
        assert seconds >= 0
        self.now_s += seconds
        return self._stops_at_s is not None and self.now_s >= 100 + self._stops_at_s

    def have_changes(self, ends):
        assert ends is ENDS
        self.looks.append(self.now_s)
        self.now_s += self._look_s
        return self._changes_at_s is not None and self.now_s >= 100 + self._changes_at_s

    def waited_s(self, plan=NOTHING_TO_DO, state=SETTLED, *, expected_us=None):
        idle = IdleWait(10, self.have_changes, monotonic=lambda: self.now_s)
        if expected_us is not None:
            idle.expect(expected_us)
        return idle.after(plan, state, self)


def test_it_ends_with_the_interval_a_change_or_a_stop():
    assert Time().waited_s() == pytest.approx(10)
    assert Time(changes_at_s=0).waited_s() == pytest.approx(0.01)
    assert Time(changes_at_s=4).waited_s() == pytest.approx(4, abs=0.21)
    assert Time(stops_at_s=3).waited_s() == pytest.approx(3, abs=0.21)


def test_there_is_none_before_a_watermark_that_somebody_waits_for():
    time = Time()
    assert time.waited_s(expected_us=10) == 0
    assert not time.looks
    assert time.waited_s(expected_us=9) == pytest.approx(10)


def test_a_broker_of_thousands_of_topics_is_asked_less_often():
    slow = Time(look_s=0.5)
    assert slow.waited_s() == pytest.approx(10)
    assert len(slow.looks) == 2


@pytest.mark.parametrize(
    ("state", "steps"),
    [
        ({}, ("a step",)),
        ({"watermark_us": State(prefix="", query_id="").watermark_us}, ()),
        ({"segments": (Segment("s", 10, 20, 1, (10,)),)}, ()),
        ({"mirror_release": 2}, ()),
        ({"adopts_through_us": 30}, ()),
        ({"stream_has_ended": True}, ()),
    ],
    ids=[
        "the batch had something to do",
        "before the first watermark",
        "changes wait",
        "a mirror lacks a release",
        "an adopted output is read again",
        "the stream has ended",
    ],
)
def test_there_is_none_while_something_is_to_be_done(state, steps):
    time = Time()
    plan = SimpleNamespace(steps=steps, end_offsets=ENDS)
    assert time.waited_s(plan, replace(SETTLED, **state)) == 0
    assert not time.looks


def test_a_stop_ends_it_and_it_is_no_part_of_the_batch(monkeypatch):
    resting = threading.Event()

    def have_changes(_):
        resting.set()
        return False

    batch = batch_without_parts(idle_wait=IdleWait(3_600, have_changes))
    done = []
    batch.finished = done.append
    loop = SimpleNamespace(plan=NOTHING_TO_DO, state=SETTLED)
    monkeypatch.setattr(Batch, "_run", lambda *_: loop)
    thread = threading.Thread(target=batch, args=(None, 3))
    thread.start()
    assert resting.wait(30)
    assert (done, batch.batch_s) == ([SETTLED], None)
    batch.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert list(batch.idle_s) == [3]
