"""The report: every fault counted, the first ones listed, and one verdict over all."""

from __future__ import annotations

import json
from types import SimpleNamespace

from rich.console import Console

from tests.chaos.breaker import Applied
from tests.chaos.fleet import Ending
from tests.chaos.judge.topics import ProgressEntry, Published, Topics
from tests.chaos.report import Report
from tidegate.local_stack.judge.changelog import compare_changelog
from tidegate.local_stack.judge.cuts import CutFigures
from tidegate.local_stack.judge.log import LoggedChange, LoggedTransaction, Place
from tidegate.local_stack.judge.verdict import Verdict


def report_of(**found):
    report = Report(seed=7, minutes=3)
    report.add_findings(found)
    return report


FAULTS = [f"fault {number}" for number in range(12)]


def test_a_figure_without_findings_is_0():
    report = report_of(lost=[])
    assert report.figures == {"lost": 0}
    assert (report.wrong, report.verdict) == (0, "all figures 0")


def test_all_findings_count_and_the_first_are_listed():
    report = report_of(lost=[], key_order=FAULTS)
    assert report.figures["key_order"] == report.wrong == 12
    assert report.verdict == "key_order 12"
    assert report.examples == {"key_order": FAULTS[:5]}


def test_an_ending_without_explanation_is_wrong_and_the_others_are_listed():
    report = report_of()
    endings = [
        Ending("w1.1", 1.0, 137, "", "killed", "log"),
        Ending("w1.2", 2.0, 0, "", "stopped", "log"),
        Ending("w2.1", 3.0, 1, "error: replaced", "replaced by another process", "log"),
        Ending("w3.1", 4.0, 1, "error: what", "", "log"),
    ]
    report.add_endings(endings, tracebacks=2)
    assert report.verdict == "unexplained_exits 1, tracebacks 2"
    assert [end.name for end in report.endings] == ["w2.1", "w3.1"]
    assert "error: what" in report.examples["unexplained_exits"][0]


def test_each_fault_of_the_output_is_a_figure():
    place = Place(5, "t", (0, 0), 0)
    change = LoggedChange("t", place, "DELETE", {"K": "a"}, {}, {})
    log = [LoggedTransaction(5, "t", "", frozenset(), (change,))]
    cuts = CutFigures(1, 1, 0, 2, 0, mirror_equals_source=False, examples=("mirror unlike",))
    changelog = compare_changelog(log, changelogs=[], manifests=[])
    report = report_of()
    report.add_output(Verdict(changelog, cuts, 3, 1, 0, ()))

    wrong = {name: count for name, count in report.figures.items() if count}
    assert wrong == {
        "output_missing": 1, "output_late": 3, "output_cuts_unlike_source": 2,
        "output_mirror_unlike_source": 1,
    }  # fmt: skip
    assert "missing: t at 5 us" in report.examples["output"][0]
    assert report.examples["output"][1] == "mirror unlike"


def test_what_happened_is_counted():
    old, new = {"token": "a"}, {"token": "a", "number": 0}
    heartbeats = [
        ProgressEntry(0, 0, 0, "SLOT_PROGRESS", "e", {"tokens": tokens})
        for tokens in ([old], [], [new])
    ]
    applied = [Applied(1.0, "kill-worker", "w1.1", "commit", 2.0)]
    report = report_of()
    report.add_run(
        SimpleNamespace(endings=[], tracebacks=0, restarts=4),
        SimpleNamespace(unhealed=["w1 did nothing"], applied=applied),
        SimpleNamespace(born={"a": {}}, done={"split": 2}),
        published=Published(Topics("p"), {("p-progress", 0): heartbeats}),
        transactions=[],
    )
    assert (report.verdict, report.faults) == ("unhealed 1", applied)
    assert report.counts == {
        "transactions": 0, "changes_committed": 0, "progress_records": 3,
        "heartbeats_of_version_1": 1, "heartbeats_of_version_2": 1, "stream_partitions": 1,
        "splits": 2, "faults": 1, "restarts": 4, "explained_exits": 0,
    }  # fmt: skip


def test_the_last_line_is_the_verdict_and_json_holds_everything(tmp_path):
    report = report_of(key_order=FAULTS)
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
