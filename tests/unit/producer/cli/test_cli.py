"""The command line: flags are passed on, results printed, faults are one line with an exit code."""

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial

import pytest
import structlog
import typer

from tests.datastream_files import backfill, history, write_stream
from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.lineage.lineage_graph import LineageGraph, Relative
from tidegate.producer.backfill.requests import RunState
from tidegate.producer.cli import accept_gap as gap_command
from tidegate.producer.cli import backfill as backfill_command
from tidegate.producer.cli import control as control_command
from tidegate.producer.cli import dead_letters as dead_letters_command
from tidegate.producer.cli import discover as discover_command
from tidegate.producer.cli import environment, main
from tidegate.producer.cli import lineage as lineage_command
from tidegate.producer.cli import redrive as redrive_command
from tidegate.producer.cli import schemas as schemas_command
from tidegate.producer.cli import status as status_command
from tidegate.producer.cli.accept_gap import ExpiredPartition, GapReport
from tidegate.producer.cli.backfill import BackfillReport
from tidegate.producer.cli.control import ControlReport, DrainReport
from tidegate.producer.cli.dead_letters import DeadLetterReport, ListedGroup
from tidegate.producer.cli.operations import this_user
from tidegate.producer.cli.redrive import LeftKey, RedriveReport
from tidegate.producer.cli.schemas import Subject
from tidegate.producer.cli.status import StreamStatus
from tidegate.producer.cli.stream_states import StreamState
from tidegate.producer.description import Discovery, SourceField, SourceObject
from tidegate.program.kafka_clients import list_topics
from tidegate.schemas.progress import ControlState

GOOD = {
    "bootstrap-servers": "127.0.0.1:1", "registry-url": "http://127.0.0.1:1/", "project": "p",
    "instance": "bank", "database": "bank", "change-stream": "s", "prefix": "bank",
}  # fmt: skip
DATABASE = ("--project", "p", "--instance", "bank", "--database", "bank")
PAUSED = StreamState.PAUSED


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the program's entry point; return its exit code and what it wrote to stderr, stdout."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(environment, "list_topics", partial(list_topics, timeout_s=0.5))

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tidegate-producer", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return ended.value.code, captured.err, captured.out

    yield run_main
    structlog.reset_defaults()  # it holds the captured stderr, which is closed after the test


@pytest.fixture
def answer(monkeypatch):
    """Let a function of a command's module answer; return what it is called with."""

    def answer_with(module, name, report):
        asked = {}

        def called(_config, *arguments, progress=lambda _what, _done: None, **options):
            progress("waiting", 3)
            asked.clear()
            asked.update(options, arguments=arguments)
            return report

        monkeypatch.setattr(module, name, called)
        return asked

    return answer_with


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
    ("arguments", "text"),
    [
        (["check", *flags(prefix="-x")], "prefix"),
        (["check", *flags(project=None, database=None)], "database"),
        (["check", *flags(heartbeat_ms=5)], "heartbeat_ms"),
        (["check", *flags(start="yesterday")], "start"),
        (["dead-letters", *flags(prefix="-x")], "prefix"),
        (["drain", *flags()], "Missing argument"),
        (["accept-gap", *flags()], "--token or --all"),
        (["accept-gap", *flags(), "--token", "t", "--all"], "--token or --all"),
        (["accept-gap", *flags(), "--all"], "no terminal to ask at"),
        (
            ["accept-gap", *flags(), "--all", "--yes", "--progress-version", "2"],
            "progress_version 2 cannot record",
        ),
        *(
            (["backfill", "Users", *flags(), flag, "--chunk-rows", "70"], "--chunk-rows belongs to")
            for flag in ("--stop", "--resume", "--cancel", "--show")
        ),
        *(
            (["backfill", "Users", *flags(), flag, "--share", "80"], "--share belongs to a new run")
            for flag in ("--stop", "--cancel", "--show")
        ),
        (["backfill", "Users", *flags(), "--stop", "--cancel"], "exclude each other"),
        (
            ["backfill", "Users", *flags(), "--where", "Id > 7", "--resume"],
            "--where belongs to a new run",
        ),
        *(
            (["backfill", "Users", *flags(), "--data-boost", *other], "--data-boost belongs to")
            for other in (["--where", "Id > 7"], ["--stop"], ["--resume"], ["--show"])
        ),
        # An empty variable of a shell is not a wish for the whole table.
        (["backfill", "Users", *flags(), "--where", " "], "--where: the condition is empty"),
        (["backfill", "Users", *flags(), "--where", ""], "--where: the condition is empty"),
        (["discover", "--datastream", "/nowhere/at/all"], "/nowhere/at/all does not exist"),
        (["discover", "--datastream", "hdfs://x"], "hdfs:// is not supported. Give a local folder"),
        (
            ["discover", "--datastream", ".", *DATABASE],
            "--project, --instance, --database name two sources",
        ),
        (["discover"], "project: is not set (flag --project"),
    ],
    ids=lambda one: " ".join(one[-3:]) if isinstance(one, list) else "",
)
def test_bad_input_is_named_before_anything_is_connected(run, monkeypatch, arguments, text):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    code, errors, output = run(*arguments)
    assert (code, output) == (2, "")
    assert text in " ".join(errors.split())


