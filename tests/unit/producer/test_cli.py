"""The command line: faults are printed in one line, with an exit code and no traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial

import pytest
import structlog
import typer

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.cli import main
from tidegate.producer.commands import accept_gap as gap_command
from tidegate.producer.commands import environment, worker_counts
from tidegate.producer.commands import redrive as redrive_command
from tidegate.producer.commands import status as status_command
from tidegate.producer.commands.accept_gap import ExpiredPartition, GapReport
from tidegate.producer.commands.redrive import LeftKey, RedriveReport
from tidegate.producer.commands.worker_counts import WorkerCounts
from tidegate.program.kafka_clients import list_topics
from tidegate.schemas.progress import PartitionGap

GOOD = {
    "bootstrap-servers": "127.0.0.1:1",
    "registry-url": "http://127.0.0.1:1/",
    "project": "p",
    "instance": "bank",
    "database": "bank",
    "change-stream": "s",
    "prefix": "bank",
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the program's entry point; return its exit code and what it wrote to stderr."""

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tidegate-producer", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code, captured.err, captured.out

    yield run_main
    structlog.reset_defaults()  # it holds the captured stderr, which is closed after the test


def flags(**changes):
    """Return good flags with some changed; None leaves one out."""
    settings = {**GOOD, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return [
        part
        for name, value in settings.items()
        if value is not None
        for part in (f"--{name}", str(value))
    ]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prefix": "-x"}, "prefix"),
        ({"project": None, "database": None}, "database"),
        ({"heartbeat_ms": 5}, "heartbeat_ms"),
        ({"start": "yesterday"}, "start"),
        ({"slots": 0}, "slots"),
    ],
)
def test_a_faulty_setting_is_named(run, changes, named):
    code, output, _ = run("check", *flags(**changes))

    assert code == 2
    assert named in output
    assert "Traceback" not in output


def test_an_unknown_setting_in_a_file_is_named(run, tmp_path):
    file = tmp_path / "producer.toml"
    file.write_text('hearbeat_ms = 100\nregistry_user_info = "me:secret"\n')
    code, output, _ = run("check", "--config", str(file), *flags())

    assert code == 2
    assert "hearbeat_ms: unknown setting" in output
    assert "secret" not in output


@pytest.fixture
def impatient(monkeypatch):
    """Let nothing wait long for a broker that is not there."""
    monkeypatch.setattr(environment, "list_topics", partial(list_topics, timeout_s=0.5))


@pytest.mark.usefixtures("impatient")
def test_a_broker_that_does_not_answer_is_named(run):
    code, output, _ = run("check", *flags())

    assert code == 75
    assert "no Kafka broker answers at 127.0.0.1:1" in output
    assert "Traceback" not in output


LEFT = LeftKey(
    "bank.t", '{"Id": 7}', 9, "2026-01-01T00:00:00Z", "SchemaError", "a [value] does not fit"
)
REPORTS = {
    "nothing": RedriveReport("bank-dead-letter", dry_run=False),
    "all": RedriveReport("bank-dead-letter", False, {"bank.t": 5}, {"bank.t": 2}),
    "some": RedriveReport("bank-dead-letter", True, {"bank.t": 5}, {"bank.t": 2}, [LEFT]),
    "none": RedriveReport("bank-dead-letter", False, left=[LEFT]),
}


@pytest.mark.parametrize(
    ("name", "code", "printed"),
    [
        ("nothing", 0, ["No change is parked."]),
        ("all", 0, ["bank.t: 5 changes of 2 keys put back"]),
        ("some", 1, ["bank.t: 5 changes of 2 keys would be put back", '{"Id": 7}', "[value]"]),
        ("none", 1, ["No change can be put back.", "These keys stay parked", "SchemaError"]),
    ],
)
def test_a_redrive_reports_what_it_did_and_what_stays(run, monkeypatch, name, code, printed):
    asked = {}

    def redrive(config, *, progress, **options):
        asked.update(options, prefix=config.prefix)
        progress("reading", 5)
        return REPORTS[name]

    monkeypatch.setattr(redrive_command, "redrive", redrive)
    monkeypatch.setenv("COLUMNS", "200")
    found, _, output = run("redrive", *flags(), "--table", "t", "--dry-run")
    assert asked == {"table": "t", "dry_run": True, "prefix": "bank"}
    assert found == code
    assert all(text in output for text in printed)

    found, _, output = run("redrive", *flags(), "--json")
    assert asked["dry_run"] is False
    assert found == code
    assert json.loads(output) == json.loads(REPORTS[name].as_json())
    assert json.loads(output)["left"] == ([asdict(LEFT)] if REPORTS[name].left else [])


@pytest.mark.usefixtures("impatient")
def test_a_redrive_without_a_broker_changes_nothing(run):
    code, output, printed = run("redrive", *flags())

    assert code == 75
    assert "no Kafka broker answers at 127.0.0.1:1" in output
    assert printed == ""


def test_help_lists_every_setting_but_no_secret(run):
    _, _, text = run("run", "--help")

    assert "--heartbeat-ms" in text
    assert "--commit-interval-ms" in text
    assert "user-info" not in text


@pytest.mark.parametrize(("before", "after"), [(None, "ERROR"), ("INFO", "INFO")])
def test_grpc_logs_errors_only_unless_the_environment_sets_its_verbosity(
    run, monkeypatch, before, after
):
    # Set first, so that what the program sets is taken back after the test.
    monkeypatch.setenv("GRPC_VERBOSITY", before or "")
    if before is None:
        monkeypatch.delenv("GRPC_VERBOSITY")
    run("--help")

    assert os.environ["GRPC_VERBOSITY"] == after


