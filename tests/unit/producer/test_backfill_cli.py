"""`backfill` passes its flags on, and prints the result."""

from __future__ import annotations

import json

import pytest

from tests.unit.producer.test_cli import flags, run  # noqa: F401 - a fixture
from tidegate.producer.backfill.requests import RunState
from tidegate.producer.commands import backfill as command
from tidegate.producer.commands.backfill import BackfillReport

TAKEN_UP = BackfillReport("Users", 3, "running", 1_200)
NOT_TAKEN_UP = BackfillReport("Users", 3, "waiting", 0, is_taken_up=False)


@pytest.fixture
def asked(monkeypatch):
    """What the command was called with; `report` is what it answers."""
    asked = {}

    def start(_config, table, *, progress, **options):
        progress("waiting", 0)
        asked.update(table=table, **options)
        return asked["report"]

    def change(_config, table, state, *, share, by):
        asked.update(table=table, state=state, share=share, by=by)
        return asked["report"]

    monkeypatch.setattr(command, "start_backfill", start)
    monkeypatch.setattr(command, "change_backfill", change)
    return asked


@pytest.mark.parametrize(
    ("report", "code", "text"),
    [
        (TAKEN_UP, 0, "Users: run 3 running, 1,200 chunks begun\n"),
        (NOT_TAKEN_UP, 1, "Users: run 3 was not taken up yet; is a worker running?\n"),
        (
            BackfillReport("Users", 3, "failed", 2, where="1 / Id > 7", cause="division by zero"),
            0,
            "Users: run 3 failed, 2 chunks begun, of rows where 1 / Id > 7: division by zero\n",
        ),
    ],
)
def test_a_start(run, asked, report, code, text):  # noqa: F811 - the fixture
    asked["report"] = report
    found = run("backfill", "Users", *flags(), "--chunk-rows", "70", "--timeout-s", "5")

    assert found[::2] == (code, text)
    assert (asked["table"], asked["chunk_rows"], asked["share"]) == ("Users", 70, 20)
    assert asked["wait_s"] == 5.0
    found, _, output = run("backfill", "Users", *flags(), "--json")
    assert (found, json.loads(output)["run"]) == (code, 3)


@pytest.mark.parametrize(
    ("flag", "state"),
    [
        ("--stop", RunState.STOPPED),
        ("--resume", RunState.RUNNING),
        ("--cancel", RunState.CANCELLED),
        ("--show", None),
    ],
)
def test_a_change(run, asked, flag, state):  # noqa: F811 - the fixture
    asked["report"] = NOT_TAKEN_UP
    assert run("backfill", "Users", *flags(), flag, "--by", "ada")[0] == 0
    assert (asked["state"], asked["share"], asked["by"]) == (state, None, "ada")


def test_a_run_is_resumed_with_another_share(run, asked):  # noqa: F811 - the fixture
    asked["report"] = TAKEN_UP
    assert run("backfill", "Users", *flags(), "--resume", "--share", "80")[0] == 0
    assert (asked["state"], asked["share"]) == (RunState.RUNNING, 80)


@pytest.mark.parametrize("flag", ["--stop", "--resume", "--cancel", "--show"])
def test_a_size_of_chunks_is_that_of_a_new_run(run, asked, flag):  # noqa: F811 - the fixture
    code, text, _ = run("backfill", "Users", *flags(), flag, "--chunk-rows", "70")

    assert (code, asked) == (2, {})
    assert "--chunk-rows belongs to a new run" in text


@pytest.mark.parametrize("flag", ["--stop", "--cancel", "--show"])
def test_a_share_that_would_not_hold_is_refused(run, asked, flag):  # noqa: F811 - the fixture
    code, text, _ = run("backfill", "Users", *flags(), flag, "--share", "80")

    assert (code, asked) == (2, {})
    assert "--share belongs to a new run or to --resume" in text


def test_two_changes_at_once_are_refused(run, asked):  # noqa: F811 - the fixture
    code, text, _ = run("backfill", "Users", *flags(), "--stop", "--cancel")

    assert code == 2
    assert "exclude each other" in text
    assert asked == {}


@pytest.mark.parametrize(("given", "where"), [((), ""), (("--where", "Id > 7"), "Id > 7")])
def test_a_condition_is_passed_on(run, asked, given, where):  # noqa: F811 - the fixture
    asked["report"] = TAKEN_UP
    assert run("backfill", "Users", *flags(), *given)[0] == 0
    assert asked["where"] == where


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--where", "Id > 7", "--resume"), "--where belongs to a new run"),
        (("--where", " "), "--where: the condition is empty"),
        (("--where", ""), "--where: the condition is empty"),
    ],
)
def test_a_condition_that_would_not_hold_is_refused(run, asked, given, message):  # noqa: F811 - the fixture
    """An empty variable of a shell is not a wish for the whole table."""
    code, text, _ = run("backfill", "Users", *flags(), *given)

    assert (code, message in text, asked) == (2, True, {})
