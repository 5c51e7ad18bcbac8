"""The order of the scenario `backfill`. The real thing: tests/integration/test_demo.py."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.local_stack.demo import test_run as bank
from tidegate.local_stack.demo import backfill_run as module
from tidegate.local_stack.demo.backfill_run import BackfillRun
from tidegate.local_stack.demo.bank import Scenario
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.demo.run import DemoOptions, run_demo

story = bank.story

OPTIONS = DemoOptions(
    scenario=Scenario.BACKFILL, accounts=5, rows=20, transfers=10, splits=1, merges=1,
    kill_workers=3, kill_consumer=0, seed=9,
)  # fmt: skip
READ = "tidegate-backfill/read/0/1/x"


@pytest.fixture
def ended_ms(story: list[str], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A run whose parts are stand-ins; the list holds when the last row was published."""
    last_ms = [1 << 50]
    finished = {"a": 1, "b": 1, "c": 1}
    monkeypatch.setattr(bank, "COMMITTED_US", {5: 1, 7: 2, 10: 3})
    monkeypatch.setattr(
        bank.module,
        "finished_stream_partitions",
        lambda *_, **__: {**finished, READ: 1, "tidegate-backfill/rest": last_ms[0]},
    )
    monkeypatch.setattr(
        module, "create_bank_database", lambda *_, **__: story.append("create") or "the database"
    )
    monkeypatch.setattr(
        module, "load_history", lambda _, found: story.append(f"{len(found.ledger)} rows")
    )
    control = bank.module.SimulatorControl
    monkeypatch.setattr(control, "slow_reads", lambda *_: story.append("slow"))
    monkeypatch.setattr(control, "clear_faults", lambda _: story.append("quick"))
    monkeypatch.setattr(Pipeline, "records_in", lambda *_: 1)
    workers = [SimpleNamespace(name="w1"), SimpleNamespace(name="w2")]
    monkeypatch.setattr(
        Pipeline, "start_workers",
        lambda self, count, **_: self.workers.extend(workers) or story.append(f"{count} workers"),
    )  # fmt: skip

    def kill(conductor: Any, victim: Any) -> None:
        story.append(f"kill {victim.name}")
        conductor.worker_killer.kills.append(victim)

    monkeypatch.setattr(bank.Conductor, "kill_worker", kill, raising=False)
    monkeypatch.setattr(
        module, "fetch_commit_log",
        lambda *_, **__: [SimpleNamespace(commit_timestamp_us=at) for at in (1, 1 << 59, 1 << 61)],
    )  # fmt: skip
    monkeypatch.setattr(
        bank.module, "judge_output",
        lambda *_, **asked: story.append("judge")
        or dataclasses.replace(bank.VERDICT, first_rows=len(asked["first"].tokens) + 23),
    )  # fmt: skip
    return last_ms


def run(tmp_path: Path) -> Any:
    return run_demo(OPTIONS, folder=tmp_path, view=bank.view(), kind=BackfillRun)


def test_workers_are_killed_while_tables_are_read_and_transfers_are_made(
    story: list[str], ended_ms: list[int], tmp_path: Path
):
    report = run(tmp_path)

    assert story[:11] == [
        "stack up", "create", "20 rows", "slow", "customers start", "2 workers", "consumer",
        "kill w1", "kill w2", "kill w1", "quick",
    ]  # fmt: skip
    assert "judge" in story
    first = report.backfill
    assert (first.rows, first.read_partitions, first.worker_kills) == (25, 1, 3)
    assert first.transactions_meanwhile == 1
    assert report.stream_partitions_finished == 3
    assert [wrong.name for wrong in report.wrong_figures(OPTIONS.asked)] == [
        "latency_undisturbed_ms.rows"
    ]


def test_kills_after_the_last_row_do_not_count(
    story: list[str], ended_ms: list[int], tmp_path: Path
):
    ended_ms[0] = 1

    assert run(tmp_path).backfill.worker_kills == 0


def test_the_stream_begins_where_its_rows_are_read(
    story: list[str], ended_ms: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        bank.module, "judge_output",
        lambda *_, **given: asked.update(given) or dataclasses.replace(bank.VERDICT, first_rows=25),
    )  # fmt: skip
    monkeypatch.setattr(
        Pipeline, "start_workers",
        lambda self, _, *, start, **__: asked.update(start=start)
        or self.workers.append(SimpleNamespace(name="w1")),
    )  # fmt: skip
    run(tmp_path)

    assert asked["first"].tables == ("accounts", "ledger")
    begins = module.datetime.fromisoformat(asked["start"])
    assert asked["first"].at_us == commit_time_us(begins)
    assert BackfillRun.settings == {"TIDEGATE_PRODUCER_BACKFILL": "accounts,ledger"}


@pytest.mark.parametrize("transfers", [*range(10, 22), 300, 2_000])
def test_no_step_waits_for_transfers_beyond_a_pause(
    story: list[str],
    ended_ms: list[int],
    tmp_path: Path,
    transfers: int,
    monkeypatch: pytest.MonkeyPatch,
):
    options = dataclasses.replace(OPTIONS, transfers=transfers, splits=60, merges=40)
    monkeypatch.setattr(bank.Customers, "last_commit_us", bank.LAST_US)
    report = run_demo(options, folder=tmp_path, view=bank.view(), kind=BackfillRun)

    assert (report.splits, report.merges) == (60, 40)
