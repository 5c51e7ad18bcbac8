"""Commands before Spark starts: what they compare, and what `audit` and `adopt` print."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

import pytest
import structlog
from rich.console import Console

from tests.unit.spark_consumer.commands.command_building import SETTINGS, flags
from tests.unit.spark_consumer.core.core_building import SUBSCRIPTION
from tests.unit.spark_consumer.disk_folder import DiskFolder
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.program.java import QUICK_START
from tidegate.program.status_server import Health
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionGap,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.spark_consumer import cli
from tidegate.spark_consumer.commands import adopt as adopt_command
from tidegate.spark_consumer.commands import audit as audit_command
from tidegate.spark_consumer.commands import audit as audit_module
from tidegate.spark_consumer.commands import run as command
from tidegate.spark_consumer.commands import status as status_module
from tidegate.spark_consumer.commands import tail as tail_command
from tidegate.spark_consumer.commands.status import RELEASES_SHOWN, status, tables_of
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import OutputProof, State
from tidegate.spark_consumer.core.file_names import QUERY_FILE, state_file
from tidegate.spark_consumer.core.part_log import FrontierLog
from tidegate.spark_consumer.core.proof import AuditReport, Fault, Findings, Mismatch, Verdict
from tidegate.spark_consumer.core.retention import FirstRecord
from tidegate.spark_consumer.kafka import topics as kafka_topics
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

NOTHING = Findings({}, (), 0)


# ---------------------------------------------------------------- run
class Registry:
    schema = None

    def __init__(self, *_, **__):
        """Answer to anything."""

    def require_reachable(self):
        """Answer."""


def require_recorded(config, _schema_of):
    """The stream was begun with another template of names."""
    config.topic_names.require_recorded(["producer.topic_template={prefix}-{table}"])


@pytest.fixture
def prepare(monkeypatch, tmp_path):
    """Prepare a run; `compared` has the streams whose names were compared."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "require_spark", lambda **_: None)
    monkeypatch.setattr(command, "HttpSchemaRegistry", Registry)
    compared = []

    def compare(config, schema_of):
        compared.append(config.prefix)
        require_recorded(config, schema_of)

    def prepare(*, has_topics, **settings):
        monkeypatch.setattr(command, "wait_for_topics", lambda *_, **__: has_topics)
        monkeypatch.setattr(command, "require_topic_names", compare)
        config = ConsumerConfig.load(None, **{**SETTINGS, **settings})
        return command.prepare(config, stop=threading.Event(), health=Health())

    prepare.compared = compared
    return prepare


def test_a_stream_with_other_names_is_refused_before_spark_starts(prepare, monkeypatch):
    # A run that was stopped while it waited compares nothing.
    assert not prepare(has_topics=False)
    assert prepare.compared == []
    with pytest.raises(ConfigError, match="topic_template"):
        prepare(has_topics=True)
    assert prepare(has_topics=True, topic_template="{prefix}-{table}")
    # Folders are checked before registry, broker and Spark.
    monkeypatch.setattr(command, "HttpSchemaRegistry", None)
    with pytest.raises(ConfigError, match="output: the folder cannot be written to"):
        prepare(has_topics=True, output="/dev/null/out")


def test_a_run_whose_spark_submit_has_ended_ends_too(monkeypatch):
    parents = iter([7, 7, 1])
    monkeypatch.setattr(command.os, "getppid", lambda: next(parents))
    stop = threading.Event()
    command._stop_with_parent(stop, 7, wait_s=0)
    assert stop.is_set()
    assert list(parents) == []


def test_what_the_stream_lacks_is_refused_by_its_fault(monkeypatch):
    def require(**settings):
        return audit_module.require_stream(ConsumerConfig.load(None, **{**SETTINGS, **settings}))

    topics, template = [], {"topic_template": "{prefix}-{table}"}
    monkeypatch.setattr(audit_module, "HttpSchemaRegistry", Registry)
    monkeypatch.setattr(audit_module, "find_missing_topics", lambda *_, **__: topics)
    monkeypatch.setattr(audit_module, "require_topic_names", require_recorded)
    assert require(**template).schema is None  # the registry is returned
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with"):
        require()
    topics.append("bank-progress")
    with pytest.raises(ConfigError, match=r"no progress topic .*bank-progress.*prefix"):
        require(**template)

    # Options that Spark's client cannot take are refused before anything is asked.
    def refuse(_options, **_):
        raise ConfigError("kafka_options: not for Java")

    monkeypatch.setattr(audit_module, "java_options", refuse)
    monkeypatch.setattr(audit_module, "HttpSchemaRegistry", None)
    with pytest.raises(ConfigError, match="not for Java"):
        require()


# ---------------------------------------------------------------- audit
TOKEN = "a[red]token"

MISMATCH = Mismatch(
    "stream partition",
    {"topic": "bank.a", "origin": 7, "token": TOKEN},
    Fault.MISSING,
    {"mods": 2},
    {"mods": 1},
)


