"""Commands before Spark starts: what they compare, and what `audit` and `adopt` print."""

from __future__ import annotations

import json
import shlex
import sys
import threading
from dataclasses import replace

import pytest
import structlog

from tests.unit.spark_consumer.commands.command_building import SETTINGS, flags
from tidegate.program.health import Health
from tidegate.program.java import QUICK_START
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer import cli
from tidegate.spark_consumer.commands import adopt as adopt_command
from tidegate.spark_consumer.commands import audit as audit_command
from tidegate.spark_consumer.commands import run as command
from tidegate.spark_consumer.commands import stream_check
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import OutputProof
from tidegate.spark_consumer.core.proof import AuditReport, Fault, Findings, Mismatch, Verdict
from tidegate.spark_consumer.core.retention import FirstRecord
from tidegate.spark_consumer.kafka import topic_ids

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
        return stream_check.require_stream(ConsumerConfig.load(None, **{**SETTINGS, **settings}))

    topics, template = [], {"topic_template": "{prefix}-{table}"}
    monkeypatch.setattr(stream_check, "HttpSchemaRegistry", Registry)
    monkeypatch.setattr(stream_check, "find_missing_topics", lambda *_, **__: topics)
    monkeypatch.setattr(stream_check, "require_topic_names", require_recorded)
    assert require(**template).schema is None  # the registry is returned
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with"):
        require()
    topics.append("bank-progress")
    with pytest.raises(ConfigError, match=r"no progress topic .*bank-progress.*prefix"):
        require(**template)

    # Options that Spark's client cannot take are refused before anything is asked.
    def refuse(_options):
        raise ConfigError("kafka_options: not for Java")

    monkeypatch.setattr(stream_check, "java_options", refuse)
    monkeypatch.setattr(stream_check, "HttpSchemaRegistry", None)
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
    monkeypatch.setattr(topic_ids, "LiveTopicIds", lambda *_: lambda _topics: dead_letter)

    def require(proof=PROOF):
        adopt_command.require_kafka_keeps(ConsumerConfig.load(None, **SETTINGS), proof)

    require.kept, require.dead_letter = kept, dead_letter
    return require


MOVED = replace(PROOF, mirror_release=1, mirror_through_us=20_000)


@pytest.mark.parametrize(
    ("first", "proof", "is_kept"),
    [
        (FirstRecord(0, 1), PROOF, True),  # from the beginning
        (FirstRecord(7, 40), PROOF, True),  # retention has cut before the output's end
        (FirstRecord(7, 41), PROOF, False),
        (FirstRecord(7, None), PROOF, False),
        (None, PROOF, False),  # the topic does not exist
        # What mirrors lack must be in Kafka, too.
        (FirstRecord(7, 30), PROOF, True),
        (FirstRecord(7, 30), MOVED, False),
        (FirstRecord(7, 20), MOVED, True),
    ],
)
def test_topics_must_have_what_follows_the_outputs_end(kafka, first, proof, is_kept):
    assert PROOF.needs_after_us == 40_000
    kafka.kept["bank.a"][0] = first
    if first is None:
        kafka.kept.clear()
    if is_kept:
        kafka(proof)
        return
    with pytest.raises(ConfigError, match="no longer has all changes"):
        kafka(proof)


@pytest.mark.parametrize("ids", [{"bank-dead-letter": "an id"}, {}])
def test_changes_that_may_have_been_put_back_are_refused(kafka, ids):
    kafka.dead_letter.clear()
    kafka.dead_letter.update(ids)
    with pytest.raises(ConfigError, match="parked"):
        kafka()


@pytest.mark.parametrize(("missing", "compared"), [([], 1), (["bank-progress"], 0)])
def test_names_are_compared_where_there_is_a_progress_topic(monkeypatch, missing, compared):
    seen = []
    monkeypatch.setattr(adopt_command, "find_missing_topics", lambda *_, **__: missing)
    monkeypatch.setattr(
        adopt_command, "require_topic_names", lambda config, _: seen.append(config.prefix)
    )
    adopt_command.require_names(ConsumerConfig.load(None, **SETTINGS))
    assert seen == ["bank"] * compared
