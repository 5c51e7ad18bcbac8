"""The producer's benchmark still runs: each stage and the whole worker, on a few changes."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest

from benchmarks.producer import __main__ as program
from benchmarks.producer.responses import CASES, Case
from benchmarks.producer.stages import STAGES
from benchmarks.producer.worker import WORKERS

CHANGES = 400


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_does_a_round(stage, case):
    assert STAGES[stage](case, CHANGES)() > 0


@pytest.mark.parametrize("kind", WORKERS)
def test_a_whole_worker_commits_every_change(kind):
    run = WORKERS[kind](Case(20, 10), CHANGES)

    assert [run() > 0, run() > 0] == [True, True]


def test_another_checkout_is_measured_in_turn(capsys):
    program.main(
        ["--only", "decode", "--mods", "100", "--rounds", "3", "--changes", "400", "--json",
         "--baseline", str(program._OWN)]
    )  # fmt: skip

    (found,) = json.loads(capsys.readouterr().out)["measured"]
    assert (found["name"], found["mods"]) == ("decode", 100)
    for checkout in ("baseline", "this"):
        figures = found[checkout]["cpu_us"]
        assert 0 < figures["min"] <= figures["median"] <= figures["max"]


def test_an_unknown_name_is_refused_with_the_known_ones(capsys):
    with pytest.raises(SystemExit) as caught:
        program.main(["--only", "decoding"])

    assert caught.value.code == 2
    assert "unknown names ['decoding']; known: decode; " in capsys.readouterr().err


def test_a_round_that_fails_costs_the_others_nothing(capsys, monkeypatch):
    broken, whole = list(program.SCENARIOS)[:2]
    rounds = iter(range(9))

    def fail(_stack, _checkout):
        if next(rounds):
            raise SystemExit("the workers are not publishing")
        return {"cpu_us": 1.0}

    monkeypatch.setitem(program.SCENARIOS, broken, fail)
    monkeypatch.setitem(program.SCENARIOS, whole, lambda _stack, _checkout: {"cpu_us": 2.0})
    monkeypatch.setattr(program, "LocalStack", lambda *_, **__: nullcontext())
    with pytest.raises(SystemExit):
        program.main(["--only", broken, whole, "--rounds", "3", "--json"])

    printed = capsys.readouterr()
    measured = json.loads(printed.out)["measured"]
    assert {one["name"]: one["this"]["cpu_us"]["median"] for one in measured} == {
        broken: 1.0, whole: 2.0,
    }  # fmt: skip
    assert printed.err.count(f"{broken}: the workers are not publishing") == 4