def test_an_unknown_setting_in_a_file_is_named_without_secrets(run, tmp_path):
    file = tmp_path / "producer.toml"
    file.write_text('hearbeat_ms = 100\nregistry_user_info = "me:secret"\n')
    code, output, _ = run("check", "--config", str(file), *flags())
    assert (code, "secret" in output) == (2, False)
    assert "hearbeat_ms: unknown setting" in output


@pytest.mark.parametrize("command", ["check", "redrive"])
def test_a_broker_that_does_not_answer_is_named(run, command):
    code, errors, output = run(command, *flags())
    assert (code, output) == (75, "")
    assert "no Kafka broker answers at 127.0.0.1:1" in errors


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


def test_help_lists_every_setting_but_no_secret(run):
    _, _, text = run("run", "--help")
    shown = [name in text for name in ("--heartbeat-ms", "--commit-interval-ms", "user-info")]
    assert shown == [True, True, False]


def test_help_of_what_needs_a_stopped_fleet_asks_to_stop_it_first(run):
    """ "The fleet is stopped" reads as if the command did it."""
    _, _, listed = run("--help")
    for command in ("redrive", "accept-gap", "reset"):
        _, _, text = run(command, "--help")
        for shown in (text, listed):
            assert "fleet is stopped" not in " ".join(shown.split())
        assert "stop the fleet first" in " ".join(text.split())


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
    # It looks at the variable once, when it is imported.
    program = "import sys, tidegate.producer.cli; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


