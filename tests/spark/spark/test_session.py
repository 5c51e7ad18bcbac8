"""Sessions of Spark: of a program that has set everything otherwise, and of our own."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path

import deltalake
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.any_schema.release import release_of
from tests.spark.conftest import spark_jars
from tests.topics import Change, Topic
from tidegate.lineage.subscription import Subscription
from tidegate.local_stack.parts.programs import quick_start
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch.rows import kafka_rows
from tidegate.spark_consumer.config import LOGIN_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.sinks.delta import tables
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.sql import session_settings
from tidegate.spark_consumer.spark import query, requirements
from tidegate.spark_consumer.spark.query_session import STORED_AS, QuerySession
from tidegate.spark_consumer.spark.requirements import SETTING, hide_logins

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOSTILE = {
    "spark.databricks.delta.autoCompact.enabled": "true",
    "spark.databricks.delta.autoCompact.minNumFiles": "2",
    "spark.databricks.delta.commitInfo.userMetadata": "the program's",
    "spark.databricks.delta.properties.defaults.appendOnly": "true",
    "spark.databricks.delta.schema.autoMerge.enabled": "true",
    "spark.databricks.delta.write.txnAppId": "program",
    "spark.databricks.delta.write.txnVersion": "7",
    "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.avro.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.caseSensitive": "true",
    "spark.sql.function.concatBinaryAsString": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.sources.partitionOverwriteMode": "DYNAMIC",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
COLUMNS = {
    "id": "INT64",
    "note": "STRING(MAX)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "amount": "NUMERIC",
    "raw": "BYTES(MAX)",
}
TOPIC = Topic("t", {1: COLUMNS}, ["id"])
ROWS = {
    1: {"day": date(1, 1, 1), "at": datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC)},
    2: {"day": date(1582, 10, 4), "at": datetime(1582, 10, 4, 1, 2, 3, 456_789, tzinfo=UTC)},
    3: {"day": date(9999, 12, 31), "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)},
    4: {"day": None, "at": datetime(2026, 3, 8, 7, 30, 0, 1, tzinfo=UTC)},
}


def test_stored_values_do_not_depend_on_the_programs_settings(spark, tmp_path):
    output = str(tmp_path / "out")
    with session_settings(spark, HOSTILE):
        session = QuerySession(spark, programs=["function"])
        batches = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        session.begin_batch(batches)
    direct = find_direct_way(output, rows_max=100)
    sinks = [
        changelog_sink(session.spark, output, direct=direct),
        DeltaMirrorSink(session.spark, output, direct=direct),
    ]
    for sink in sinks:
        sink.open(query_id="q", release_max=-1)
    expected = {
        key: {**row, "note": "0", "amount": None, "raw": b"\xff"} for key, row in ROWS.items()
    }
    at = datetime(1970, 1, 1, 0, 0, 0, 1_001, tzinfo=UTC)
    for number, small in enumerate((False, True, False)):
        changes = [Change("INSERT", {"id": key}, {"id": key, **row}, us=1_001)
                   for key, row in expected.items()] if number == 0 else []  # fmt: skip
        if number:
            row = expected[number]
            row["note"] = str(number)
            changes = [
                Change("UPDATE", {"id": number}, {"note": row["note"]}, every=False, us=1_001)
            ]
        rows = [TOPIC.row(change, ordinal=n) for n, change in enumerate(changes)]
        schemas = {TOPIC.topic: TOPIC.topic_schemas()}
        for sink in sinks:
            sink.write(release_of(batches, rows, schemas, number=number, small=small, query_id="q"))
    mirror = deltalake.DeltaTable(f"{output}/mirror/t")
    assert {row.pop("id"): row for row in mirror.to_pyarrow_table().to_pylist()} == expected
    of_spark = {
        row["id"]: (str(row["day"]), row["us"])
        for row in session.spark.read.format("delta").load(f"{output}/mirror/t").select(
            "id", F.col("day").cast("string").alias("day"), F.unix_micros("at").alias("us")
        ).collect()
    }  # fmt: skip
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for key, row in expected.items():
        day, us = of_spark[key]
        assert day == (f"{row['day'].year:04d}-{row['day']:%m-%d}" if row["day"] else "None")
        since = row["at"] - epoch
        assert us == (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    changelog = deltalake.DeltaTable(f"{output}/changelog/t").to_pyarrow_table().to_pylist()
    assert {row["commit_timestamp"] for row in changelog} == {at}
    operations = [one["operation"] for one in mirror.history()]
    assert operations == ["MERGE", "MERGE", "MERGE", "CREATE TABLE"]
    assert "delta.appendOnly" not in mirror.metadata().configuration
    # A sink or function of the program's has its own settings, and the program's session all along.
    with session.settings_of(type("Function", (), {"name": "function"})()):
        assert {name: batches.conf.get(name) for name in HOSTILE} == HOSTILE
    assert all(spark.conf.get(name, None) != "the program's" for name in STORED_AS)
    session.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "ours")
    assert spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None


def test_credentials_that_the_program_changes_reach_the_running_query(spark, tmp_path):
    """As Hadoop gets them, in the sessions of a query that Spark runs."""
    key = "fs.s3a.secret.key"
    secrets, zones, began = [], [], threading.Event()

    def in_hadoop(copy):
        conf = copy._jsparkSession.sessionState().newHadoopConf()
        return conf.get(key)

    def take(frame, _number):
        session.begin_batch(frame.sparkSession)
        secrets.append([in_hadoop(copy) for copy in (session.spark, frame.sparkSession)])
        zones.append(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
        began.set()

    with session_settings(spark, {key: "first", "spark.sql.session.timeZone": "Asia/Tokyo"}):
        session = QuerySession(spark)
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writing = rows.writeStream.foreachBatch(take)
        running = writing.option("checkpointLocation", str(tmp_path / "check")).start()
        try:
            for secret in ("first", "second", None):
                if secret is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, secret)
                spark.conf.set("spark.sql.session.timeZone", "America/New_York")
                for _ in range(2):  # one that has begun before may be under way
                    began.clear()
                    assert began.wait(60), running.exception()
                assert secrets[-1] == [secret, secret]
        finally:
            running.stop()
    assert set(zones) == {"UTC"}


KEY = "-----BEGIN PRIVATE KEY-----\ntide-4712\ntide-4712\n-----END PRIVATE KEY-----"
OPTIONS = {
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": 'tide "4711" \\',
    "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----",
    "ssl.key.pem": KEY,
    "ssl.key.password": "tide-4713",
}
SECRETS = ("4711", "tide-4712", "tide-4713")


@pytest.fixture(params=["", "PlainLoginModule"])
def shown_session(spark, request):
    """A session that replaces nothing, or something of its own."""
    fresh = spark.newSession()
    if request.param:
        fresh.conf.set(SETTING, request.param)
    return fresh


def explained(spark, given=OPTIONS):
    """What Spark shows of the plans of a stream from Kafka, which is not run."""
    frame = kafka_rows(
        spark,
        bootstrap_servers="127.0.0.1:1",
        subscription=Subscription(TopicNames("bank")),
        changes_per_batch_max=10,
        options=java_options(given),
    )
    explain = spark.sparkContext._jvm.PythonSQLUtils.explainString
    return explain(frame._jdf.queryExecution(), "extended")


def test_no_plan_shows_a_login(shown_session):
    assert any(secret in explained(shown_session) for secret in SECRETS), (
        "there is something to hide"
    )
    own = shown_session.conf.get(SETTING, "") or ""
    hide_logins(shown_session)
    hide_logins(shown_session)
    shown = explained(shown_session)
    assert "kafka" in shown
    assert not [secret for secret in SECRETS if secret in shown]
    # What is no secret stays, or the whole option is replaced, as Spark 4.2 does.
    is_shown = "PlainLoginModule" in shown
    assert not is_shown if own else is_shown or "sasl.jaas.config=*********" in shown


JAVA_LOGINS = [
    {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": 'tide "4711" \\; x',
    },
    {"sasl.jaas.config": 'a.B required password="tide 4711, (4711)" clientSecret="4711";'},
    {"sasl.jaas.config": "a.B required apiSecretKey=4711 password = 4711 ;"},
    {"ssl.keystore.password": "tide, (4711) 4711", "ssl.truststore.password": "4711) 4711"},
    {"ssl.key.password": "a -> 4711, 4711", "ssl.keystore.key": KEY.replace("tide-4712", "4711")},
]


@pytest.mark.parametrize("given", JAVA_LOGINS, ids=range(len(JAVA_LOGINS)))
def test_no_plan_shows_a_login_in_javas_words(spark, given):
    fresh = spark.newSession()
    # From 4.2 on Spark hides most of them itself.
    assert "4711" in explained(fresh, given) or not spark.version.startswith(("4.0.", "4.1."))
    hide_logins(fresh)
    shown = explained(fresh, given)
    assert "kafka" in shown
    assert "4711" not in shown


def config_with(**changes):
    return ConsumerConfig(
        bootstrap_servers="b:1", registry_url="http://r", prefix="bank", output="o",
        checkpoint="c", **changes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "name", "hint"),
    [
        ({"kafka_login": "google"}, "GcpLoginCallbackHandler", LOGIN_PACKAGES["google"]),
        ({"kafka_login": "aws"}, "IAMClientCallbackHandler", LOGIN_PACKAGES["aws"]),
        (
            {
                "kafka_login": "own:f",
                "kafka_options": {"sasl.login.callback.handler.class": "bank.Tokens"},
            },
            r"bank\.Tokens",
            "the jar of the class among spark.jars",
        ),
    ],
)
def test_a_login_whose_class_no_jar_brings_is_named(spark, changes, name, hint):
    with pytest.raises(ConfigError, match=f"lacks the class .*{name}") as caught:
        query.build_query(spark, config_with(**changes))
    assert hint in caught.value.hint


def test_the_driver_may_ask_the_token_endpoint(spark, monkeypatch):
    class Reached(Exception):
        pass

    def reach(_):
        raise Reached

    monkeypatch.setattr(query, "hide_logins", reach)
    allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
    system = spark.sparkContext._jvm.java.lang.System
    system.setProperty(allowed, "http://other/token")
    try:
        for _ in range(2):
            with pytest.raises(Reached):
                query.build_query(spark, config_with(kafka_options=JAVA_LOGINS[0]))
        assert system.getProperty(allowed) == "http://other/token,http://127.0.0.1:1/token"
    finally:
        system.clearProperty(allowed)


FAILING_RUN = """
import sys
from tidegate.spark_consumer.spark.session import local_session

