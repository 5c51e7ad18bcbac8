"""The command line: exit codes, one line per error, and status without Spark."""

from __future__ import annotations

import json
import os
import sys
import threading
from types import SimpleNamespace

import pytest
import structlog
from rich.cells import cell_len

import tidegate
from tests.unit.spark_consumer.commands.command_building import SETTINGS, flags
from tidegate.lineage.errors import ProtocolError
from tidegate.program.java import java_max
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.spark_consumer import cli
from tidegate.spark_consumer.classic_session import require_classic
from tidegate.spark_consumer.commands import run as run_command
from tidegate.spark_consumer.commands import tail as tail_command
from tidegate.spark_consumer.config import (
    ICEBERG_PACKAGES,
    LOGIN_PACKAGES,
    SPARK_PACKAGES,
    ConsumerConfig,
    names_in,
)
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


def test_help_names_the_commands_in_words_of_the_readme(invoke):
    text = invoke("--help").stdout
    assert "Write releases to the output" in text
    assert "gate" not in text.replace("Tidegate", "").replace("tidegate", "")


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
    assert result.stderr.startswith(f"error: Spark needs Java 17 to {java_max()}: no java is on")
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


# ---------------------------------------------------------------- settings


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith("TIDEGATE_CONSUMER_"):
            monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "consumer.toml"

    def write(text):
        path.write_text(text)
        return path

    return write


def load(file=None, **changes):
    return ConsumerConfig.load(file, **{**SETTINGS, **changes})


def test_flags_win_over_environment_and_environment_over_file(file, environment):
    path = file('prefix = "file"\noutput = "file"\ncheckpoint = "file"\n')
    environment.setenv("TIDEGATE_CONSUMER_OUTPUT", "environment")
    environment.setenv("TIDEGATE_CONSUMER_CHECKPOINT", "environment")
    config = load(path, checkpoint="flag", prefix=None, output=None)
    assert (config.prefix, config.output, config.checkpoint) == ("file", "environment", "flag")


