"""The order of a run: what starts when, what waits for what. The real thing: tests/integration."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tidegate.local_stack.demo import run as module
from tidegate.local_stack.demo.bank import Dialect, schema_statements
from tidegate.local_stack.demo.pipeline import Pipeline, Released
from tidegate.local_stack.demo.report import Kill
from tidegate.local_stack.demo.run import DemoOptions, bank_layout, run_demo
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.changelog import ChangelogFigures
from tidegate.local_stack.judge.cuts import CutFigures
from tidegate.local_stack.judge.verdict import Delivery, Verdict

OPTIONS = DemoOptions(accounts=5, transfers=10, splits=1, merges=1, seed=9)
OPENED_US, WARM_US, QUIET_US, LAST_US = 1_000, 3_000, 6_000, 9_000
COMMITTED_US = {1: WARM_US, 7: QUIET_US, 10: LAST_US}
VERDICT = Verdict(
    changelog=ChangelogFigures(35, 35, 0, 0, 0, 0, 0, 0, 0, 0, ("an example",)),
    cuts=CutFigures(4, 3, 2_000_000, 0, 0, True, ()),
    late=0,
    transactions=11,
    transactions_across_partitions=8,
    deliveries=(
        Delivery(OPENED_US, 2_000, release=0),
        Delivery(WARM_US, 4_000, release=1),
        *[Delivery(QUIET_US, 8_000, release=2)] * 18,
        *[Delivery(LAST_US, 12_000, release=3)] * 9,
    ),
)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("commit_timestamps", [True, False])
def test_the_judge_reads_every_column_of_the_schema(commit_timestamps: bool, dialect: Dialect):
    layout = bank_layout(commit_timestamps=commit_timestamps)
    statements = [
        statement.replace('"', "")
        for statement in schema_statements(commit_timestamps=commit_timestamps, dialect=dialect)
    ]
    for (table, found), statement in zip(layout.items(), statements[:2], strict=True):
        lines = statement.split("\n")[1:-1]
        columns = tuple(line.split()[0] for line in lines if line.strip())

        assert f"CREATE TABLE {table} " in statement
        assert found.columns == columns
        assert f"PRIMARY KEY ({', '.join(found.key)})" in statement


def test_a_report_is_held_against_what_was_asked():
    asked = OPTIONS.asked

    assert (asked.transfers, asked.splits, asked.merges) == (10, 1, 1)
    assert (asked.kill_workers, asked.kill_consumer) == (1, 1)


def test_three_quarters_are_undisturbed_and_all_without_kills():
    options = DemoOptions(transfers=2_000)
    calm = DemoOptions(transfers=2_000, kill_workers=0, kill_consumer=0)

    assert (options.warm_up, options.kills_from, options.asked.undisturbed) == (20, 1_500, 1_480)
    assert (calm.warm_up, calm.kills_from, calm.asked.undisturbed) == (20, 2_000, 1_980)


@pytest.mark.parametrize(
    ("transfers", "rate", "pace"),
    [(2_000, None, 40.0), (18_000, None, 200.0), (18_000, 0.0, 0.0), (10, 5.0, 5.0)],
)
def test_a_big_run_is_faster_than_a_small_one(transfers: int, rate: float | None, pace: float):
    assert DemoOptions(transfers=transfers, rate_max=rate).pace == pace


class Stack:
    bootstrap_servers = registry_url = spanner_address = control_address = "here:1"

    def __init__(self, story: list[str]) -> None:
        self.story = story

    def __enter__(self) -> Self:
        self.story.append("stack up")
        return self

    def __exit__(self, *_: object) -> None:
        self.story.append("stack down")


class Customers:
    story: list[str]

    def __init__(self, *_: Any, **settings: Any) -> None:
        self.transfers = settings["transfers"]
        self.stops = [*settings["pauses"], self.transfers - settings["reserve"]]
        self.done = 0

    @property
    def last_commit_us(self) -> int:
        return COMMITTED_US[self.done]

    @property
    def has_finished(self) -> bool:
        return not self.stops

    def start(self) -> None:
        self.story.append("customers start")
        self.done = self.stops.pop(0)

    def resume(self) -> None:
        self.story.append("customers resume")
        self.done = self.stops.pop(0)

    def finish(self) -> None:
        self.story.append("customers finish")
        self.done = self.transfers

    def stop(self) -> None:
        self.story.append("customers stop")


class Conductor:
    story: list[str]
    failure: Exception | None = None

    def __init__(self, *, customers: Customers, **_: Any) -> None:
        self.customers = customers
        self.splits = self.merges = 0
        self.worker_killer = SimpleNamespace(kills=[])
        self.consumer_killer = SimpleNamespace(kills=[])

    def conduct(self, plan: Any, tick: Any) -> None:
        tick()
        if self.failure:
            raise self.failure
        shares = [planned.at_share for planned in plan]
        # A step beyond the customers' pause would be waited for without end.
        assert max(shares, default=0.0) * self.customers.transfers <= self.customers.done
        kinds = [planned.kind for planned in plan]
        self.splits += kinds.count("split")
        self.merges += kinds.count("merge")
        self.worker_killer.kills += [Kill("w1", "fence", 1.0)] * kinds.count("kill-worker")
        self.consumer_killer.kills += [Kill("x", "plan", 1.0)] * kinds.count("kill-consumer")
        self.story.append("kills" if any(kind.startswith("kill") for kind in kinds) else "no kills")


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    Customers.story = Conductor.story = done
    Conductor.failure = None
    monkeypatch.setattr(module, "LocalStack", lambda *_, **__: Stack(done))
    monkeypatch.setattr(module, "Customers", Customers)
    monkeypatch.setattr(module, "Conductor", Conductor)
    monkeypatch.setattr(module, "create_bank_database", lambda *_, **__: done.append("create"))
    monkeypatch.setattr(module, "open_accounts", lambda *_: OPENED_US)
    monkeypatch.setattr(module, "fetch_commit_log", lambda *_, **__: [])
    monkeypatch.setattr(
        module, "finished_stream_partitions", lambda *_, **__: {"a": 1, "b": 1, "c": 1}
    )
    monkeypatch.setattr(module, "judge_output", lambda *_, **__: done.append("judge") or VERDICT)
    monkeypatch.setattr(module.SimulatorControl, "stream_partitions", lambda _: [{"token": "a"}])
    monkeypatch.setattr(
        Pipeline, "start_workers", lambda _, count, **__: done.append(f"{count} workers")
    )
    monkeypatch.setattr(Pipeline, "start_consumer", lambda *_: done.append("consumer"))
    monkeypatch.setattr(
        Pipeline, "wait_released", lambda _, us, **__: done.append(f"released {us}")
    )
    monkeypatch.setattr(Pipeline, "released", lambda _: Released(3, LAST_US))
    monkeypatch.setattr(Pipeline, "stop", lambda _: done.append("programs stop") or [])
    return done


def view() -> Any:
    nothing = SimpleNamespace(seconds=7.0, shown={})
    nothing.stage = nothing.detail = nothing.event = lambda _: None
    nothing.figures = nothing.shown.update
    return nothing


def test_a_run_goes_from_stack_to_judge(story: list[str], tmp_path: Path):
    shown = view()
    report = run_demo(OPTIONS, folder=tmp_path, view=shown)

    assert story == [
        "stack up",
        "create",
        "2 workers",
        "consumer",
        f"released {OPENED_US}",
        "customers start",
        f"released {WARM_US}",
        "customers resume",
        "no kills",
        f"released {QUIET_US}",
        "customers resume",
        "kills",
        "customers finish",
        f"released {LAST_US}",
        "programs stop",
        "judge",
        "customers stop",
        "programs stop",
        "stack down",
    ]
    assert report.wrong_figures(OPTIONS.asked) == []
    assert report.examples == ("an example",)
    assert report.seed == 9
    # Neither the opened accounts nor the warm-up are measured: they wait for the JVM's start.
    assert (report.latency_undisturbed_ms.rows, report.latency_undisturbed_ms.p50) == (18, 2.0)
    assert (report.latency_with_kills_ms.rows, report.latency_with_kills_ms.p50) == (9, 3.0)
    assert shown.shown["releases"] == 3


def test_a_run_without_kills_has_no_part_for_them(story: list[str], tmp_path: Path):
    options = dataclasses.replace(OPTIONS, kill_workers=0, kill_consumer=0)
    run_demo(options, folder=tmp_path, view=view())

    assert "kills" not in story
    assert "customers finish" not in story
    assert story[story.index("no kills") + 1] == f"released {LAST_US}"


def test_a_failure_stops_everything_and_judges_nothing(story: list[str], tmp_path: Path):
    Conductor.failure = PartFailedError("w1 ended by itself")

    with pytest.raises(PartFailedError):
        run_demo(OPTIONS, folder=tmp_path, view=view())
    assert story[-3:] == ["customers stop", "programs stop", "stack down"]
    assert "judge" not in story


@pytest.mark.parametrize("transfers", [*range(10, 22), 300, 2_000])
def test_no_step_waits_for_transfers_that_nothing_starts(
    story: list[str], tmp_path: Path, transfers: int, monkeypatch: pytest.MonkeyPatch
):
    options = DemoOptions(accounts=5, transfers=transfers, splits=60, merges=40)
    monkeypatch.setattr(Customers, "last_commit_us", LAST_US)
    report = run_demo(options, folder=tmp_path, view=view())

    assert (report.splits, report.merges) == (60, 40)
    assert (len(report.worker_kills), len(report.consumer_kills)) == (1, 1)
