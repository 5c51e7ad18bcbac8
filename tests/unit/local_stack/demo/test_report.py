"""What a demo reports: which figures are wrong, what it prints, its exit and its folder."""

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from tidegate.local_stack.commands import demo as command_module
from tidegate.local_stack.commands.demo import prove
from tidegate.local_stack.demo.bank import Scenario
from tidegate.local_stack.demo.datastream import FilesReport
from tidegate.local_stack.demo.report import (
    Asked,
    BackfillFigures,
    Kill,
    Latency,
    Report,
    latency_figures,
    latency_of,
)
from tidegate.local_stack.demo.run import DemoOptions
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.delta import Delivery

# report


ASKED = Asked(transfers=10, undisturbed=6, splits=6, merges=4, kill_workers=1, kill_consumer=1)
RIGHT = Report(
    changes_committed=34, changes_in_changelog=34, missing=0, duplicates=0, invented=0,
    changes_unlike_source=0, out_of_order=0, ordinals_broken=0, late=0, transactions=11,
    transactions_across_partitions=9, transactions_torn=0, splits=6, merges=4,
    stream_partitions_finished=14, worker_kills=(Kill("w1", "fence", 3.2),),
    consumer_kills=(Kill("consumer", "sink-mirror", 9.9),), releases=5, mirror_cuts=4,
    mirror_behind_s_most=9.5, rows_outside_release=0, releases_unlike_source=0,
    releases_with_wrong_total=0, mirror_equals_source=True,
    latency_undisturbed_ms=Latency(2_100.0, 3_900.0, 18, 2, "quiet"),
    latency_with_kills_ms=Latency(30_100.0, 33_900.0, 9, 1, "kills"), unclean_stops=0,
    seconds=12.0, seed=1,
)  # fmt: skip


def text_of(*tables: Table, width: int = 120) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(*tables)
    return console.export_text()


def test_a_right_report_has_no_wrong_figure_and_only_ticks():
    assert RIGHT.wrong_figures(ASKED) == []
    text = text_of(RIGHT.tables(ASKED)[0], width=300)
    assert "✗" not in text
    assert text.count("✓") == 7
    assert "w1 in fence at 3 s" in text
    content = json.loads(RIGHT.to_json())
    assert content["worker_kills"] == [{"worker": "w1", "step": "fence", "at": 3.2}]
    assert content["latency_undisturbed_ms"]["p99"] == 3_900.0
    assert set(content) == {field.name for field in fields(Report)}


def test_a_run_without_kills_needs_one_release_less_and_has_one_latency():
    asked = replace(ASKED, kill_workers=0, kill_consumer=0)
    report = replace(RIGHT, worker_kills=(), consumer_kills=(), releases=3)
    assert report.wrong_figures(asked) == []
    none = Latency(None, None, 0, 0, "kills")
    text = text_of(replace(RIGHT, latency_with_kills_ms=none).tables(ASKED)[1])
    assert "2.1 s" in text
    assert "killed" not in text


WRONG_FIGURES = {
    "changes_committed": 29, "changes_in_changelog": 33, "missing": 1, "duplicates": 1,
    "invented": 1, "changes_unlike_source": 1, "out_of_order": 1, "ordinals_broken": 1, "late": 1,
    "transactions": 9, "transactions_across_partitions": 0, "transactions_torn": 1, "splits": 5,
    "merges": 3, "stream_partitions_finished": 13, "worker_kills": (), "consumer_kills": (),
    "releases": 3, "latency_undisturbed_ms": Latency(1.0, 1.0, 17, 2, "quiet"),
    "rows_outside_release": 1, "releases_unlike_source": 1, "releases_with_wrong_total": 1,
    "mirror_equals_source": False, "unclean_stops": 1,
}  # fmt: skip


@pytest.mark.parametrize(("figure", "value"), WRONG_FIGURES.items())
def test_each_figure_can_be_wrong_and_marks_its_row(figure: str, value: Any):
    report = replace(RIGHT, **{figure: value})
    assert figure in {wrong.name.split(".")[0] for wrong in report.wrong_figures(ASKED)}
    assert "✗" in text_of(*report.tables(ASKED), width=300)


