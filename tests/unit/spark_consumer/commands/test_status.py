"""`status`: what it reads of a checkpoint beside its state, and its figures as tables."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from tests.unit.spark_consumer.core.core_building import SUBSCRIPTION
from tests.unit.spark_consumer.disk_folder import DiskFolder
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.spark_consumer.commands import status as status_module
from tidegate.spark_consumer.commands.status import RELEASES_SHOWN, status
from tidegate.spark_consumer.commands.status_table import tables_of
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.files import QUERY_FILE, state_file
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

LONG = "t" * 300


@pytest.fixture
def place(tmp_path):
    """A checkpoint after four batches, with two slots and twelve releases."""
    gate, output = DiskFolder(tmp_path / "check" / "gate"), DiskFolder(tmp_path / "out")
    frontier = Frontier(SUBSCRIPTION)
    children = [ChildPartition(LONG, ("",), 0), ChildPartition("b", ("",), 0)]
    bodies = [
        (0, StreamStarted("s", "g", 0, None, "bank-fleet", 2, "id", (), tuple(children))),
        *((slot, PartitionAnnounced(child, "")) for slot, child in enumerate(children)),
        (0, SlotProgress(0, 1, 0, 1, (), (TokenSnapshot(LONG, 0, (), (), 5_000_000),))),
        (1, SlotProgress(1, 1, 0, 2, (), (TokenSnapshot("b", 0, (), (), 4_000_000),))),
    ]
    rows = [
        ProgressRow(slot, n, ProgressRecord("e", f"worker-{slot}", body))
        for n, (slot, body) in enumerate(bodies)
    ]
    frontier.fold(rows, reached={"bank-progress": {0: 9, 1: 9}})
    log = FrontierLog(frontier)
    for file, content in log.write("f/3", code="1").files:
        gate.write_json(file, content)
    state = State(
        prefix="bank", query_id="q", batch=3, watermark_us=4_000_000, next_release=12,
        frontier="f/3", copies=5, sinks=("changelog", "mirror", "mine"), begins={"mine": 7},
    )  # fmt: skip
    gate.write_json(state_file(3), state.snapshot())
    gate.write_json(
        QUERY_FILE, {"query_id": "q", "prefix": "bank", "output": str(tmp_path / "out")}
    )
    for number in range(12):
        bounds = (number * 1_000_000, (number + 1) * 1_000_000)
        write_manifest(output, Manifest(number, "q", number // 4, *bounds, number, {}, copies=1))
    return tmp_path


def test_slots_are_listed_by_how_far_they_are_behind(place):
    figures = status(str(place / "check"), now_s=lambda: 10.0)
    assert (figures["lag_s"], figures["copies"]) == (6.0, 5)
    assert figures["sinks"] == ["changelog", "mirror", "mine"]
    assert figures["begins"] == {"mine": 7}
    names = ("slot", "slowest", "lag_s", "worker")
    assert [tuple(one[name] for name in names) for one in figures["slots"]] == [
        (1, "b", 6.0, "worker-1"), (0, LONG, 5.0, "worker-0"),
    ]  # fmt: skip
    assert figures["slots"][0]["watermark"] == "1970-01-01T00:00:04+00:00"
    # A notebook shows the same figures as tables.
    assert json.loads(json.dumps(figures)) == figures
    shown = figures._repr_html_()
    assert shown.count("<table>") == 3
    assert "<caption>last releases</caption>" in shown
    assert "<td>watermark</td><td>1970-01-01T00:00:04+00:00</td>" in shown
    assert type(figures)({"releases": 0})._repr_html_().count("<table>") == 1
    # A frontier that is not there leaves the rest.
    for file in (place / "check" / "gate" / "frontiers").rglob("*.json"):
        file.unlink()
    assert status(str(place / "check"))["slots"] == []


def test_the_last_releases_are_those_of_the_outputs_manifests(place):
    found = status(str(place / "check"))["last_releases"]
    assert [one["release"] for one in found] == list(range(12 - RELEASES_SHOWN, 12))
    assert found[-1] == {
        "release": 11, "batch": 2, "through": "1970-01-01T00:00:12+00:00", "changes": 11,
        "copies": 1, "mismatches": 0,
    }  # fmt: skip
    (place / "out" / "_releases" / "000000000011.json").unlink()
    assert [one["release"] for one in status(str(place / "check"))["last_releases"]][-1] == 10
    query = place / "check" / "gate" / QUERY_FILE
    query.write_text(json.dumps({"query_id": "q", "prefix": "bank", "output": "s3a://lake/out"}))
    assert status(str(place / "check"))["last_releases"] is None


def test_files_that_a_run_deletes_meanwhile_are_read_again_from_its_next_state(place, monkeypatch):
    found, gate = status_module._frontier, place / "check" / "gate"

    def run_beside(files, state, template):
        if state.batch == 3:
            stored = json.loads((gate / state_file(3)).read_text()) | {"batch": 4}
            (gate / state_file(4)).write_text(json.dumps(stored))
            return None
        return found(files, state, template)

    monkeypatch.setattr(status_module, "_frontier", run_beside)
    figures = status(str(place / "check"))
    assert (figures["batch"], len(figures["slots"])) == (4, 2)


# ---------------------------------------------------------------- tables
TOKEN = "__8BAYE" + "t" * 300

OUTPUT = "/lake/" + "deep/" * 40


FIGURES = {
    "prefix": "bank",
    "watermark": "2026-11-22T10:00:00.123456+00:00",
    "lag_s": 1.25,
    "begins": {"mine": 7},
    "left_out": {},
    "topics": ["bank.accounts", "bank.[red]ledger"],
    "output": OUTPUT,
    "complete_from_us": None,
    "slots": [
        {
            "slot": slot, "worker": worker, "slowest": TOKEN,
            "watermark": "2026-11-22T10:00:00.123456+00:00", "lag_s": 0.5,
        }
        for slot, worker in ((11, "tidegate-producer-10"), (3, None))
    ],
    "gaps": [
        {
            "token": TOKEN, "from_us": 1_000_000, "until_us": 2_500_000,
            "accepted_by": "ops", "accepted_us": 3_000_000,
        }
    ],
    "last_releases": [
        {
            "release": 100_000, "batch": 90_000, "through": "2026-11-22T10:00:00+00:00",
            "changes": 500_000, "copies": 12, "mismatches": 0,
        }
    ],
}  # fmt: skip


def shown(width, **changes):
    console = Console(width=width, record=True, file=StringIO())
    for table in tables_of({**FIGURES, **changes}):
        console.print(table)
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_no_row_has_two(width):
    lines = shown(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for row in ("tidegate-producer-10", "2026-11-22T10:00:00.123456Z", "100000", "90000", "ops"):
        assert row in text
    # A head, a row each and five lines around them: nothing is wrapped.
    slots = lines[next(n for n, line in enumerate(lines) if "the slowest first" in line) :]
    end = next(n for n, line in enumerate(slots) if "└" in line)
    assert end == 6
    assert "…" in slots[4]


def test_what_is_unknown_is_a_dash_and_markup_is_text():
    lines = shown(160)
    for name, value in (("complete_from_us", "│ - "), ("mine: 7", ""), ("left_out", "none")):
        assert [line for line in lines if name in line and value in line]
    text = "\n".join(lines)
    assert "bank.[red]ledger" in text
    assert "until_us" not in text  # a gap is shown with times
    for time in ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", "1970-01-01T00:00:03Z"):
        assert time in text
    text = "\n".join(shown(100, gaps=[], last_releases=None))
    assert "slots, the slowest first" in text
    assert "accepted gaps" not in text
    assert "last releases" not in text
