"""A plan is carried out as the transfers come along; the first failure ends it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.local_stack.demo import conductor as module
from tidegate.local_stack.demo.churn import Disturbance
from tidegate.local_stack.demo.conductor import Conductor
from tidegate.local_stack.demo.report import Kill
from tidegate.local_stack.errors import LocalStackError, PartFailedError

PLAN = [
    Disturbance(0.1, "split"),
    Disturbance(0.2, "kill-worker"),
    Disturbance(0.3, "merge"),
    Disturbance(0.4, "kill-consumer"),
    Disturbance(0.5, "split"),
]


class Control:
    def __init__(self, refusals: int = 0) -> None:
        self.story: list[str] = []
        self.refusals = refusals

    def split(self) -> None:
        self._do("split")

    def merge(self) -> None:
        self._do("merge")

    def _do(self, what: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise LocalStackError("too early")
        self.story.append(what)


class Pipeline:
    def __init__(self) -> None:
        self.workers = [SimpleNamespace(name="w1"), SimpleNamespace(name="w2")]
        self.consumer = SimpleNamespace(name="consumer")
        self.failure: Exception | None = None

    def check(self) -> None:
        if self.failure:
            raise self.failure

    def going_down(self, _: Any) -> None:
        pass

    def is_up_again(self, _: Any) -> None:
        pass


class FakeKiller:
    def __init__(self, *_: Any) -> None:
        self.kills: list[Any] = []

    def kill_and_restart(self, victim: Any, **_: Any) -> Any:
        killed = Kill(victim.name, "fence", 1.0)
        self.kills.append(killed)
        return killed


def conductor(
    monkeypatch: pytest.MonkeyPatch, *, done: int, refusals: int = 0
) -> tuple[Conductor, Any, Control, Pipeline, list[str]]:
    monkeypatch.setattr(module, "Killer", FakeKiller)
    monkeypatch.setattr(module, "_REFUSED_AGAIN_S", 0.0)
    customers = SimpleNamespace(done=done, transfers=100, has_finished=False)
    control, pipeline, events = Control(refusals), Pipeline(), []
    view = SimpleNamespace(seconds=1.0, event=events.append)
    made = Conductor(seed=1, customers=customers, control=control, pipeline=pipeline, view=view)
    return made, customers, control, pipeline, events


def test_everything_planned_is_done(monkeypatch: pytest.MonkeyPatch):
    made, _, control, _, events = conductor(monkeypatch, done=100)
    made.conduct(PLAN, lambda: None)

    assert control.story == ["split", "merge", "split"]
    assert (made.splits, made.merges) == (2, 1)
    assert [one.worker for one in made.consumer_killer.kills] == ["consumer"]
    assert made.worker_killer.kills[0].worker in {"w1", "w2"}
    assert len(events) == 2


def test_a_second_plan_goes_on_counting(monkeypatch: pytest.MonkeyPatch):
    made, _, control, _, _ = conductor(monkeypatch, done=100)
    made.conduct(PLAN[:1], lambda: None)
    made.conduct(PLAN[1:], lambda: None)

    assert control.story == ["split", "merge", "split"]
    assert (made.splits, made.merges) == (2, 1)


def test_nothing_is_done_before_its_time(monkeypatch: pytest.MonkeyPatch):
    made, customers, control, _, _ = conductor(monkeypatch, done=15)
    is_caught_up = threading.Event()

    def tick() -> None:
        if control.story == ["split"] and not is_caught_up.is_set():
            is_caught_up.set()
            customers.done = 100

    made.conduct(PLAN, tick)

    assert is_caught_up.is_set()
    assert control.story == ["split", "merge", "split"]


def test_a_refusal_is_tried_again(monkeypatch: pytest.MonkeyPatch):
    made, _, control, _, _ = conductor(monkeypatch, done=100, refusals=5)
    made.conduct(PLAN, lambda: None)

    assert control.story == ["split", "merge", "split"]


def test_lasting_refusals_end_the_run(monkeypatch: pytest.MonkeyPatch):
    made, *_ = conductor(monkeypatch, done=100, refusals=1_000)

    with pytest.raises(LocalStackError, match="too early"):
        made.conduct(PLAN, lambda: None)


def test_a_dead_program_ends_the_run_and_its_threads(monkeypatch: pytest.MonkeyPatch):
    made, _, control, pipeline, _ = conductor(monkeypatch, done=0)
    pipeline.failure = PartFailedError("w1 ended by itself")

    with pytest.raises(PartFailedError):
        made.conduct(PLAN, lambda: None)
    assert control.story == []


def test_customers_that_stand_still_end_the_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_IDLE_MAX_S", 0.0)
    made, _, control, _, _ = conductor(monkeypatch, done=45)

    with pytest.raises(PartFailedError, match="goes on to transfer 50"):
        made.conduct(PLAN, lambda: None)
    assert "split" in control.story


def test_customers_that_failed_end_the_run(monkeypatch: pytest.MonkeyPatch):
    made, *_ = conductor(monkeypatch, done=0)

    class Failed:
        done, transfers = 0, 100

        @property
        def has_finished(self) -> bool:
            raise PartFailedError("the bank's customers failed")

    made.customers = Failed()
    with pytest.raises(PartFailedError, match="customers failed"):
        made.conduct(PLAN, lambda: None)