LEFT = LeftKey(
    "bank.t", '{"Id": 7}', 9, "2026-01-01T00:00:00Z", "SchemaError", "a [value] does not fit"
)
REDRIVEN = partial(RedriveReport, "bank-dead-letter", False)
NOT_TAKEN_UP = BackfillReport("Users", 3, "waiting", 0, is_taken_up=False)
STOPPED = BackfillReport("Users", 3, "failed", 2, where="1 / Id > 7", cause="division by zero")
SUBJECTS = [Subject("bank.t-key", 2, 7, None), Subject("bank.t-value", 3, 8, "FULL")]
GROUPS = tuple(
    ListedGroup(
        reason, "Users", None, 2, "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "why", "t",
        "here", 0, 7, "do this",
    )
    for reason in ("MessageTooLarge", "KeyParked")
)  # fmt: skip
LINEAGE = LineageGraph(
    "projects/p/s", (Relative("t", 3, (), PartitionCondition.OPEN, 0, None, 1_000_000),), left_out=0
)
FEED = SourceField("Id", "INT64", nullable=False, key_position=1, watched_by=("Feed",))
COMMANDS = {
    "backfill": (backfill_command, "start_backfill"),
    "backfill-change": (backfill_command, "change_backfill"),
    "pause": (control_command, "control"),
    "drain": (control_command, "drain"),
    "redrive": (redrive_command, "redrive"),
    "dead-letters": (dead_letters_command, "dead_letters"),
    "lineage": (lineage_command, "lineage"),
    "list": (schemas_command, "subjects"),
    "check": (schemas_command, "missing"),
    "register": (schemas_command, "register"),
    "show": (schemas_command, "shown"),
    "asyncapi": (schemas_command, "stream_topics"),
}
USER = this_user()
NEW_RUN = {
    "chunk_rows": 70, "share": 20, "wait_s": 5.0, "where": "", "data_boost": False, "by": USER,
}  # fmt: skip
PRINTED = [
    # which function, its report, arguments, exit code, what it is called with, what is printed
    ("backfill", BackfillReport("Users", 3, "running", 1_200),
     "backfill Users --chunk-rows 70 --timeout-s 5", 0, {"arguments": ("Users",), **NEW_RUN},
     "Users: run 3 running, 1,200 chunks begun\n"),
    ("backfill", NOT_TAKEN_UP, "backfill Users", 1, {},
     "Users: run 3 was not taken up yet; is a worker running?\n"),
    ("backfill", NOT_TAKEN_UP, "backfill Users --data-boost", 1, {"data_boost": True},
     "Users: run 3 was not taken up yet; is a worker running?\n"),
    ("backfill", STOPPED, "backfill Users --where Id>7", 0, {"where": "Id>7"},
     "Users: run 3 failed, 2 chunks begun, of rows where 1 / Id > 7: division by zero\n"),
    *(
        ("backfill-change", NOT_TAKEN_UP, f"backfill Users --by ada {flag}", 0,
         {"arguments": ("Users", state), "share": None, "by": "ada"},
         "Users: run 3 was not taken up yet")
        for flag, state in (
            ("--stop", RunState.STOPPED), ("--resume", RunState.RUNNING),
            ("--cancel", RunState.CANCELLED), ("--show", None),
        )
    ),
    ("backfill-change", STOPPED, "backfill Users --resume --share 80", 0,
     {"arguments": ("Users", RunState.RUNNING), "share": 80, "by": USER}, "Users: run 3 failed"),
    ("pause", ControlReport("s", PAUSED, written=True), "pause --by me --timeout-s 5", 0,
     {"arguments": (ControlState.PAUSED,), "by": "me", "wait_s": 5.0}, "Paused\n"),
    ("pause", ControlReport("s", PAUSED, written=False), "pause --no-wait", 0,
     {"wait_s": 0.0, "by": USER}, "Paused, as before\n"),
    ("pause",
     ControlReport("s", StreamState.DRAINING, written=True, draining=(1, 3), is_done=False),
     "pause", 1, {}, "Draining: still read are the slots 1, 3\n"),
    ("pause",
     ControlReport("s", StreamState.RUNNING, written=True, is_done=False),
     "pause", 1, {}, "Running: another command has changed the state meanwhile\n"),
    ("pause", ControlReport("s", StreamState.RUNNING, written=True), "resume", 0,
     {"arguments": (ControlState.RUNNING,), "by": USER}, "Running\n"),
    ("drain", DrainReport(("w1", "w2"), (), waited=True), "drain w1 w2", 0,
     {"arguments": (["w1", "w2"],), "wait_s": 120.0, "by": USER}, "w1 has left\nw2 has left\n"),
    ("drain", DrainReport(("w1",), ("w1",), waited=False), "drain w1", 0, {}, "w1 is to leave\n"),
    ("drain", DrainReport(("w1", "w2"), ("w2",), waited=True), "drain w1 w2", 1, {},
     "still in the group: w2."),
    ("redrive", REDRIVEN(), "redrive --table t --dry-run", 0, {"table": "t", "dry_run": True},
     "No change is parked."),
    ("redrive", REDRIVEN({"bank.t": 5}, {"bank.t": 2}), "redrive", 0, {"dry_run": False},
     "bank.t: 5 changes of 2 keys put back"),
    ("redrive", RedriveReport("bank-dead-letter", True, {"bank.t": 5}, {"bank.t": 2}, [LEFT]),
     "redrive", 1, {}, ["bank.t: 5 changes of 2 keys would be put back", '{"Id": 7}', "[value]"]),
    ("redrive", REDRIVEN(left=[LEFT]), "redrive", 1, {},
     ["No change can be put back.", "These keys stay parked", "SchemaError"]),
    ("dead-letters", DeadLetterReport("bank-dead-letter", 4, GROUPS, 0), "dead-letters --limit 1",
     0, {}, ["4 records of bank-dead-letter", "MessageTooLarge", "1 more", ("KeyParked",)]),
    ("lineage", LINEAGE, "lineage", 0, {"generations": 1},
     "stream projects/p/s\n└── t open since 1970-01-01 00:00:00Z, slot 3, behind"),
    ("lineage", LINEAGE, "lineage --generations 4 --format mermaid", 0, {"generations": 4},
     "flowchart TD"),
    ("lineage", LINEAGE, "lineage --all --format dot", 0, {"generations": None},
     "digraph lineage {"),
    ("list", SUBJECTS, "schemas list", 0, {}, ["bank.t-key", "the registry's", "FULL"]),
    ("check", [], "schemas check", 0, {}, ""),
    ("check", ["bank.t-key"], "schemas check", 1, {}, "bank.t-key"),
    ("register", ["bank.t-key"], "schemas register", 0, {}, "bank.t-key\n"),
    ("show", {"name": "t"}, "schemas show t --key", 0, {"arguments": ("t",), "is_key": True},
     ['"name": "t"']),
    ("asyncapi", [], "schemas asyncapi", 0, {}, ['"asyncapi": "3.0.0"']),
]  # fmt: skip
"""A text begins the output; of a list all are in it, but for those in a tuple."""
AS_JSON = COMMANDS.keys() - {"check", "register", "show", "asyncapi"}


