"""Programs that end: which endings are explained, who is started again, what is read of a log."""

from __future__ import annotations

import sys
import time

import pytest

from tests.chaos.fleet import Fleet, explanation_of, last_words, tracebacks_in
from tests.chaos.patience import Patience
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import Program

PATIENCE_S = 20.0
ORDERLY = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "print('up', flush=True)\ntime.sleep(600)"
)
REPLACED = "error: the group fenced this worker: Broker: Static consumer fenced"
NO_SOURCE = "error: Spanner does not answer (code='UNAVAILABLE')"
NOTHING = {"is_killed": False, "is_replaced": False, "is_stopping": False, "away": ()}


@pytest.mark.parametrize(
    ("code", "words", "done", "explained"),
    [
        (137, "", {"is_killed": True}, True),
        (137, "", {}, False),
        (1, "error: x", {"is_killed": True}, False),
        (0, "", {"is_stopping": True}, True),
        (0, "", {}, False),
        (1, "", {"is_stopping": True}, False),
        (143, "", {"is_stopping": True}, True),
        (143, '{"state": "used", "event": "accelerator"}', {"is_stopping": True}, True),
        (143, '{"state": "used", "event": "accelerator"}', {}, False),
        (143, "a line of a worker that works", {"is_stopping": True}, False),
        (143, "", {}, False),
        (1, REPLACED, {"is_replaced": True}, True),
        (1, REPLACED, {}, False),
        (1, "error: something else", {"is_replaced": True}, False),
        (2, "error: no Kafka broker answers at here", {"away": ["broker"]}, True),
        (2, "error: no Kafka broker answers at here", {}, False),
        (2, "error: init_transactions failed: timed out", {"away": ["broker"]}, True),
        (2, "error: init_transactions failed: timed out", {}, False),
        (2, "error: no worker answers", {"away": ["broker"]}, False),
        (2, NO_SOURCE, {"no_source": True}, True),
        (2, NO_SOURCE, {}, False),
        (2, "error: no worker answers", {"no_source": True}, False),
    ],
)
def test_only_what_was_done_explains_an_ending(code, words, done, explained):
    found = explanation_of(code=code, words=words, **{**NOTHING, **done})

    assert bool(found) == explained


def test_the_last_words_are_the_error(tmp_path):
    log = tmp_path / "log"
    log.write_text("a\n\x1b[1;31merror:\x1b[0m it is broken\nnoise of a library\n")

    assert last_words(log) == "error: it is broken"
    assert last_words(tmp_path / "none") == ""


def test_tracebacks_are_counted_until_the_stop(tmp_path):
    log = tmp_path / "log"
    log.write_text("Traceback (most recent call last):\n  x\n")
    size = log.stat().st_size
    with log.open("a") as file:
        file.write("Traceback (most recent call last):\n")

    assert tracebacks_in(log) == 2
    assert tracebacks_in(log, until=size) == 1
    assert tracebacks_in(tmp_path / "none") == 0


@pytest.fixture
def fleet_of(tmp_path):
    """Make a fleet of one program `p`, given its code; whatever runs is killed at the end."""
    made = []

    def make(code):
        def program():
            command = [sys.executable, "-c", code]
            return Program(ProcessSpec(name="p", command=command, log=tmp_path / "p.log"))

        said = []
        fleet = Fleet({"p": program}, seconds=lambda: 0.0, say=said.append)
        made.append(fleet)
        return fleet, said

    yield make
    for fleet in made:
        fleet.abandon()


def watch_until(fleet, condition):
    give_up_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at, "not reached within its patience"
        fleet.watch()
        time.sleep(0.02)


def test_who_ends_is_noted_and_started_again(fleet_of, monkeypatch):
    monkeypatch.setattr("tests.chaos.fleet._RESTART_PAUSE_S", 0.0)
    fleet, said = fleet_of("import sys; print('error: tired'); sys.exit(3)")
    fleet.start("p")
    watch_until(fleet, lambda: fleet.restarts >= 2)

    first = fleet.endings[0]
    assert (first.name, first.code, first.words) == ("p.1", 3, "error: tired")
    assert first.explanation == ""
    assert "p.1 ended with code 3 (UNEXPLAINED): error: tired" in said


def test_who_ends_again_and_again_ends_the_run(fleet_of, monkeypatch):
    monkeypatch.setattr("tests.chaos.fleet._RESTART_PAUSE_S", 0.0)
    monkeypatch.setattr("tests.chaos.fleet._ENDINGS_MAX", 2)
    fleet, _ = fleet_of("import sys; print('error: tired'); sys.exit(3)")
    fleet.start("p")

    with pytest.raises(PartFailedError, match="again and again: error: tired"):
        watch_until(fleet, lambda: False)


def test_a_zombie_and_its_successor_are_two_members(fleet_of):
    fleet, _ = fleet_of("import time; time.sleep(600)")
    zombie = fleet.start("p")
    zombie.program.process.pause()
    zombie.is_replaced = True
    successor = fleet.start("p")
    assert fleet.current("p") is successor
    assert zombie.log != successor.log

    fleet.kill(zombie)
    fleet.watch()

    assert zombie.ending.explanation == "killed"
    assert fleet.current("p") is successor
    assert successor.program.process.is_running


def test_who_is_retired_ends_in_order_and_is_not_started_again(fleet_of, monkeypatch):
    monkeypatch.setattr("tests.chaos.fleet._RESTART_PAUSE_S", 0.0)
    fleet, _ = fleet_of(ORDERLY)
    member = fleet.start("p")
    watch_until(fleet, lambda: member.log.exists() and member.log.read_text())
    assert (fleet.active, fleet.pids()) == (["p"], {"p": member.program.process.pid})
    fleet.retire("p")
    fleet.watch()

    assert member.ending.explanation == "stopped"
    assert (fleet.active, fleet.pids(), fleet.restarts) == ([], {}, 0)


def test_a_stop_is_orderly_and_restarts_no_process(fleet_of):
    fleet, _ = fleet_of(ORDERLY)
    member = fleet.start("p")
    watch_until(fleet, lambda: member.log.exists() and member.log.read_text())
    fleet.stop(["p"])
    fleet.watch()

    assert member.ending.explanation == "stopped"
    assert fleet.restarts == 0


@pytest.mark.parametrize(("load", "lasts_s"), [(0.0, 10), (2.0, 10), (4.0, 20), (20.0, 100)])
def test_the_time_that_programs_wait_for_a_core_does_not_count(load, lasts_s):
    now = [100.0]
    patience = Patience(10.0, clock=lambda: now[0], load=lambda: load, cores=2)

    while not patience.is_over:
        now[0] += 1.0
    assert now[0] - 100.0 == pytest.approx(lasts_s, abs=1.5)


def test_the_load_of_the_moment_counts():
    now, load = [0.0], [20.0]
    patience = Patience(10.0, clock=lambda: now[0], load=lambda: load[0], cores=2)
    now[0] = 50.0
    assert not patience.is_over  # five seconds are left
    load[0], now[0] = 1.0, 56.0
    assert patience.is_over
