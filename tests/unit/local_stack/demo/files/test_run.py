"""The order of the scenario `datastream`. The real thing: tests/integration/test_demo.py."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.local_stack.demo import test_run as bank
from tidegate.local_stack.demo.bank import FilesOf, Scenario
from tidegate.local_stack.demo.files import run as module
from tidegate.local_stack.demo.files.run import files_asked, run_files_demo
from tidegate.local_stack.demo.files.writer import FilesWriter
from tidegate.local_stack.demo.kills import Killer
from tidegate.local_stack.demo.pipeline import Pipeline, Released
from tidegate.local_stack.demo.report import Kill
from tidegate.local_stack.demo.run import DemoOptions
from tidegate.local_stack.errors import PartFailedError

OPTIONS = DemoOptions(
    scenario=Scenario.DATASTREAM, files_of=FilesOf.ORACLE, accounts=5, rows=20, transfers=10,
    seed=9,
)  # fmt: skip


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(module, "LocalStack", lambda *_, **__: bank.Stack(done))
    monkeypatch.setattr(FilesWriter, "start", lambda self: done.append(f"files of {self.source}"))
    monkeypatch.setattr(FilesWriter, "stop", lambda _: done.append("files stop"))
    writes = FilesWriter.resume, FilesWriter.finish

    def resume(self: FilesWriter) -> None:
        done.append("resume")
        writes[0](self)
        self.done = self.transfers - 1
        self._unread.clear()

    def finish(self: FilesWriter) -> None:
        done.append("finish")
        self.done = self.transfers
        self.last_source_us = 77

    monkeypatch.setattr(FilesWriter, "resume", resume)
    monkeypatch.setattr(FilesWriter, "finish", finish)

    def start_workers(self: Pipeline, count: int, *, start: str, **_: Any) -> None:
        assert start.endswith("Z")
        source = json.loads(self.programs.source)
        assert Path(source["location"]).is_relative_to(tmp_path)
        for number in range(count):
            log = tmp_path / f"w{number}.log"
            lines = [json.dumps({"event": "step", "step": "publish"})] * number
            log.write_text("".join(f"{line}\n" for line in lines))
            name = f"w{number}"
            self.workers.append(SimpleNamespace(name=name, spec=SimpleNamespace(log=log)))
        done.append(f"{count} workers")

    def start_consumer(self: Pipeline, _: Any) -> None:
        self.consumer = SimpleNamespace(name="consumer")
        done.append("consumer")

    def kill(self: Killer, program: Any, **_: Any) -> Kill:
        done.append(f"kill {program.name}")
        self.kills.append(Kill(program.name, self.steps[0], 1.0))
        return self.kills[-1]

    monkeypatch.setattr(Pipeline, "start_workers", start_workers)
    monkeypatch.setattr(Pipeline, "start_consumer", start_consumer)
    monkeypatch.setattr(Pipeline, "check", lambda _: None)
    monkeypatch.setattr(Pipeline, "released", lambda _: Released(2, 99))
    monkeypatch.setattr(
        Pipeline, "wait_released", lambda _, us, **__: done.append(f"released {us}")
    )

    def stop(self: Pipeline) -> list[str]:
        done.append("programs stop")
        self.workers, self.consumer = [], None
        return ["w1 ended with exit code 1"]

    monkeypatch.setattr(Pipeline, "stop", stop)
    monkeypatch.setattr(Killer, "kill_and_restart", kill)
    return done


def test_a_run_goes_from_files_to_judge(story: list[str], tmp_path: Path):
    shown = bank.view()
    report = run_files_demo(OPTIONS, folder=tmp_path, view=shown)

    assert story == [
        "stack up", "files of oracle", "2 workers", "consumer", "resume", "kill w1",
        "kill consumer", "finish", "released 77", "programs stop", "files stop", "programs stop",
        "stack down",
    ]  # fmt: skip
    assert (report.source, report.seed, report.unclean_stops) == ("Oracle", 9, 1)
    # Nothing was written, and nothing is in Delta.
    wrong = {one.name for one in report.wrong_figures(files_asked(OPTIONS))}
    assert {"changes", "releases", "mirror_equals_source", "total_is_right"} <= wrong
    assert "w1 ended with exit code 1" in report.examples
    assert shown.shown["transfers"] == "10/10"


def test_a_failure_stops_everything(
    story: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any, **__: Any) -> None:
        raise PartFailedError("w1 ended by itself")

    monkeypatch.setattr(Killer, "kill_and_restart", fail)
    with pytest.raises(PartFailedError):
        run_files_demo(OPTIONS, folder=tmp_path, view=bank.view())
    assert sorted(story[-3:]) == ["files stop", "programs stop", "stack down"]


def test_what_was_asked():
    asked = files_asked(DemoOptions(scenario=Scenario.DATASTREAM))

    assert (asked.transfers, asked.rows, asked.disturbances) == (2_000, 2_200, 1)
    assert (files_asked(OPTIONS).rows, files_asked(OPTIONS).disturbances) == (25, 0)