@pytest.mark.parametrize(
    ("name", "report", "arguments", "code", "asked", "printed"),
    PRINTED,
    ids=[f"{case[2]} -> {case[3]}" for case in PRINTED],
)
def test_a_command_passes_its_flags_on_and_prints_the_result(
    run, answer, name, report, arguments, code, asked, printed
):
    asked_with = answer(*COMMANDS[name], report)
    command = [*arguments.split(), *flags()]
    ended, _, output = run(*command)
    assert ended == code
    assert asked.items() <= asked_with.items()
    if isinstance(printed, str):
        assert output.startswith(printed)
    else:
        assert [text for text in printed if isinstance(text, str) and text not in output] == []
        assert [text for text in printed if isinstance(text, tuple) and text[0] in output] == []
    if name in AS_JSON and "--format" not in command:
        ended, _, output = run(*command, "--json")
        assert ended == code
        asked_with = json.loads(output)
        if name == "list":
            assert asked_with == [asdict(part) for part in report]
        else:
            whole = lineage_command.as_json(report) if name == "lineage" else report.as_json()
            assert asked_with == json.loads(whole)


GAPS = GapReport(
    "projects/p/s", False, "ops [1]",
    [ExpiredPartition("t", 3, "2024-01-02T03:04:05Z", "2024-01-03T03:04:05Z", 86_400, None, "it")],
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [(["--token", "t", "--yes"], None, 0), (["--all", "--dry-run"], None, 0),
     (["--all"], True, 0), (["--all"], False, 1)],
)  # fmt: skip
def test_a_gap_is_shown_and_accepted_or_not(run, monkeypatch, arguments, said, code):
    asked = {}

    def accept(_config, *, confirm, progress, **options):
        asked.update(options)
        progress("asking Spanner", 1)
        is_accepted = not options["dry_run"] and confirm(GAPS)
        return replace(GAPS, dry_run=options["dry_run"], accepted=is_accepted)

    monkeypatch.setattr(gap_command, "accept_gap", accept)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: said is not None)
    monkeypatch.setattr(typer, "confirm", lambda _text, *, err: err and said)
    accepted = code == 0 and "--dry-run" not in arguments
    for as_json in (True, False):
        exit_code, errors, output = run("accept-gap", *flags(), *arguments, *["--json"] * as_json)
        assert exit_code == code
        assert (asked["token"], asked["margin_s"]) == ("" if "--all" in arguments else "t", 600)
        assert asked["accepted_by"] == USER
        assert ("2024-01-03T03:04:05Z" in errors) is (said is not None)
        if as_json:
            assert json.loads(output)["accepted"] is accepted
        else:
            assert "2024-01-03T03:04:05Z" in output
            assert ("Accepted by ops [1]" in output) is accepted


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


