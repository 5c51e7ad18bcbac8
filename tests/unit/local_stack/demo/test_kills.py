"""Kills aim at every step in turn, and report the step that was hit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.local_stack.demo import kills as module
from tidegate.local_stack.demo.kills import Killer
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import Program

CYCLES = """
import itertools, json, time
for step in itertools.cycle(["begin", "publish", "fence"]):
    print(json.dumps({"event": "step", "step": step}), flush=True)
    time.sleep(0.03)
"""
DIES = "raise SystemExit(1)"


def program(folder: Path, code: str) -> Program:
    return Program(
        ProcessSpec(name="w1", command=[sys.executable, "-c", code], log=folder / "w1.log")
    )


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Program]:
    made = program(tmp_path, CYCLES)
    made.start()
    yield made
    made.stop()


def killer(seed: int, steps: tuple[str, ...]) -> Killer:
    return Killer(seed, steps, lambda: 12.34)


def test_the_victim_is_hit_and_runs_again(victim: Program):
    pid = victim.process.pid
    order: list[str] = []
    done = killer(1, ("fence",)).kill_and_restart(
        victim,
        before=lambda one: order.append(f"before {one.process.pid}"),
        after=lambda one: order.append(f"after {one.process.is_running}"),
    )

    assert order == [f"before {pid}", "after True"]
    assert victim.process.pid != pid
    assert done.worker == "w1"
    assert done.step in {"begin", "publish", "fence"}
    assert done.at == 12.3


def test_a_step_that_never_comes_is_not_waited_for_forever(
    victim: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_AIM_DEADLINE_S", 0.1)
    monkeypatch.setattr(Killer, "aim", lambda _: "no such step")
    killing = killer(1, ("fence",))
    killing.kill_and_restart(victim)

    assert len(killing.kills) == 1


def test_a_victim_is_not_killed_before_it_has_gone_through_a_cycle(
    victim: Program, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_CYCLE_DEADLINE_S", 0.5)

    with pytest.raises(PartFailedError, match="finished no cycle"):
        killer(1, ("begin", "a last step that never comes")).kill_and_restart(victim)
    assert victim.process.is_running


def test_a_victim_that_never_works_is_an_error(tmp_path: Path):
    victim = program(tmp_path, DIES)
    victim.start()

    with pytest.raises(PartFailedError, match="finished no cycle"):
        killer(1, ("fence",)).kill_and_restart(victim)


def test_every_step_is_aimed_at_before_any_again():
    steps = ("a", "b", "c", "d")
    aiming = killer(3, steps)
    first = [aiming.aim() for _ in steps]

    assert sorted(first) == list(steps)
    assert aiming.aim() in steps
    assert len({tuple(killer(seed, steps).aim() for _ in (0, 1)) for seed in range(20)}) > 1