def report(stream_partitions):
    return AuditReport(
        release=3, through_us=40, complete_from_us=None, changes=7, late_changes=0,
        stream_partitions=stream_partitions, transactions=NOTHING, releases=NOTHING, tables=NOTHING,
    )  # fmt: skip


PROVED = report(Findings({Verdict.PROVED: 5, Verdict.OPEN: 2}, (), 0))

WRONG = report(Findings({Verdict.MISMATCHED: 1}, (MISMATCH,), 4))


@pytest.fixture
def invoke(monkeypatch, capsys):
    def run(outcome, *arguments):
        def audit(config, *, step):
            step("Spark")
            assert config.prefix == "bank"
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(audit_command, "audit", audit)
        monkeypatch.setattr(sys, "argv", ["tidegate-consumer", "audit", *flags(), *arguments])
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr()

    yield run
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("outcome", "code"), [(PROVED, 0), (WRONG, 1), (ConfigError("no output"), 2)]
)
def test_the_exit_code_says_whether_everything_is_proved(invoke, outcome, code):
    assert invoke(outcome)[0] == code
    found, printed = invoke(outcome, "--json")
    assert found == code
    if code < 2:
        assert json.loads(printed.out) == outcome.content()  # the whole report alone
        # Each step is a line where there is no terminal.
        (line,) = map(json.loads, printed.err.splitlines())
        assert (line["event"], line["step"]) == ("audit step", "Spark")


def test_people_read_the_counts_and_a_table_of_mismatches(invoke):
    _, printed = invoke(PROVED)
    assert "proved: 5" in printed.out
    assert "mismatches" not in printed.out
    for text in ("1970-01-01T00:00:00.000040Z", "the beginning of the stream", "none"):
        assert text in printed.out
    assert "_us" not in printed.out
    assert "None" not in printed.out
    gaps = (PartitionGap("t[red]", 1_000_000, 2_000_000, "ops", 3_000_000),)
    _, printed = invoke(replace(PROVED, gaps=gaps))
    for text in ("token: t[red]", "from: 1970-01-01T00:00:01Z", "until: 1970-01-01T00:00:02Z"):
        assert text in printed.out
    _, printed = invoke(WRONG)
    assert "NOT proved" in printed.out
    for text in (f"token: {TOKEN}", str(Fault.MISSING), "mods: 2", "mods: 1", "3 more"):
        assert text in printed.out, text


def test_what_the_stream_lacks_is_refused_before_spark_starts(monkeypatch):
    def refuse(_config):
        raise ConfigError("there is no progress topic")

    monkeypatch.setattr(audit_command, "require_spark", lambda **_: None)
    monkeypatch.setattr(audit_command, "require_release", lambda _: None)
    monkeypatch.setattr(audit_command, "require_stream", refuse)
    steps = []
    with pytest.raises(ConfigError, match="no progress topic"):
        audit_command.audit(ConsumerConfig.load(None, **SETTINGS), step=steps.append)
    assert steps == ["Kafka and schema registry"]


def test_a_small_output_gets_a_java_that_starts_fast(tmp_path):
    def options(**more):
        config = ConsumerConfig.load(None, **{**SETTINGS, "output": str(tmp_path), **more})
        return audit_command._for_its_size(config).java_options

    file = tmp_path / "changelog" / "a" / "part-0.parquet"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"small")
    gone = file.with_name("part-1.parquet")  # as one that a vacuum deletes in between
    gone.symlink_to(tmp_path / "nothing")
    assert options() == shlex.join(QUICK_START)
    assert options(java_options="-Xmx2g") == "-Xmx2g"
    assert options(output="s3a://lake/orders") == ""
    with file.open("wb") as large:
        large.truncate(65 * 1024**2)
    assert options() == ""


# ---------------------------------------------------------------- adopt
PROOF = OutputProof("q", 3, 40_000, ("changelog", "mirror"))