spark = local_session(master="local[1]", packages="", jars=sys.argv[1], app_name="t")

def fail(rows, number):
    raise ValueError("on purpose")

source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
query = source.writeStream.foreachBatch(fail).option("checkpointLocation", sys.argv[2]).start()
try:
    query.awaitTermination()
except Exception as error:
    print("reported" if "on purpose" in str(error) else error)
"""


@pytest.mark.deep
def test_a_failed_query_prints_no_stack_trace(spark, tmp_path):
    jars = spark.conf.get("spark.jars")
    outcome = subprocess.run(
        [sys.executable, "-c", FAILING_RUN, jars, str(tmp_path)],
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert outcome.stdout.strip() == "reported", outcome
    assert "Traceback" not in outcome.stderr
    assert "\tat " not in outcome.stderr


def test_the_local_stacks_jars_bring_all_data_sources(spark):
    requirements.require_session(spark)


def test_a_class_that_no_jar_brings_is_reported(spark, monkeypatch):
    monkeypatch.setattr(requirements, "_DATA_SOURCES", ("delta", "carrier-pigeon"))
    with pytest.raises(ConfigError, match=r"a data source for carrier-pigeon"):
        requirements.require_session(spark)


def test_a_delta_whose_settings_have_other_names_is_asked_whether_it_works(spark, monkeypatch):
    """A distribution with a Delta of its own has classes of other names."""
    assert requirements._delta_fault(spark) == ""
    monkeypatch.setattr(requirements, "_DELTA_SETTINGS", ("spark.other.extension",))
    renamed = {**DELTA_SESSION_SETTINGS, "spark.other.extension": "another"}
    monkeypatch.setattr(tables, "DELTA_SESSION_SETTINGS", renamed)
    requirements.require_session(spark)
    plain = spark.newSession()
    plain.conf.set("spark.sql.catalog.spark_catalog", "org.no.such.Catalog")
    with pytest.raises(ConfigError, match=r"cause=.*org\.no\.such\.Catalog"):
        requirements.require_session(plain)


ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "tests/spark/programs.py"
PATIENCE_S = 240


def started(folder, *, submitted):
    jars, options = ",".join(spark_jars()), quick_start()
    submit = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[1]", "--jars", jars, "--driver-java-options", options),
        *("--conf", "spark.ui.enabled=false"),
    ]
    head = submit if submitted else [sys.executable]
    return subprocess.Popen(
        [*head, PROGRAM, "stopped", str(folder), jars, options],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=(folder / "log").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("submitted", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_batch_is_finished_before_java_ends(tmp_path, submitted):
    if not spark_jars():
        pytest.skip("Spark's jars are not fetched: ./dev setup, or TIDEGATE_SPARK_JARS=<folder>")
    said = tmp_path / "said"
    program = started(tmp_path, submitted=submitted)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not said.exists() or "begin" not in said.read_text():
            assert program.poll() is None, (tmp_path / "log").read_text()[-3_000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # spark-submit alone, or the whole group: Java, and Python above it.
        if submitted:
            program.terminate()
        else:
            os.killpg(program.pid, signal.SIGTERM)
        program.wait(PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    lines = said.read_text().splitlines()
    assert lines[-1] == "stopped", lines
    assert "cancelled" not in lines
    assert lines[-2] == f"end {lines[-3].split()[1]} 10"
    # Java was there until it had answered the last call.
    assert "Error while sending or receiving" not in (tmp_path / "log").read_text()
