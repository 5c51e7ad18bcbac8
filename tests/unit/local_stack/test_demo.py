"""The order of a run: what starts when, what waits for what. The real thing: tests/integration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tidegate.local_stack import demo as module
from tidegate.local_stack.bank import schema_statements
from tidegate.local_stack.demo import DemoOptions, bank_layout, run_demo
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge import Delivery, Verdict
from tidegate.local_stack.judge_changelog import ChangelogFigures
from tidegate.local_stack.judge_cuts import CutFigures
from tidegate.local_stack.kills import TimedKill
from tidegate.local_stack.pipeline import Pipeline, Released
from tidegate.local_stack.report import Kill

OPTIONS = DemoOptions(accounts=5, transfers=10, splits=1, merges=1, seed=9)
OPENED_US, LAST_US = 1_000, 9_000
VERDICT = Verdict(
    changelog=ChangelogFigures(35, 35, 0, 0, 0, 0, 0, 0, 0, 0, ("an example",)),
    cuts=CutFigures(3, 0, 0, True, ()),
    late=0,
    transactions=11,
    transactions_across_partitions=8,
    deliveries=(Delivery(OPENED_US, 2_000), Delivery(LAST_US, 12_000)),
)


@pytest.mark.parametrize("commit_timestamps", [True, False])
def test_the_judge_reads_every_column_of_the_schema(commit_timestamps: bool):
    layout = bank_layout(commit_timestamps=commit_timestamps)
    statements = schema_statements(commit_timestamps=commit_timestamps)
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


@pytest.mark.parametrize(
    ("transfers", "rate", "pace"),
    [(2_000, None, 80.0), (18_000, None, 200.0), (18_000, 0.0, 0.0), (10, 5.0, 5.0)],
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
        self.settings = settings
        self.done, self.last_commit_us, self.has_finished = 10, LAST_US, True

    def start(self) -> None:
        self.story.append("customers start")

    def finish(self) -> None:
        self.story.append("customers finish")

    def stop(self) -> None:
        self.story.append("customers stop")


class Conductor:
    story: list[str]
    failure: Exception | None = None

    def __init__(self, *, plan: Any, **_: Any) -> None:
        kills = {"kill-worker": [], "kill-consumer": []}
        for planned in plan:
            if planned.kind in kills:
                kills[planned.kind].append(TimedKill(Kill("x", "fence", 1.0), at_us=5_000))
        self.splits = self.merges = 1
        self.worker_killer = SimpleNamespace(kills=kills["kill-worker"])
        self.consumer_killer = SimpleNamespace(kills=kills["kill-consumer"])

    def conduct(self, tick: Any) -> None:
        tick()
        if self.failure:
            raise self.failure
        self.story.append("conducted")


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    Customers.story = Conductor.story = done
    Conductor.failure = None
    monkeypatch.setattr(module, "LocalStack", lambda *_, **__: Stack(done))
    monkeypatch.setattr(module, "Customers", Customers)
    monkeypatch.setattr(module, "Conductor", Conductor)
    monkeypatch.setattr(module, "create_bank_database", lambda _: done.append("create"))
    monkeypatch.setattr(module, "open_accounts", lambda *_: OPENED_US)
    monkeypatch.setattr(module, "fetch_commit_log", lambda *_, **__: [])
    monkeypatch.setattr(
        module, "finished_stream_partitions", lambda *_, **__: frozenset({"a", "b", "c"})
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
        "conducted",
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
    # The opened accounts are not measured: they waited for the consumer's start.
    assert report.end_to_end_latency_ms.rows == 1
    assert shown.shown["releases"] == 3


def test_a_failure_stops_everything_and_judges_nothing(story: list[str], tmp_path: Path):
    Conductor.failure = PartFailedError("w1 ended by itself")

    with pytest.raises(PartFailedError):
        run_demo(OPTIONS, folder=tmp_path, view=view())
    assert story[-3:] == ["customers stop", "programs stop", "stack down"]
    assert "judge" not in story
