"""A sole run ends with the error of its kind, whatever takes its slots away."""

from __future__ import annotations

import pytest

from tidegate.producer.driver.gap_acceptor import GapAcceptor
from tidegate.producer.driver.redriver import Redriver
from tidegate.producer.errors import GapNotAccepted, RedriveFailed
from tidegate.producer.memory.clock import ManualClock
from tidegate.schemas.instants import US_PER_SECOND

KINDS = pytest.mark.parametrize(
    ("kind", "error"), [(Redriver, RedriveFailed), (GapAcceptor, GapNotAccepted)]
)


class Stage:
    """Stands for the worker and its core, which is ready after some steps."""

    def __init__(self, *, ready_after, runs=True):
        self.clock, self.ready_after, self.runs = ManualClock(), ready_after, runs
        self.steps, self.error, self.is_ready = 0, None, False
        self.calls = []

    def start(self):
        self.calls.append("start")

    def close(self, *, leaves_group):
        self.calls.append("leave" if leaves_group else "close")

    def step(self):
        self.steps += 1
        self.clock.advance(US_PER_SECOND)
        self.is_ready = self.steps >= self.ready_after
        return self.runs


@KINDS
def test_it_waits_for_all_slots_and_leaves_in_the_end(kind, error):
    stage = Stage(ready_after=3)
    run = kind(stage, stage, patience_s=10, clock=stage.clock)
    run.join()
    run.keep_alive()
    stage.ready_after = 99
    with pytest.raises(error, match="taken away"):
        run.keep_alive()
    run.close()
    assert stage.calls == ["start", "leave"]


@KINDS
def test_it_gives_up_where_others_have_slots_and_where_it_is_stopped(kind, error):
    stage = Stage(ready_after=99)
    with pytest.raises(error, match="other members"):
        kind(stage, stage, patience_s=3, clock=stage.clock).join()
    stage = Stage(ready_after=99, runs=False)
    with pytest.raises(error, match="asked to stop"):
        kind(stage, stage, patience_s=3, clock=stage.clock).join()
