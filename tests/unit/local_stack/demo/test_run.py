"""The order of a run in each scenario; the real thing: tests/integration."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tidegate.local_stack.commands import demo as command_module
from tidegate.local_stack.commands.demo import run_demo
from tidegate.local_stack.demo import bank_run as bank_module
from tidegate.local_stack.demo.bank import Dialect, FilesOf, Scenario, schema_statements
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.bank_run import BackfillRun, bank_layout
from tidegate.local_stack.demo.conductor import Killer
from tidegate.local_stack.demo.event_writer import FilesWriter
from tidegate.local_stack.demo.pipeline import Pipeline, Released
from tidegate.local_stack.demo.report import Kill
from tidegate.local_stack.demo.run import DemoOptions
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.changelog import ChangelogFigures
from tidegate.local_stack.judge.cuts import CutFigures
from tidegate.local_stack.judge.delta import Delivery
from tidegate.local_stack.judge.verdict import Verdict

# run


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
    # Three quarters are undisturbed, and all without kills.
    for kills, kills_from, undisturbed in ((1, 1_500, 1_480), (0, 2_000, 1_980)):
        made = DemoOptions(transfers=2_000, kill_workers=kills, kill_consumer=kills)
        found = (made.warm_up, made.kills_from, made.asked.undisturbed)
        assert found == (20, kills_from, undisturbed)


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

    def start(self, word: str = "start") -> None:
        self.story.append(f"customers {word}")
        self.done = self.stops.pop(0)

    def resume(self) -> None:
        self.start("resume")

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
        self.splits = self.merges = self.count = 0
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


def patch(monkeypatch: pytest.MonkeyPatch, place: Any, **replaced: Any) -> None:
    for name, value in replaced.items():
        monkeypatch.setattr(place, name, value, raising=place is not Conductor)


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    Customers.story = Conductor.story = done
    Conductor.failure = None
    patch(monkeypatch, command_module, LocalStack=lambda *_, **__: Stack(done))
    patch(
        monkeypatch, bank_module,
        Customers=Customers,
        Conductor=Conductor,
        create_bank_database=lambda *_, **__: done.append("create"),
        open_accounts=lambda *_: OPENED_US,
        fetch_commit_log=lambda *_, **__: [],
        finished_stream_partitions=lambda *_, **__: {"a": 1, "b": 1, "c": 1},
        judge_output=lambda *_, **__: done.append("judge") or VERDICT,
    )  # fmt: skip
    patch(
        monkeypatch, bank_module.SimulatorControl,
        stream_partitions=lambda _: [{"token": "a"}],
        slow_reads=lambda *_: done.append("slow"),
        clear_faults=lambda _: done.append("quick"),
    )  # fmt: skip
    patch(
        monkeypatch, Pipeline,
        start_workers=lambda _, count, **__: done.append(f"{count} workers"),
        start_consumer=lambda *_: done.append("consumer"),
        wait_released=lambda _, us, **__: done.append(f"released {us}"),
        released=lambda _: Released(3, LAST_US),
        records_in=lambda *_: 1,
        stop=lambda _: done.append("programs stop") or [],
    )  # fmt: skip
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
        "stack up", "create", "2 workers", "consumer", f"released {OPENED_US}", "customers start",
        f"released {WARM_US}", "customers resume", "no kills", f"released {QUIET_US}",
        "customers resume", "kills", "customers finish", f"released {LAST_US}", "programs stop",
        "judge", "customers stop", "programs stop", "stack down",
    ]  # fmt: skip
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


# backfill_run


BACKFILL_OPTIONS = DemoOptions(
    scenario=Scenario.BACKFILL, accounts=5, rows=20, transfers=10, splits=1, merges=1,
    kill_workers=3, kill_consumer=0, seed=9,
)  # fmt: skip
READ = "tidegate-backfill/read/0/1/x"


@dataclasses.dataclass
class Backfill:
    """When the last row was published, and what the run asked for."""

    story: list[str]
    last_ms: int = 1 << 50
    asked: dict[str, Any] = dataclasses.field(default_factory=dict)

    def judge(self, *_: Any, **asked: Any) -> Verdict:
        self.story.append("judge")
        self.asked |= asked
        return dataclasses.replace(VERDICT, first_rows=len(asked["first"].tokens) + 23)


@pytest.fixture
def backfill(story: list[str], monkeypatch: pytest.MonkeyPatch) -> Backfill:
    """A run whose parts are stand-ins."""
    made = Backfill(story)
    finished = {"a": 1, "b": 1, "c": 1, READ: 1}
    commits = [SimpleNamespace(commit_timestamp_us=at) for at in (1, 1 << 59, 1 << 61)]
    monkeypatch.setitem(globals(), "COMMITTED_US", {5: 1, 7: 2, 10: 3})
    patch(
        monkeypatch, bank_module,
        finished_stream_partitions=lambda *_, **__: {
            **finished, "tidegate-backfill/rest": made.last_ms
        },
        judge_output=made.judge,
        create_bank_database=lambda *_, **__: story.append("create") or "the database",
        load_history=lambda _, found: story.append(f"{len(found.ledger)} rows"),
        fetch_commit_log=lambda *_, **__: commits,
    )  # fmt: skip

    def start_workers(self: Pipeline, count: int, *, start: str, **_: Any) -> None:
        made.asked["start"] = start
        self.workers += [SimpleNamespace(name="w1"), SimpleNamespace(name="w2")]
        story.append(f"{count} workers")

    def kill(self: Conductor, victim: Any) -> None:
        story.append(f"kill {victim.name}")
        self.worker_killer.kills.append(victim)

    patch(monkeypatch, Pipeline, start_workers=start_workers)
    patch(monkeypatch, Conductor, kill_worker=kill)
    return made


def run(tmp_path: Path) -> Any:
    return run_demo(BACKFILL_OPTIONS, folder=tmp_path, view=view())


def test_workers_are_killed_while_tables_are_read_and_transfers_are_made(
    story: list[str], backfill: Backfill, tmp_path: Path
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
    assert [wrong.name for wrong in report.wrong_figures(BACKFILL_OPTIONS.asked)] == [
        "latency_undisturbed_ms.rows"
    ]


def test_kills_after_the_last_row_do_not_count(backfill: Backfill, tmp_path: Path):
    backfill.last_ms = 1
    assert run(tmp_path).backfill.worker_kills == 0


def test_the_stream_begins_where_its_rows_are_read(backfill: Backfill, tmp_path: Path):
    run(tmp_path)
    asked = backfill.asked
    assert asked["first"].tables == ("accounts", "ledger")
    begins = bank_module.datetime.fromisoformat(asked["start"])
    assert asked["first"].at_us == commit_time_us(begins)
    assert BackfillRun.environment == {"TIDEGATE_PRODUCER_BACKFILL": "accounts,ledger"}


@pytest.mark.parametrize("transfers", [*range(10, 22), 300, 2_000])
def test_no_step_waits_for_transfers_beyond_a_pause(
    story: list[str],
    backfill: Backfill,
    tmp_path: Path,
    transfers: int,
    monkeypatch: pytest.MonkeyPatch,
):
    options = dataclasses.replace(BACKFILL_OPTIONS, transfers=transfers, splits=60, merges=40)
    monkeypatch.setattr(Customers, "last_commit_us", LAST_US)
    report = run_demo(options, folder=tmp_path, view=view())
    assert (report.splits, report.merges) == (60, 40)


# files_run


FILES_OPTIONS = DemoOptions(
    scenario=Scenario.DATASTREAM, files_of=FilesOf.ORACLE, accounts=5, rows=20, transfers=10,
    seed=9,
)  # fmt: skip


@pytest.fixture
def files_story(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    done: list[str] = []
    real_resume = FilesWriter.resume

    def resume(self: FilesWriter) -> None:
        done.append("resume")
        real_resume(self)
        self.done = self.transfers - 1
        self._unread.clear()

    def finish(self: FilesWriter) -> None:
        done.append("finish")
        self.done, self.last_source_us = self.transfers, 77

    def start_workers(self: Pipeline, count: int, *, start: str, **_: Any) -> None:
        assert start.endswith("Z")
        source = json.loads(self.programs.source)
        assert Path(source["location"]).is_relative_to(tmp_path)
        for number in range(count):
            log = tmp_path / f"w{number}.log"
            log.write_text('{"event": "step", "step": "publish"}\n' * number)
            self.workers.append(SimpleNamespace(name=f"w{number}", spec=SimpleNamespace(log=log)))
        done.append(f"{count} workers")

    def start_consumer(self: Pipeline, _: Any) -> None:
        self.consumer = SimpleNamespace(name="consumer")
        done.append("consumer")

    def kill(self: Killer, program: Any, **_: Any) -> Kill:
        done.append(f"kill {program.name}")
        self.kills.append(Kill(program.name, self.steps[0], 1.0))
        return self.kills[-1]

    def stop(self: Pipeline) -> list[str]:
        done.append("programs stop")
        self.workers, self.consumer = [], None
        return ["w1 ended with exit code 1"]

    patch(monkeypatch, command_module, LocalStack=lambda *_, **__: Stack(done))
    patch(
        monkeypatch, FilesWriter,
        start=lambda self: done.append(f"files of {self.source}"),
        stop=lambda _: done.append("files stop"),
        resume=resume, finish=finish,
    )  # fmt: skip
    patch(
        monkeypatch, Pipeline,
        start_workers=start_workers, start_consumer=start_consumer, stop=stop,
        check=lambda _: None, released=lambda _: Released(2, 99),
        wait_released=lambda _, us, **__: done.append(f"released {us}"),
    )  # fmt: skip
    patch(monkeypatch, Killer, kill_and_restart=kill)
    return done


def test_a_run_of_files_goes_from_files_to_judge(files_story: list[str], tmp_path: Path):
    shown = view()
    report = run_demo(FILES_OPTIONS, folder=tmp_path, view=shown)
    assert files_story == [
        "stack up", "files of oracle", "2 workers", "consumer", "resume", "kill w1",
        "kill consumer", "finish", "released 77", "programs stop", "files stop", "programs stop",
        "stack down",
    ]  # fmt: skip
    assert (report.source, report.seed, report.unclean_stops) == ("Oracle", 9, 1)
    # Nothing was written, and nothing is in Delta.
    wrong = {figure.name for figure in report.wrong_figures(FILES_OPTIONS.asked)}
    assert {"changes", "releases", "mirror_equals_source", "total_is_right"} <= wrong
    assert "w1 ended with exit code 1" in report.examples
    assert shown.shown["transfers"] == "10/10"


def test_a_failure_of_a_run_of_files_stops_everything(
    files_story: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any, **__: Any) -> None:
        raise PartFailedError("w1 ended by itself")

    monkeypatch.setattr(Killer, "kill_and_restart", fail)
    with pytest.raises(PartFailedError):
        run_demo(FILES_OPTIONS, folder=tmp_path, view=view())
    assert sorted(files_story[-3:]) == ["files stop", "programs stop", "stack down"]


def test_what_is_asked_of_files():
    asked = DemoOptions(scenario=Scenario.DATASTREAM).asked
    assert (asked.transfers, asked.first_rows, asked.disturbances) == (2_000, 2_200, 1)
    few = FILES_OPTIONS.asked
    assert (few.first_rows, few.disturbances) == (25, 0)