def test_all_faults_are_reported_together(file, environment):
    environment.setenv("TIDEGATE_CONSUMER_SPEED", "high")
    path = file('colour = "red"\n')
    flags = {"prefix": "no spaces", "registry_url": "ftp://x", "metrics_port": 99999}
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.load(path, **flags, until="noon")
    text = str(caught.value)
    for name in ("TIDEGATE_CONSUMER_SPEED", "colour", "prefix", "registry_url", "metrics_port"):
        assert f"{name}: " in text
    for name in ("bootstrap_servers", "output", "checkpoint"):
        assert f"{name}: is not set" in text
    assert "until: must be one of '', 'caught-up'" in text
    assert "tidegate-consumer run --help" in text
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        # Options that would be dropped or break promises.
        *(
            ({"kafka_options": {name: "secret"}}, f"kafka_options: {name}: {reason}")
            for names, reason in (
                (("isolation.level",), "only records of committed transactions"),
                (("group.id", "group.protocol"), "Spark assigns topic partitions"),
                (("transactional.id",), "the sink topic publishes each release in one"),
                (("sasl.jaas.config",), "must be `<class> required"),
            )
            for name in names
        ),
        ({"registry_url": "ftp://user:secret@host"}, "registry_url: "),
        (
            {"sinks": "changelog,hive"},
            "'hive': not one of changelog, mirror, history, parquet, iceberg_changelog",
        ),
        *(({"sinks": text}, "once at most") for text in ("", " , ", "mirror,mirror")),
        *(
            ({f"datastream_files_{name}": value}, f"datastream_files_{name}")
            for name, value in (
                ("format", "parquet"),
                ("rows_max", 0),
                ("bytes_max", 0),
                ("bytes_max", 2**29),
            )
        ),
        # The ordered topic and its sink belong together.
        ({"sinks": "changelog,topic"}, "needs the name of a topic"),
        ({"ordered_topic": "bank-ordered"}, "add it to sinks"),
        (
            {"sinks": "topic", "ordered_topic": "x", "ordered_topic_partitions": 3},
            "a total order has one",
        ),
        *(
            ({"ordered_topic_timeout_ms": wrong}, "ordered_topic_timeout_ms")
            for wrong in (9_999, 2**31)
        ),
        ({"iceberg_catalog": "lake"}, "add one to sinks"),
        ({"iceberg_namespace": "bank"}, "add one to sinks"),
        ({"sinks": "iceberg_mirror", "iceberg_catalog": "a.b"}, "iceberg_catalog"),
        ({"sinks": "iceberg_mirror", "iceberg_namespace": "a..b"}, "iceberg_namespace"),
        ({"mirror_accepts": "exclude_delete,everything"}, "'everything': not one of"),
        ({"mirror_accepts": "\udc80"}, "udc80"),
        *(
            ({"catalog_schema": schema}, "not the name of a schema")
            for schema in ("lake.", ".bank", "/lake", "my-bank", "a b", "`bank`")
        ),
        # Tables.
        ({"compact_files_min": 1}, "compact_files_min: must be 0, or 2 or more"),
        ({"compact_files_min": -1}, "compact_files_min: "),
        ({"target_file_bytes": 1_000}, "target_file_bytes: "),
        ({"vacuum_retention_hours": 23}, "vacuum_retention_hours: must be 0, or 24 or more"),
        ({"vacuum_interval_ms": 0}, "vacuum_interval_ms: "),
        *(
            ({"table_properties": {name: value}}, f"table_properties: {name}: ")
            for name, value in (
                ("delta.appendOnly", "true"),
                ("tidegate.x", "1"),
                ("owner", "me"),
            )
        ),
        ({"table_properties": "x"}, "table_properties: must be a table"),
        ({"mirror_partition_by": {"a": " , "}}, "mirror_partition_by: a: name each column"),
        ({"mirror_cluster_by": {"a": "x,x"}}, "mirror_cluster_by: a: name each column"),
        (
            {"mirror_partition_by": {"a": "x"}, "mirror_cluster_by": {"a": "y"}},
            "mirror_cluster_by: a: a table in mirror_partition_by cannot be clustered too",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_its_name_without_a_secret(changes, text):
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert text in str(caught.value)
    assert caught.value.exit_code == 2
    assert "secret" not in str(caught.value)


def test_a_wrong_list_of_sinks_is_the_only_fault():
    for more in ({"ordered_topic": "x"}, {"iceberg_namespace": "bank"}):
        with pytest.raises(ConfigError) as caught:
            load(sinks="topic,iceberg_mirror,tape", **more)
        assert "'tape': not one of" in str(caught.value)
        assert "to sinks" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"sink_names": ("changelog", "mirror"), "session_packages": SPARK_PACKAGES}),
        ({"sinks": " mirror , changelog "}, {"sink_names": ("changelog", "mirror")}),
        ({"datastream_files_format": "jsonl.gz"}, {"datastream_files_format": "jsonl.gz"}),
        (
            {"sinks": "topic", "ordered_topic": "x", "ordered_topic_order": "key"}
            | {"ordered_topic_partitions": 3},
            {"ordered_topic": "x", "ordered_topic_partitions": 3},
        ),

        (
            {"sinks": "iceberg_mirror", "iceberg_catalog": "lake", "iceberg_namespace": "raw.b"},
            {
                "iceberg_catalog": "lake", "iceberg_namespace": "raw.b", "has_iceberg": True,
                "session_packages": f"{SPARK_PACKAGES},{ICEBERG_PACKAGES}",
            },
        ),
        ({"sinks": "iceberg_mirror", "packages": ""}, {"session_packages": ""}),
        (
            {"sinks": "iceberg_mirror", "packages": "a:b:1"},
            {"session_packages": f"a:b:1,{ICEBERG_PACKAGES}"},
        ),
        (
            {"sinks": "iceberg_changelog", "packages": "org:iceberg-spark-runtime-4.0_2.13:2.0.0"},
            {"session_packages": "org:iceberg-spark-runtime-4.0_2.13:2.0.0"},
        ),
        *(
            (
                {"kafka_login": login},
                {"session_packages": f"{SPARK_PACKAGES},{LOGIN_PACKAGES[login]}"},
            )
            for login in ("google", "aws")
        ),
        ({"kafka_login": "google", "packages": ""}, {"session_packages": ""}),
        (
            {"kafka_login": "aws", "packages": "software.amazon.msk:aws-msk-iam-auth:9"},
            {"session_packages": "software.amazon.msk:aws-msk-iam-auth:9"},
        ),
        (
            {"mirror_accepts": "exclude_delete, exclude_ttl_deletes"},
            {"accepted_exclusions": ("exclude_delete", "exclude_ttl_deletes")},
        ),
        *(
            ({"catalog_schema": schema}, {"catalog_schema": schema})
            for schema in ("bank", "unity.lake.bank_2")
        ),
        # By default small files are rewritten and nothing is deleted.
        (
            {},
            {
                "compact_files_min": 32, "target_file_bytes": 32 * 1024**2,
                "vacuum_retention_hours": 0, "table_properties": {}, "mirror_partition_by": {},
                "ordered_topic_timeout_ms": 300_000, "accepted_exclusions": (),
                "datastream_files_format": "avro", "until": "", "metrics_port": 0,
            },
        ),
    ],
    ids=str,
)  # fmt: skip
def test_settings_give_the_query_its_sinks_packages_and_names(changes, expected):
    config = load(**changes)
    assert {name: getattr(config, name) for name in expected} == expected


def test_secrets_are_never_printed(file):
    path = file('registry_user_info = "me:secret"\n[kafka_options]\nsasl.password = "secret"\n')
    config = load(path)
    assert config.kafka_client_options() == {"sasl.password": "secret"}
    for shown in (repr(config), str(config), config.model_dump_json()):
        assert "secret" not in shown


def test_names_with_dots_need_no_quotes_and_values_are_text(file):
    config = load(
        file(
            "[table_properties]\ndelta.enableDeletionVectors = true\n"
            '"delta.logRetentionDuration" = "interval 7 days"\n'
            '[mirror_partition_by]\naccounts = "region"\nsales.orders = "country, year"\n'
        )
    )
    assert config.table_properties == {
        "delta.enableDeletionVectors": "true",
        "delta.logRetentionDuration": "interval 7 days",
    }
    assert config.mirror_partition_by == {"accounts": "region", "sales.orders": "country, year"}
    assert names_in(" country, year ,") == ("country", "year")
