"""The demo's exit, its report and its folder, whatever the run shows."""

from __future__ import annotations

import dataclasses
import io
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.unit.local_stack.demo.files.test_report import RIGHT as FILES
from tidegate.local_stack.demo import command as module
from tidegate.local_stack.demo.bank import Scenario
from tidegate.local_stack.demo.command import prove
from tidegate.local_stack.demo.report import Kill, Latency, Report
from tidegate.local_stack.demo.run import DemoOptions
from tidegate.local_stack.errors import PartFailedError

OPTIONS = DemoOptions(transfers=10, splits=1, merges=1)
RIGHT = Report(
    changes_committed=50,
    changes_in_changelog=50,
    missing=0,
    duplicates=0,
    invented=0,
    changes_unlike_source=0,
    out_of_order=0,
    ordinals_broken=0,
    late=0,
    transactions=11,
    transactions_across_partitions=9,
    transactions_torn=0,
    splits=1,
    merges=1,
    stream_partitions_finished=3,
    worker_kills=(Kill("w1", "fence", 3.2),),
    consumer_kills=(Kill("consumer", "plan", 3.2),),
    releases=5,
    mirror_cuts=4,
    mirror_behind_s_most=9.5,
    rows_outside_release=0,
    releases_unlike_source=0,
    releases_with_wrong_total=0,
    mirror_equals_source=True,
    latency_undisturbed_ms=Latency(2_100.0, 3_900.0, 18, 2, "quiet"),
    latency_with_kills_ms=Latency(30_100.0, 33_900.0, 9, 1, "kills"),
    unclean_stops=0,
    seconds=12.0,
    seed=1,
)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def give(monkeypatch: pytest.MonkeyPatch, outcome: Report | BaseException) -> None:
    def run(options: DemoOptions, *, folder: Path, view: Any, kind: Any) -> Report:
        assert (options, kind) == (OPTIONS, None)
        assert folder.is_dir()
        view.stage("running")
        if isinstance(outcome, Report):
            return outcome
        raise outcome

    monkeypatch.setattr(module, "run_demo", run)


def console() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=200), text


def folders(temporary: Path) -> list[Path]:
    return list(temporary.glob("tidegate-demo-*"))


def test_a_right_run_is_proved_reported_and_cleaned_up(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, capsys: pytest.CaptureFixture[str]
):
    give(monkeypatch, RIGHT)
    report = temporary / "new" / "report.json"

    assert prove(OPTIONS, console=console()[0], report=report, keep=False)
    assert json.loads(report.read_text())["missing"] == 0
    assert folders(temporary) == []
    assert "proved in 12 s, seed 1" in capsys.readouterr().out


def test_a_wrong_figure_fails_and_keeps_the_folder(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, capsys: pytest.CaptureFixture[str]
):
    wrong = dataclasses.replace(RIGHT, missing=2, examples=("missing: accounts [at] 5",))
    give(monkeypatch, wrong)
    err, text = console()
    report = temporary / "report.json"

    assert not prove(OPTIONS, console=err, report=report, keep=False)
    assert json.loads(report.read_text())["missing"] == 2
    assert "missing is 2, it must be 0" in text.getvalue()
    assert "accounts [at] 5" in text.getvalue()
    assert [str(folder) in text.getvalue() for folder in folders(temporary)] == [True]
    assert "NOT proved" in capsys.readouterr().out


def test_keep_keeps_and_says_where(monkeypatch: pytest.MonkeyPatch, temporary: Path):
    give(monkeypatch, RIGHT)
    err, text = console()

    assert prove(OPTIONS, console=err, report=None, keep=True)
    assert [str(folder) in text.getvalue() for folder in folders(temporary)] == [True]


def test_a_failed_run_keeps_its_logs(monkeypatch: pytest.MonkeyPatch, temporary: Path):
    give(monkeypatch, PartFailedError("w1 ended by itself"))

    with pytest.raises(PartFailedError):
        prove(OPTIONS, console=console()[0], report=None, keep=False)
    assert len(folders(temporary)) == 1


def test_an_interrupted_run_leaves_nothing(monkeypatch: pytest.MonkeyPatch, temporary: Path):
    give(monkeypatch, KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        prove(OPTIONS, console=console()[0], report=None, keep=False)
    assert folders(temporary) == []


def test_the_scenario_datastream_has_a_report_of_its_own(
    monkeypatch: pytest.MonkeyPatch, temporary: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(module, "run_files_demo", lambda *_, **__: FILES)
    options = DemoOptions(scenario=Scenario.DATASTREAM)
    err, text = console()

    assert prove(options, console=err, report=None, keep=False)
    assert "proved in" in capsys.readouterr().out
    monkeypatch.setattr(
        module, "run_files_demo", lambda *_, **__: dataclasses.replace(FILES, missing=3)
    )
    assert not prove(options, console=err, report=None, keep=False)
    assert "missing is 3, it must be 0" in text.getvalue()