def test_percentiles_are_by_nearest_rank():
    ways = [Delivery(0, n * 1_000, release=n // 50) for n in range(1, 101)]
    latency = latency_of(ways, measured="x")
    assert (latency.p50, latency.p99, latency.rows) == (50.0, 99.0, 100)
    assert latency.releases == 3
    assert latency_of(ways[6:7], measured="x").p99 == 7.0
    assert latency_of([], measured="x").p50 is None


def test_the_warm_up_is_not_measured_and_kills_are_apart():
    ways = [
        Delivery(1_000_000, 9_000_000, release=0),  # the warm-up's last
        Delivery(1_000_001, 3_000_001, release=1),
        Delivery(4_000_000, 7_000_000, release=2),  # the last before the kills
        Delivery(4_000_001, 34_000_001, release=3),
    ]
    undisturbed, with_kills = latency_figures(ways, warm_us=1_000_000, undisturbed_us=4_000_000)
    assert (undisturbed.rows, undisturbed.releases, undisturbed.p99) == (2, 2, 3_000.0)
    assert (with_kills.rows, with_kills.releases, with_kills.p50) == (1, 1, 30_000.0)


def test_the_undisturbed_latency_stands_first():
    lines = [line for line in text_of(RIGHT.tables(ASKED)[1]).splitlines() if " s " in line]
    assert ["2.1 s" in lines[0], "18 changes, 2 releases" in lines[0]] == [True, True]
    assert ["30.1 s" in lines[1], "killed" in lines[1]] == [True, True]


BEGAN_WITH = replace(ASKED, first_rows=1_040)
FIRST = BackfillFigures(1_040, 3, 12.5, 7, 1)


def test_the_rows_of_a_backfill_have_a_line_of_their_own():
    report = replace(RIGHT, backfill=FIRST)
    text = text_of(report.tables(BEGAN_WITH)[0], width=100)
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    assert report.wrong_figures(BEGAN_WITH) == []
    assert "1,040 rows in 3 key ranges" in text
    assert text.count("✓") == 8
    assert json.loads(report.to_json())["backfill"]["transactions_meanwhile"] == 7


@pytest.mark.parametrize(("kills", "text"), [(1, "1 worker killed"), (2, "2 workers killed")])
def test_rows_are_not_counted_as_changes_and_one_worker_is_one(kills: int, text: str):
    first = replace(FIRST, worker_kills=kills)
    found = replace(RIGHT, changes_committed=1_074, changes_in_changelog=1_074, backfill=first)
    printed_text = text_of(found.tables(BEGAN_WITH)[0], width=400)
    assert "34 committed and 1,040 rows before, 1,074 in the changelog" in printed_text
    assert text in printed_text


@pytest.mark.parametrize(
    "figure", ["rows", "read_partitions", "transactions_meanwhile", "worker_kills"]
)
def test_each_figure_of_a_backfill_can_be_wrong(figure: str):
    report = replace(RIGHT, backfill=replace(FIRST, **{figure: 0}))
    (wrong,) = report.wrong_figures(BEGAN_WITH)
    assert wrong.name == f"backfill.{figure}"
    assert "✗" in text_of(report.tables(BEGAN_WITH)[0])


def test_a_backfill_that_was_asked_for_and_left_out_is_wrong():
    assert "backfill.rows" in {figure.name for figure in RIGHT.wrong_figures(BEGAN_WITH)}


# files_report


FILES_ASKED = Asked(transfers=2_000, first_rows=2_200, kill_workers=1, kill_consumer=1)
FILES_RIGHT = FilesReport(
    source="PostgreSQL", files=184, events=8_199, changes=6_000, backfill_rows=2_199, copies=812,
    late=705, events_in_changelog=8_199, missing=0, duplicates=0, invented=0, unlike_source=0,
    keys=4_200, histories_unlike_source=0, in_time_out_of_order=0, behind_newer=121,
    out_of_order=0, ordinals_broken=0, rows_outside_release=0, releases=31, mirror_cuts=24,
    releases_unlike_changelog=0, mirror_rows=4_120, mirror_deleted_rows=83,
    mirror_equals_source=True, total_is_right=True, worker_kills=(Kill("w1", "publish", 61.2),),
    consumer_kills=(Kill("consumer", "sink-changelog", 88.9),),
    latency_in_time_ms=Latency(13_100.0, 19_000.0, 5_000, 30, "x"), lateness_seconds=10,
    unclean_stops=0, seconds=170.0, seed=1,
)  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        *({name: 1} for name in (
            "missing", "duplicates", "invented", "unlike_source", "histories_unlike_source",
            "in_time_out_of_order", "out_of_order", "ordinals_broken", "rows_outside_release",
            "releases_unlike_changelog", "unclean_stops",
        )),
        {"copies": 0}, {"late": 0}, {"mirror_deleted_rows": 0}, {"releases": 1},
        {"backfill_rows": 199, "events": 6_199, "events_in_changelog": 6_199},
        {"changes": 5_999, "events": 8_198, "events_in_changelog": 8_198},
        {"events": 8_200, "events_in_changelog": 8_200}, {"events_in_changelog": 8_198},
        {"mirror_equals_source": False}, {"total_is_right": False}, {"worker_kills": ()},
        {"consumer_kills": ()},
    ],
    ids=str,
)  # fmt: skip
def test_each_figure_of_files_can_be_wrong(changed: dict[str, Any]):
    (wrong,) = replace(FILES_RIGHT, **changed).wrong_figures(FILES_ASKED)
    assert wrong.name in changed
    assert wrong.found in (changed[wrong.name], 0)