def test_grpc_is_not_loaded_before_its_verbosity_is_set():
    """It looks at the variable once, when it is imported."""
    program = "import sys, tidegate.producer.cli; sys.exit('grpc' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


STATUS = FleetStatus(
    stream="projects/p/s", epoch="e", watermark_us=1_000_000, has_ended=False,
    slots=(SlotStatus(0, "w [1]", 2, 2, 1_000_000), SlotStatus(1, "", 0, 0, None)),
    partitions=(
        PartitionStatus("slow", 0, "w [1]", PartitionCondition.STOPPED, 1_000_000, "it [broke]"),
        PartitionStatus("fast", 0, "w [1]", PartitionCondition.OPEN, 2_000_000, None),
    ),
)  # fmt: skip


GAPS = GapReport(
    "projects/p/s", False, "ops [1]",
    [ExpiredPartition("t", 3, "2024-01-02T03:04:05Z", "2024-01-03T03:04:05Z", 86_400, None, "it")],
)  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        (["--token", "t", "--yes"], None, 0),
        (["--all", "--dry-run"], None, 0),
        (["--all"], True, 0),
        (["--all"], False, 1),
    ],
    ids=["yes", "dry run", "asked", "declined"],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_a_gap_is_shown_and_accepted_or_not(run, monkeypatch, case, as_json):
    arguments, answer, code = case
    asked = {}

    def accept(_config, *, confirm, progress, **options):
        asked.update(options)
        progress("asking Spanner", 1)
        is_accepted = not options["dry_run"] and confirm(GAPS)
        return replace(GAPS, dry_run=options["dry_run"], accepted=is_accepted)

    monkeypatch.setattr(gap_command, "accept_gap", accept)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: answer is not None)
    monkeypatch.setattr(typer, "confirm", lambda _text, *, err: err and answer)
    monkeypatch.setenv("COLUMNS", "200")
    found, errors, output = run("accept-gap", *flags(), *arguments, *["--json"] * as_json)

    assert found == code
    assert (asked["token"], asked["margin_s"]) == ("" if "--all" in arguments else "t", 600)
    accepted = code == 0 and "--dry-run" not in arguments
    if as_json:
        assert json.loads(output)["accepted"] is accepted
    else:
        assert "2024-01-03T03:04:05Z" in output
        assert ("Accepted by ops [1]" in output) is accepted
    assert ("2024-01-03T03:04:05Z" in errors) is (answer is not None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--token or --all"),
        (["--token", "t", "--all"], "--token or --all"),
        (["--all"], "no terminal to ask at"),
        (["--all", "--yes", "--progress-version", "2"], "progress_version 2 cannot record"),
    ],
    ids=["neither", "both", "no terminal", "older records"],
)
def test_what_cannot_be_accepted_is_refused_before_anything_is_connected(
    run, monkeypatch, arguments, text
):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    code, errors, output = run("accept-gap", *flags(), *arguments)
    assert (code, output) == (2, "")
    assert text in errors


def test_the_status_lists_accepted_gaps(run, monkeypatch):
    gap = PartitionGap("gone [1]", 1_000_000, 2_000_000, "ops [1]", 3)
    monkeypatch.setattr(status_command, "status", lambda _config: replace(STATUS, gaps=(gap,)))
    monkeypatch.setenv("COLUMNS", "200")
    _, _, output = run("status", *flags())
    texts = ("Accepted gaps", "gone [1]", "1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", "ops [1]")
    assert all(text in output for text in texts)
    _, _, output = run("status", *flags(), "--json")
    assert json.loads(output)["gaps"] == [asdict(gap)]


def test_the_status_lists_the_slowest(run, monkeypatch):
    monkeypatch.setattr(status_command, "status", lambda _config: STATUS)
    monkeypatch.setenv("COLUMNS", "200")
    code, _, output = run("status", *flags(), "--slowest", "1")

    assert code == 0
    assert "2 stream partitions are open; the watermark is behind by" in output
    assert all(text in output for text in ("w [1]", "unknown", "slow", "stopped", "it [broke]"))
    assert "fast" not in output

    code, _, output = run("status", *flags(), "--json")
    assert code == 0
    assert [one["token"] for one in json.loads(output)["partitions"]] == ["slow", "fast"]


def test_the_status_asks_the_workers_that_it_is_given(run, monkeypatch):
    monkeypatch.setattr(status_command, "status", lambda _config: STATUS)
    monkeypatch.setattr(
        worker_counts, "ask_worker",
        lambda address: WorkerCounts(address, 31, 41, 59, 53, 26) if address == "a:1"
        else WorkerCounts(address, error="it [timed] out"),
    )  # fmt: skip
    monkeypatch.setenv("COLUMNS", "200")
    asked = ("--metrics", "a:1", "--metrics", "b:2")
    code, _, output = run("status", *flags(), *asked)

    assert code == 0
    lines = output.splitlines()
    shown = next(line for line in lines if "a:1" in line).split()[3::2]
    assert shown == ["31", "41", "59", "53", "26"]
    assert "b:2: it [timed] out" in output

    _, _, output = run("status", *flags(), *asked, "--json")
    found = [(one["address"], one["queued"]) for one in json.loads(output)["workers"]]
    assert found == [("a:1", 41), ("b:2", None)]


def test_a_stream_that_has_ended_says_so(run, monkeypatch):
    ended = replace(STATUS, has_ended=True, slots=(), partitions=())
    monkeypatch.setattr(status_command, "status", lambda _config: ended)
    _, _, output = run("status", *flags())

    assert "0 stream partitions are open; the stream has ended" in output
    assert "Slowest" not in output
