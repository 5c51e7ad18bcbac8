"""The figures: every violation counted, the first ones listed, and one verdict over all."""

from __future__ import annotations

import json

from rich.console import Console

from tests.chaos.breaker import Applied
from tests.chaos.collect import Found
from tests.chaos.figures import figures_of, heartbeat_versions
from tests.chaos.fleet import Ending
from tests.chaos.report import Report
from tests.simulation.history import History, Violation
from tidegate.schemas.progress import SlotChanges, SlotProgress, TokenSnapshot


def report_of(*, checkers=None, endings=(), tracebacks=0):
    report = Report(seed=7, minutes=3)
    figures_of(
        report,
        Found(History(start_us=0, slots=16), [], []),
        checkers=checkers or {},
        transactions=[],
        endings=endings,
        tracebacks=tracebacks,
    )
    return report


def nothing(_history):
    yield from ()


def twelve(_history):
    yield from (Violation(f"fault {number}", b"\x01") for number in range(12))


def test_a_checker_that_finds_nothing_is_a_figure_of_0():
    report = report_of(checkers={"nothing_lost": nothing})

    assert report.figures["nothing_lost"] == 0
    assert (report.wrong, report.verdict) == (0, "all figures 0")


def test_all_violations_count_and_the_first_are_listed():
    report = report_of(checkers={"nothing_lost": nothing, "key_order": twelve})

    assert report.figures["key_order"] == report.wrong == 12
    assert report.verdict == "key_order 12"
    assert report.examples["key_order"][0] == "fault 0 [01]"
    assert len(report.examples["key_order"]) == 5


def test_an_ending_without_explanation_is_wrong_and_the_others_are_listed():
    endings = [
        Ending("w1.1", 1.0, 137, "", "killed", "log"),
        Ending("w1.2", 2.0, 0, "", "stopped", "log"),
        Ending("w2.1", 3.0, 1, "error: replaced", "replaced by another process", "log"),
        Ending("w3.1", 4.0, 1, "error: what", "", "log"),
    ]
    report = report_of(endings=endings)

    assert report.figures["unexplained_exits"] == 1
    assert [end.name for end in report.endings] == ["w2.1", "w3.1"]
    assert "error: what" in report.examples["unexplained_exits"][0]


def test_a_traceback_is_wrong():
    assert report_of(tracebacks=2).verdict == "tracebacks 2"


def test_the_last_line_is_the_verdict_and_json_holds_everything(tmp_path):
    report = report_of(checkers={"key_order": twelve})
    report.faults = [Applied(1.0, "kill-worker", "w1.1", "commit", 2.0)]
    report.counts = {"releases": 3}
    with (tmp_path / "out").open("w") as file:
        report.show(Console(file=file, width=120))
    lines = (tmp_path / "out").read_text().splitlines()
    data = json.loads(json.dumps(report.as_json()))

    assert lines[-1] == "key_order 12"
    assert any("kill-worker" in line for line in lines)
    assert (data["wrong"], data["verdict"]) == (12, "key_order 12")
    assert data["faults"][0]["kind"] == "kill-worker"


def test_heartbeats_are_counted_by_the_version_that_they_tell():
    old, new = (TokenSnapshot("a", 1, (), ("",), 5, number=number) for number in (-1, 0))
    bodies = [
        SlotProgress(0, 1, 2, -1, (), (old,)),
        SlotProgress(0, 2, 2, -1, (), ()),
        SlotProgress(0, 3, 2, -1, (), (new,)),
        SlotChanges(0, 4, 1, 2, -1, (), None, 0),
    ]

    assert heartbeat_versions(bodies) == {
        "heartbeats_of_version_1": 1,
        "heartbeats_of_version_2": 2,
    }
