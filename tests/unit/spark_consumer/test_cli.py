"""The command line: exit codes, one line per error, and status without Spark."""

from __future__ import annotations

import json
import sys
import threading
from types import SimpleNamespace

import pytest
import structlog
from rich.cells import cell_len

import tidegate
from tests.unit.spark_consumer.commands.command_building import SETTINGS, flags
from tidegate.lineage.errors import ProtocolError
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.spark_consumer import cli
from tidegate.spark_consumer.classic_session import require_classic
from tidegate.spark_consumer.commands import run as run_command
from tidegate.spark_consumer.commands import tail as tail_command
from tidegate.spark_consumer.core.batch_state import Segment, State, TopicIds
from tidegate.spark_consumer.spark.requirements import require_spark

NEEDED = ["run", *flags()]


@pytest.fixture
def invoke(monkeypatch, capsys, tmp_path):
    """Run the program's entry point, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    # These tests are the same on machines without Java.
    monkeypatch.setattr(run_command, "require_spark", lambda **_named: None)

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tidegate-consumer", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return SimpleNamespace(exit_code=ended.value.code, stdout=printed.out, stderr=printed.err)

    yield run_main
    structlog.reset_defaults()  # it holds the captured stderr, which is closed after the test


@pytest.fixture
def checkpoint(tmp_path):
    states = tmp_path / "gate" / "states"
    states.mkdir(parents=True)
    state = State(
        prefix="bank",
        query_id="q",
        batch=10,
        watermark_us=1_500_000,
        next_release=4,
        late_rows=1,
        mismatches=2,
        segments=(Segment("a", 1_600_000, 1_700_000, 5, (1_700_000,)),),
        topics=(TopicIds("bank.accounts", (1,), (2,)),),
    )
    (states / "9.json").write_text("{}")
    (states / "10.json").write_text(json.dumps(state.snapshot()))
    (states / ".11.json.1.tmp").write_text("")
    return tmp_path


def test_missing_settings_are_a_usage_error_without_traceback(invoke, tmp_path):
    result = invoke("run", "--prefix", "bank")
    assert result.exit_code == 2
    assert "output: is not set (flag --output, " in result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    result = invoke(*NEEDED)  # what is missing is reported before Spark starts
    assert result.exit_code == 75
    assert "registry does not answer" in result.stderr
    file = tmp_path / "consumer.toml"
    file.write_text('[kafka_options]\nsasl.username = "me"\nsasl.password = "hush"\n')
    result = invoke(*NEEDED, "--config", str(file))
    assert result.exit_code == 2
    assert "a login needs sasl.mechanism" in result.stderr
    assert "hush" not in result.stderr
    text = invoke("run", "--help").stdout  # every setting but no secret
    assert "--release-rows-max" in text
    assert "--kafka-options" not in text
    assert "user-info" not in text


def test_what_spark_misses_is_one_line_and_exit_code_2(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(run_command, "require_spark", require_spark)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = invoke(*NEEDED)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: Spark needs Java 17 to 21: no java is on the path")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "kind"),
    [
        (ProtocolError("wrong"), 2, "error"),
        (InvariantViolation("a bug"), 70, "broken invariant"),
    ],
)
def test_errors_of_a_run_become_exit_codes(invoke, monkeypatch, error, code, kind):
    from tidegate.spark_consumer.spark import query

    def fail(*_arguments, **_named):
        raise error

    monkeypatch.setattr(run_command, "prepare", lambda _settings, **_named: True)
    monkeypatch.setattr(query, "run", fail)
    result = invoke(*NEEDED)
    assert result.exit_code == code
    assert result.stderr == f"{kind}: {error}\n"


def test_settings_and_the_begin_reach_the_run(invoke, monkeypatch):
    from tidegate.spark_consumer.spark import query

    seen = []

    def run(settings, *, stop, begun_us, **_named):
        seen.append((settings, stop, begun_us))

    monkeypatch.setattr(run_command, "prepare", lambda _settings, **_named: True)
    monkeypatch.setattr(query, "run", run)
    result = invoke(*NEEDED, "--until", "caught-up")
    assert result.exit_code == 0
    ((settings, stop, begun_us),) = seen
    assert settings.until == "caught-up"
    assert isinstance(stop, threading.Event)
    assert not stop.is_set()
    assert begun_us > 1_700_000_000_000_000


def test_a_run_that_is_stopped_while_it_waits_for_topics_ends_without_spark(invoke, monkeypatch):
    from tidegate.spark_consumer.spark import query

    def run(*_arguments, **_named):
        raise AssertionError

    monkeypatch.setattr(run_command, "prepare", lambda _settings, **_named: False)
    monkeypatch.setattr(query, "run", run)
    assert invoke(*NEEDED).exit_code == 0


def test_status_shows_the_newest_state(invoke, checkpoint):
    def shown():
        result = invoke("status", "--checkpoint", str(checkpoint), "--json")
        assert result.exit_code == 0
        return json.loads(result.stdout)

    figures = shown()
    expected = {
        "batch": 10, "watermark": "1970-01-01T00:00:01.500000+00:00", "releases": 4,
        "waiting_changes": 5, "mismatches": 2, "topics": ["bank.accounts"],
        "complete_from_us": None, "left_out": {},
    }  # fmt: skip
    assert figures | expected == figures
    assert "waiting_changes" in invoke("status", "--checkpoint", str(checkpoint)).stdout
    (checkpoint / "gate" / "start.json").write_text('{"complete_from_us": 70}')
    assert shown()["complete_from_us"] == 70
    # What the change stream leaves out.
    columns = (
        Column("id", ColumnType("INT64"), 1, 1),
        Column("b", ColumnType("INT64"), 2, is_watched=False),
    )
    schema = value_schema("p.t", TableSchema("t", columns, excludes=("exclude_delete",)))
    (checkpoint / "gate" / "schemas").mkdir()
    (checkpoint / "gate" / "schemas" / "2.json").write_text(json.dumps(schema))
    left_out = {"columns": ["b"], "options": ["exclude_delete"]}
    assert shown()["left_out"] == {"bank.accounts": left_out}


@pytest.mark.parametrize("place", ["nowhere", "n" * 300, "s3a://bucket/check"])
def test_status_of_what_cannot_be_read_is_a_usage_error(invoke, tmp_path, place):
    asked = place if "://" in place else str(tmp_path / place)
    result = invoke("status", "--checkpoint", asked)
    assert result.exit_code == 2
    assert "error: " in result.stderr


@pytest.mark.parametrize(
    "content", [b"\xcd\xfe", b"[]", b'{"batch": 5}', b"null", b'{"format": "x"}']
)
def test_status_of_a_damaged_state_names_its_file(invoke, tmp_path, content):
    states = tmp_path / "gate" / "states"
    states.mkdir(parents=True)
    (states / "5.json").write_bytes(content)
    result = invoke("status", "--checkpoint", str(tmp_path))
    assert result.exit_code == (2 if content == b"null" else 1)
    (line,) = result.stderr.splitlines()
    assert ("no state" if content == b"null" else "states/5.json") in line


CHANGE = {
    "commit_timestamp": "2026-11-22T10:00:00.000001Z",
    "table": "orders",
    "mod_type": "INSERT",
    "key": {"id": 5},
    "new_values": {"id": 5, "text": "宽" * 100},
}


def test_tail_cuts_a_line_at_the_terminals_width_and_json_is_whole(invoke, monkeypatch):
    monkeypatch.setattr(tail_command, "tail", lambda *_, **__: iter([CHANGE]))
    monkeypatch.setenv("COLUMNS", "100")
    (line,) = invoke("tail", "--output", "out").stdout.splitlines()
    assert cell_len(line) in {99, 100}
    assert line.endswith("…")
    (line,) = invoke("tail", "--output", "out", "--json").stdout.splitlines()
    assert json.loads(line) == CHANGE
    widths = {0: "abcdef", 6: "abcdef", 5: "abcd…"}
    assert {width: tail_command.fitted("abcdef", width) for width in widths} == widths


# ---------------------------------------------------------------- Spark Connect
def connect_session():
    """Return a real session of Spark Connect; it speaks to its server when it is first used."""
    session = pytest.importorskip("pyspark.sql.connect.session", reason="needs grpcio")
    return session.SparkSession(connection="sc://127.0.0.1:1")


def test_a_connect_session_is_refused_with_what_to_use():
    class Theirs(type(connect_session())):
        pass

    for session in (connect_session(), object.__new__(Theirs)):
        with pytest.raises(ConfigError, match=r"Spark Connect is not supported.*tidegate\.session"):
            require_classic(session)
    require_classic(SimpleNamespace())  # any other session passes


STREAM = {name: SETTINGS[name] for name in ("bootstrap_servers", "registry_url", "prefix")}


@pytest.mark.parametrize(
    "call",
    [
        lambda spark: tidegate.as_of(spark, "/lake", 7),
        lambda spark: tidegate.audit(spark, "/lake", **STREAM),
        lambda spark: tidegate.stream(spark, **STREAM).output("/lake").mirror().start("/check"),
    ],
    ids=["as_of", "audit", "stream"],
)
def test_every_call_that_takes_a_session_refuses_it(call):
    with pytest.raises(ConfigError, match="Spark Connect is not supported"):
        call(connect_session())