def test_a_short_run_may_have_no_disturbances():
    quiet = replace(FILES_RIGHT, copies=0, late=0, mirror_deleted_rows=0)
    assert quiet.wrong_figures(replace(FILES_ASKED, disturbances=0)) == []


def printed(report: FilesReport) -> str:
    return text_of(*report.tables(FILES_ASKED), width=100)


def test_tables_fit_a_hundred_columns_and_mark_what_is_wrong():
    assert FILES_RIGHT.wrong_figures(FILES_ASKED) == []
    assert json.loads(FILES_RIGHT.to_json())["worker_kills"][0]["step"] == "publish"
    right = printed(FILES_RIGHT)
    assert max(map(len, right.splitlines())) <= 100
    assert right.count("✓") == 7
    assert [mark for mark in "✗…" if mark in right] == []
    assert "13.1 s" in right
    assert printed(replace(FILES_RIGHT, missing=1, total_is_right=False)).count("✗") == 2
    none = Latency(None, None, 0, 0, "x")
    quiet = replace(FILES_RIGHT, worker_kills=(), consumer_kills=(), latency_in_time_ms=none)
    assert "none" in printed(quiet)


# command


OPTIONS = DemoOptions(transfers=10, splits=6, merges=4)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> Any:
    """Prove a run with this outcome; return whether it is right, errors, and folders left."""

    def prove_run(
        outcome: Any, *, options: DemoOptions = OPTIONS, report: Path | None = None,
        keep: bool = False,
    ) -> tuple[bool, str, list[str]]:  # fmt: skip
        def run(given: DemoOptions, *, folder: Path, view: Any) -> Any:
            assert given == options
            assert folder.is_dir()
            view.stage("running")
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        monkeypatch.setattr(command_module, "run_demo", run)
        text = io.StringIO()
        found = prove(options, console=Console(file=text, width=200), report=report, keep=keep)
        return found, text.getvalue(), folders(temporary)

    return prove_run


def folders(temporary: Path) -> list[str]:
    return [str(folder) for folder in temporary.glob("tidegate-demo-*")]


def test_a_right_run_is_proved_reported_and_cleaned_up(proved: Any, tmp_path: Path, capsys: Any):
    report = tmp_path / "new" / "report.json"
    found, said, left = proved(RIGHT, report=report)
    assert (found, left) == (True, [])
    assert "next: ./dev up" in said
    assert "docs/start/your-own.md" in said
    assert json.loads(report.read_text())["missing"] == 0
    assert "proved in 12 s, seed 1" in capsys.readouterr().out
    found, errors, (folder,) = proved(RIGHT, keep=True)
    assert found
    assert folder in errors


def test_a_wrong_figure_fails_and_keeps_the_folder(proved: Any, tmp_path: Path, capsys: Any):
    wrong = replace(RIGHT, missing=2, examples=("missing: accounts [at] 5",))
    report = tmp_path / "report.json"
    found, errors, (folder,) = proved(wrong, report=report)
    assert not found
    assert json.loads(report.read_text())["missing"] == 2
    for text in ("missing is 2, it must be 0", "accounts [at] 5", folder):
        assert text in errors
    assert "next:" not in errors
    assert "NOT proved" in capsys.readouterr().out


def test_outside_a_clone_the_next_command_is_the_installed_program(
    proved: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert "next: tidegate-local up" in proved(RIGHT)[1]


@pytest.mark.parametrize(
    ("outcome", "kept"), [(PartFailedError("w1 ended by itself"), 1), (KeyboardInterrupt(), 0)]
)
def test_a_failed_run_keeps_its_logs_and_an_interrupted_one_leaves_nothing(
    proved: Any, temporary: Path, outcome: BaseException, kept: int
):
    with pytest.raises(type(outcome)):
        proved(outcome)
    assert len(folders(temporary)) == kept


def test_the_scenario_datastream_has_a_report_of_its_own(proved: Any, capsys: Any):
    options = DemoOptions(scenario=Scenario.DATASTREAM)
    assert proved(FILES_RIGHT, options=options)[0]
    assert "proved in" in capsys.readouterr().out
    found, errors, _ = proved(replace(FILES_RIGHT, missing=3), options=options)
    assert not found
    assert "missing is 3, it must be 0" in errors