def test_the_status_is_printed_once_or_again_and_again(run, monkeypatch):
    statuses = []

    def follow(_config, **options):
        statuses.append(options)
        yield from (STATUS, replace(STATUS, changes_a_second=20.5))

    monkeypatch.setattr(status_command, "follow", follow)
    code, _, output = run("status", *flags(), "--slowest", "1")
    assert (code, "fast" in output) == (0, False)
    assert "2 stream partitions are open; the watermark is behind by 1.5 s" in output
    assert all(text in output for text in ("Failed", "w [1]", "slow", "it [broke]"))

    code, _, output = run("status", *flags(), "--json", "--metrics", "a:1", "--metrics", "b:2")
    assert code == 0
    assert [partition["token"] for partition in json.loads(output)["partitions"]] == [
        "slow",
        "fast",
    ]

    code, _, output = run("status", *flags(), "--watch", "2")
    assert (code, "20 changes a second" in output) == (0, True)
    _, _, output = run("status", *flags(), "--watch", "2", "--json")
    rates = [json.loads(line)["changes_a_second"] for line in output.splitlines()]
    assert rates == [None, 20.5]
    assert statuses == [
        {"metrics": (), "interval_s": 0.0},
        {"metrics": ["a:1", "b:2"], "interval_s": 0.0},
        *[{"metrics": (), "interval_s": 2.0}] * 2,
    ]


@pytest.fixture
def stream(tmp_path):
    rng = random.Random(1)
    events = [*backfill("mysql", rng, 3), *history("mysql", rng, 20)]
    write_stream(tmp_path / "stream", "mysql", events)
    return tmp_path / "stream"


def test_objects_of_files_are_listed(run, stream):
    discover = ("discover", "--datastream", str(stream))
    code, _, output = run(*discover)
    assert (code, "shop.orders" in output, "DECIMAL(10,2)" in output) == (0, True, True)
    discovered = json.loads(run(*discover, "--json")[2])
    (only,) = discovered["objects"]
    assert (discovered["kind"], only["key"], sum(only["events"].values())) == ("mysql", ["id"], 23)
    for files, read in (("1", 1), ("0", 4)):
        discovered = json.loads(run(*discover, "--files", files, "--json")[2])
        assert discovered["objects"][0]["files_read"] == read
        assert ("the newest 1 of each object" in str(discovered["notes"])) is (files == "1")


def test_a_broken_file_is_one_line_with_its_place(run, stream, tmp_path):
    (path,) = stream.glob("**/0001_*.avro")
    path.write_bytes(path.read_bytes()[:-9])
    (tmp_path / "empty").mkdir()
    for folder, text in (
        (stream, f"error: the file ends in the middle of a block (file='{path}', record="),
        (tmp_path / "empty", "holds no file with events"),
    ):
        code, errors, output = run("discover", "--datastream", str(folder))
        assert (code, output) == (2, "")
        assert text in " ".join(errors.split())


def test_a_database_is_looked_at_with_its_settings(run, monkeypatch):
    seen = []

    def discover(settings):
        seen.append((settings.database_path, settings.change_stream))
        return Discovery("spanner", "the database", ("Feed",), (SourceObject("T", (FEED,)),))

    monkeypatch.setattr(discover_command, "discover_spanner", discover)
    code, _, output = run("discover", *DATABASE, "--change-stream", "Feed")
    assert (code, "INT64" in output) == (0, True)
    assert seen == [("projects/p/instances/bank/databases/bank", "Feed")]
    _, _, output = run("discover", *DATABASE, "--json")
    assert json.loads(output)["objects"][0]["fields"][0]["watched_by"] == ["Feed"]
