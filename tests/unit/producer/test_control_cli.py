"""`pause`, `resume` and `drain` pass their flags on, and print the result."""

from __future__ import annotations

import json

import pytest

from tests.unit.producer.test_cli import flags, run  # noqa: F401 - a fixture
from tidegate.producer.commands import control as command
from tidegate.producer.commands.control import ControlReport, DrainReport
from tidegate.producer.commands.stream_state import StreamState
from tidegate.schemas.progress import ControlState

PAUSED, DRAINING = StreamState.PAUSED, StreamState.DRAINING


@pytest.fixture
def asked(monkeypatch):
    """What the command was called with; `report` is what it answers."""

    def control(_config, state, *, progress, **options):
        progress("slots that are still read", 2)
        asked.update(state=state, **options)
        return asked["report"]

    def drain(_config, workers, *, progress, **options):
        progress("waiting", 0)
        asked.update(workers=workers, **options)
        return asked["report"]

    asked = {}
    monkeypatch.setattr(command, "control", control)
    monkeypatch.setattr(command, "drain", drain)
    return asked


@pytest.mark.parametrize(
    ("report", "code", "text"),
    [
        (ControlReport("s", PAUSED, written=True), 0, "Paused\n"),
        (ControlReport("s", PAUSED, written=False), 0, "Paused, as before\n"),
        (
            ControlReport("s", DRAINING, written=True, draining=(1, 3), is_done=False),
            1,
            "Draining: still read are the slots 1, 3\n",
        ),
    ],
)
def test_a_pause(run, asked, report, code, text):  # noqa: F811 - the fixture
    asked["report"] = report
    assert run("pause", *flags(), "--by", "me", "--timeout-s", "5")[::2] == (code, text)
    assert (asked["state"], asked["by"], asked["wait_s"]) == (ControlState.PAUSED, "me", 5.0)
    found, _, output = run("pause", *flags(), "--no-wait", "--json")
    assert (found, json.loads(output)["state"]) == (code, report.state.value)
    assert asked["wait_s"] == 0.0


def test_its_end(run, asked):  # noqa: F811 - the fixture
    asked["report"] = ControlReport("s", StreamState.RUNNING, written=True)
    assert run("resume", *flags())[::2] == (0, "Running\n")
    assert asked["state"] is ControlState.RUNNING


@pytest.mark.parametrize(
    ("report", "code", "text"),
    [
        (DrainReport(("w1", "w2"), (), waited=True), 0, "w1 has left\nw2 has left\n"),
        (DrainReport(("w1",), ("w1",), waited=False), 0, "w1 is to leave\n"),
        (DrainReport(("w1", "w2"), ("w2",), waited=True), 1, "still in the group: w2."),
    ],
)
def test_a_drain(run, asked, report, code, text):  # noqa: F811 - the fixture
    asked["report"] = report
    found, _, output = run("drain", *flags(), *report.workers)
    assert (found, output.startswith(text)) == (code, True)
    assert (asked["workers"], asked["wait_s"]) == (list(report.workers), 120.0)
    assert json.loads(run("drain", *flags(), "w1", "--json")[2])["is_done"] is (code == 0)


def test_a_drain_names_a_worker(run, asked):  # noqa: F811 - the fixture
    assert run("drain", *flags())[0] == 2