def test_each_adopted_thing_is_a_line_of_json(monkeypatch, capsys):
    def adopt(config, *, step):
        step("checkpoint")
        return [{"table": f"{config.prefix}/t", "version": 3}, {"table": "mirror/u", "version": 4}]

    monkeypatch.setattr(adopt_command, "adopt", adopt)
    monkeypatch.setattr(sys, "argv", ["tidegate-consumer", "adopt", *flags()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    structlog.reset_defaults()
    assert ended.value.code == 0
    output = capsys.readouterr()
    (shown,) = map(json.loads, output.err.splitlines())
    assert (shown["event"], shown["step"]) == ("adopt step", "checkpoint")
    lines = [json.loads(line) for line in output.out.splitlines()]
    assert [line["version"] for line in lines] == [3, 4]
    assert lines[0]["table"] == "bank/t"


@pytest.fixture
def kafka(monkeypatch):
    """What Kafka has: the first records by topic, and the id of the dead-letter topic."""
    kept = {"bank.a": {0: FirstRecord(0, 1), 1: FirstRecord(0, None)}}
    dead_letter = {"bank-dead-letter": None}
    monkeypatch.setattr(adopt_command, "first_records", lambda *_: kept)
    monkeypatch.setattr(kafka_topics, "LiveTopicIds", lambda *_: lambda _topics: dead_letter)

    def require(proof=PROOF):
        adopt_command.require_kafka_keeps(ConsumerConfig.load(None, **SETTINGS), proof)

    require.kept, require.dead_letter = kept, dead_letter
    return require


MOVED = replace(PROOF, mirror_release=1, mirror_through_us=20_000)


def test_topics_must_have_what_follows_the_outputs_end(kafka):
    assert PROOF.needs_after_us == 40_000
    for first, proof, is_kept in (
        (FirstRecord(0, 1), PROOF, True),  # from the beginning
        (FirstRecord(7, 40), PROOF, True),  # retention has cut before the output's end
        (FirstRecord(7, 41), PROOF, False),
        (FirstRecord(7, None), PROOF, False),
        # What mirrors lack must be in Kafka, too.
        (FirstRecord(7, 30), MOVED, False),
        (FirstRecord(7, 20), MOVED, True),
    ):
        kafka.kept["bank.a"][0] = first
        with nullcontext() if is_kept else pytest.raises(ConfigError, match="has all changes"):
            kafka(proof)
    kafka.kept.clear()  # the topic does not exist
    with pytest.raises(ConfigError, match="no longer has all changes"):
        kafka(PROOF)


def test_changes_that_may_have_been_put_back_are_refused(kafka):
    for ids in ({"bank-dead-letter": "an id"}, {}):
        kafka.dead_letter.clear()
        kafka.dead_letter.update(ids)
        with pytest.raises(ConfigError, match="parked"):
            kafka()


def test_names_are_compared_where_there_is_a_progress_topic(monkeypatch):
    seen, missing = [], []
    monkeypatch.setattr(adopt_command, "find_missing_topics", lambda *_, **__: missing)
    monkeypatch.setattr(
        adopt_command, "require_topic_names", lambda config, _: seen.append(config.prefix)
    )
    adopt_command.require_names(ConsumerConfig.load(None, **SETTINGS))
    missing.append("bank-progress")
    adopt_command.require_names(ConsumerConfig.load(None, **SETTINGS))
    assert seen == ["bank"]


# ---------------------------------------------------------------- status

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


def test_a_checkpoint_is_named_by_a_path_or_by_an_address_of_this_machine(place):
    figures = status(str(place / "check"), now_s=lambda: 10.0)
    for scheme in ("file:", "file://"):
        assert status(f"{scheme}{place}/check", now_s=lambda: 10.0) == figures
    with pytest.raises(ConfigError, match="on this machine only"):
        status("s3a://lake/check")


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
LONG_TOKEN = "__8BAYE" + "t" * 300

OUTPUT = "/lake/" + "deep/" * 40


FIGURES = {
    "prefix": "bank",
    "watermark_us": 1_795_341_600_123_456,
    "watermark": "2026-11-22T10:00:00.123456+00:00",
    "lag_s": 1.25,
    "begins": {"mine": 7},
    "left_out": {},
    "topics": ["bank.accounts", "bank.[red]ledger"],
    "output": OUTPUT,
    "complete_from_us": None,
    "slots": [
        {
            "slot": slot, "worker": worker, "slowest": LONG_TOKEN,
            "watermark": "2026-11-22T10:00:00.123456+00:00", "lag_s": 0.5,
        }
        for slot, worker in ((11, "tidegate-producer-10"), (3, None))
    ],
    "gaps": [
        {
            "token": LONG_TOKEN, "from_us": 1_000_000, "until_us": 2_500_000,
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
    for name, value in (("complete_from ", "│ - "), ("mine: 7", ""), ("left_out", "none")):
        assert [line for line in lines if name in line and value in line]
    text = "\n".join(lines)
    assert "bank.[red]ledger" in text
    assert "until_us" not in text  # a gap is shown with times
    for time in ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", "1970-01-01T00:00:03Z"):
        assert time in text
    assert "_us" not in text
    assert any("2026-11-22T10:00:00.123456Z" in line for line in lines if "watermark " in line)
    text = "\n".join(shown(100, complete_from_us=5))
    assert "1970-01-01T00:00:00.000005Z" in text
    text = "\n".join(shown(100, gaps=[], last_releases=None))
    assert "slots, the slowest first" in text
    assert "accepted gaps" not in text
    assert "last releases" not in text


# ---------------------------------------------------------------- tail


def test_a_time_of_the_first_thousand_years_has_four_digits_for_the_year(place, monkeypatch):
    first = datetime(1, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    row = dict.fromkeys(tail_command._SHOWN, 0) | {"commit_timestamp": first, "key": {"at": first}}
    row |= dict.fromkeys(("new_values", "new_columns", "old_values", "old_columns"))
    monkeypatch.setattr(tail_command, "_direct", lambda _: None)
    monkeypatch.setattr(tail_command, "release_rows", lambda *_: [row])
    (change,) = tail_command.tail(str(place / "out"), releases=1, follow=False)
    assert change["commit_timestamp"] == change["key"]["at"] == "0001-01-02T03:04:05.000006Z"
