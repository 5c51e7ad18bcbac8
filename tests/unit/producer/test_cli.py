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
from tidegate.lineage.lineage_graph import LineageGraph, Relative
from tidegate.producer.cli import main
from tidegate.producer.commands import accept_gap as gap_command
from tidegate.producer.commands import environment
from tidegate.producer.commands import lineage as lineage_command
from tidegate.producer.commands import redrive as redrive_command
from tidegate.producer.commands import status as status_command
from tidegate.producer.commands.accept_gap import ExpiredPartition, GapReport
from tidegate.producer.commands.redrive import LeftKey, RedriveReport
from tidegate.producer.commands.status import StreamStatus
from tidegate.producer.commands.stream_state import StreamState
from tidegate.program.kafka_clients import list_topics

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


STATUS = StreamStatus(
    FleetStatus(
        stream="projects/p/s", epoch="e", watermark_us=1_000_000, has_ended=False,
        slots=(SlotStatus(0, "w [1]", 2, 2, 1_000_000), SlotStatus(1, "", 0, 0, None)),
        partitions=(
            PartitionStatus("slow", 0, "w [1]", PartitionCondition.STOPPED, 5, "it [broke]"),
            PartitionStatus("fast", 0, "w [1]", PartitionCondition.OPEN, 2_000_000, None),
        ),
    ),
    state=StreamState.FAILED, members=("w [1]",), now_us=2_500_000,
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


@pytest.fixture
def statuses(monkeypatch):
    """What `follow` yields; `asked` has what it was called with."""
    asked = []

    def follow(_config, **options):
        asked.append(options)
        yield from (STATUS, replace(STATUS, changes_a_second=20.5))

    monkeypatch.setattr(status_command, "follow", follow)
    monkeypatch.setenv("COLUMNS", "200")
    return asked


def test_the_status_is_printed_once(run, statuses):
    code, _, output = run("status", *flags(), "--slowest", "1")

    assert code == 0
    assert "2 stream partitions are open; the watermark is behind by 1.5 s" in output
    assert all(text in output for text in ("Failed", "w [1]", "slow", "it [broke]"))
    assert "fast" not in output
    assert statuses == [{"metrics": (), "interval_s": 0.0}]

    code, _, output = run("status", *flags(), "--json", "--metrics", "a:1", "--metrics", "b:2")
    assert code == 0
    assert [one["token"] for one in json.loads(output)["partitions"]] == ["slow", "fast"]
    assert statuses[1] == {"metrics": ["a:1", "b:2"], "interval_s": 0.0}


def test_the_status_is_printed_again_and_again(run, statuses):
    code, _, output = run("status", *flags(), "--watch", "2")
    assert code == 0
    assert "20 changes a second" in output
    assert statuses == [{"metrics": (), "interval_s": 2.0}]

    _, _, output = run("status", *flags(), "--watch", "2", "--json")
    found = [json.loads(line)["changes_a_second"] for line in output.splitlines()]
    assert found == [None, 20.5]


@pytest.mark.parametrize(
    ("arguments", "generations", "text"),
    [
        ([], 1, "stream projects/p/s\n└── t open since 1970-01-01 00:00:00Z, slot 3, behind"),
        (["--generations", "4", "--format", "mermaid"], 4, "flowchart TD"),
        (["--all", "--format", "dot"], None, "digraph lineage {"),
        (["--json"], 1, '{"stream": "projects/p/s", "partitions": [{"token": "t"'),
    ],
)
def test_the_lineage_is_printed_in_the_form_that_was_asked_for(
    run, monkeypatch, arguments, generations, text
):
    one = Relative("t", 3, (), PartitionCondition.OPEN, 0, None, 1_000_000)
    asked = []
    monkeypatch.setattr(
        lineage_command, "lineage",
        lambda _config, *, generations: asked.append(generations)
        or LineageGraph("projects/p/s", (one,), left_out=0),
    )  # fmt: skip
    monkeypatch.setenv("COLUMNS", "100")
    code, _, output = run("lineage", *flags(), *arguments)
    assert (code, asked) == (0, [generations])
    assert output.startswith(text)


def test_commands_that_read_the_fleet_ask_for_no_setting_of_spanner(run):
    """Each fault is reported, so one wrong setting shows that nothing else is missing."""
    kafka = flags(prefix="-x", project=None, instance=None, database=None, change_stream=None)
    for command in (
        *("status", "lineage", "dead-letters", "pause", "resume", "drain worker-1", "reset --yes"),
        *("schemas list", "schemas show t", "schemas asyncapi"),
    ):
        code, err, _ = run(*command.split(), *kafka)
        assert (code, "prefix: " in err, "is not set" in err) == (2, True, False), command
    for command in ("run", "check", "redrive", "accept-gap --all --yes", "schemas check"):
        code, err, _ = run(*command.split(), *kafka)
        assert (code, "project: is not set" in err) == (2, True), command
