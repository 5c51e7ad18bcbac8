"""What the library accepts, and what it hands over; no Spark is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES, SPARK_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.library import audit as audit_module
from tidegate.spark_consumer.library import builder, settings
from tidegate.spark_consumer.library import session as session_module
from tidegate.spark_consumer.library.audit import audit
from tidegate.spark_consumer.library.builder import stream
from tidegate.spark_consumer.library.session import session
from tidegate.spark_consumer.library.settings import load_settings, named_sink, require_option
from tidegate.spark_consumer.sinks.handed_batch import BatchSink
from tidegate.spark_consumer.spark import session as sessions

STREAM = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
}


class Started:
    """What the parts of `start` were called with, in order."""

    def __init__(self):
        self.steps = []
        self.config = None
        self.sinks = ()
        self.query_name = None


@pytest.fixture
def started(monkeypatch):
    found = Started()

    def build(_spark, config, *, sinks, query_name):
        found.steps.append("build")
        found.config, found.sinks, found.query_name = config, sinks, query_name
        return found

    def note(step):
        return lambda *_: found.steps.append(step)

    for name, step in (
        ("require_session", "session"),
        ("require_stream", "stream"),
        ("require_turn", "turn"),
        ("start_log", "log"),
    ):
        monkeypatch.setattr(builder, name, note(step))
    monkeypatch.setattr(builder, "Storage", lambda *_: None)
    monkeypatch.setattr(builder, "build_query", build)
    monkeypatch.setattr(builder, "TidegateQuery", lambda running: running)
    monkeypatch.setattr(structlog, "is_configured", lambda: True)
    return found


def spark(*active):
    names = [SimpleNamespace(name=name) for name in active]
    return SimpleNamespace(streams=SimpleNamespace(active=names))


def new(**options):
    return stream(spark(), **STREAM, **options)


class Own:
    """A sink of a program's own."""

    def __init__(self, name):
        self.name = name

    def open(self, *, query_id, release_max):
        pass

    def write(self, release):
        pass


def test_the_example_hands_over_what_it_says(started):
    calls = []
    query = (
        new(releases_kept=5)
        .changelog("/lake/changelog")
        .mirror("/lake/mirror")
        .for_each_release(lambda *given: calls.append(given))
        .option("mirror_interval_ms", 500)
        .options(on_mismatch="record", small_release_rows_max="0")
        .trigger(processingTime="2 seconds")
        .queryName("mine")
        .start(checkpoint="/lake/_checkpoint")
    )
    assert query is started
    assert started.steps == ["session", "stream", "turn", "build"]
    found = started.config
    assert (found.output, found.checkpoint) == ("/lake", "/lake/_checkpoint")
    assert found.sink_names == ("changelog", "mirror")
    assert (found.releases_kept, found.mirror_interval_ms) == (5, 500)
    assert (found.on_mismatch, found.small_release_rows_max) == ("record", 0)
    assert (found.trigger_interval_ms, started.query_name) == (2_000, "mine")
    assert [sink.name for sink in started.sinks] == ["function"]


@pytest.mark.parametrize(
    ("build", "output", "sinks"),
    [
        (lambda b: b.mirror("/lake/mirror/"), "/lake", "mirror"),
        (lambda b: b.mirror("s3a://lake/bank/mirror"), "s3a://lake/bank", "mirror"),
        (lambda b: b.changelog(Path("/lake/changelog")), "/lake", "changelog"),
        (lambda b: b.changelog("/changelog"), "/", "changelog"),
        (lambda b: b.changelog("changelog"), ".", "changelog"),
        (lambda b: b.output("/lake").changelog("/lake/changelog"), "/lake", "changelog"),
        (lambda b: b.changelog().output("/lake"), "/lake", "changelog"),
        (lambda b: b.options(output="/lake", sinks="mirror, changelog"), "/lake",
         "changelog,mirror"),
        (lambda b: b.output("/lake").for_each_release(print), "/lake", ""),
        (lambda b: b.output("/lake").iceberg(), "/lake", "iceberg_changelog,iceberg_mirror"),
        (lambda b: b.output("/lake").iceberg(changelog=False), "/lake", "iceberg_mirror"),
        (lambda b: b.mirror("/lake/mirror").mirror("/lake/history", history="scd2"), "/lake",
         "mirror,history"),
        (lambda b: b.mirror("/lake/mirror").mirror("/lake/mirror", history="scd2"), "/lake",
         "mirror,history"),
        (lambda b: b.changelog("/lake/changelog").changelog("/lake/transactions",
         mode="transaction").parquet(mode="transaction"), "/lake",
         "changelog,transactions,parquet_transactions"),
        (lambda b: b.mirror("/lake/mirror_by_key", mode="key").changelog(mode="key").parquet(
         mode="key"), "/lake", "changelog_by_key,mirror_by_key,parquet_by_key"),
    ],
)  # fmt: skip
def test_one_folder_holds_all(started, build, output, sinks):
    build(new()).start("/check")
    assert (started.config.output, ",".join(started.config.sink_names)) == (output, sinks)
    assert started.query_name == "tidegate-bank"


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda b: b.changelog("/lake/changes"), r"changelog: the path must end in /changelog"),
        (lambda b: b.mirror("/lake/other", history="scd2"), r"must end in /history"),
        (lambda b: b.mirror(history="scd1"), r'unknown kind of history.*history="scd2"'),
        (lambda b: b.changelog("/lake/changelog").mirror("/pond/mirror"), r"one output.*/pond"),
        (lambda b: b.changelog("/lake/changelog").output("/pond"), r"one output.*/pond"),
        (lambda b: b.iceberg(changelog=False, mirror=False), r"iceberg: no table is asked for"),
        (lambda b: b.option("colour", 1), r"option colour: unknown setting"),
        (lambda b: b.option("output", None), r"option output: there is no value"),
        (lambda b: b.output("").mirror().start("/check"), r"output: .*at least 1 character"),
        (lambda b: b.options(output="/lake", sinks=" , ").start("/check"), r"has no output"),
        (lambda b: b.options(jars="a.jar"), r"option jars: it has no effect"),
        (lambda b: b.for_each_release("print"), r"not a function: str"),
        (lambda b: b.for_each_release(print, name=""), r"name is empty or in use"),
        (lambda b: b.for_each_release(print, name="history"), r"empty or in use.*'history'"),
        (lambda b: b.for_each_release(print).for_each_release(print), r"in use.*'function'"),
        (lambda b: b.for_each_release(print, mode="row"), r"unknown order mode"),
        (lambda b: b.for_each_release(print, mode="key"), r"unknown order mode.*for_each_batch"),
        (lambda b: b.changelog(mode="row"), r"changelog: unknown order mode.*transaction, key"),
        (lambda b: b.parquet(mode="row"), r"parquet: unknown order mode.*transaction, key"),
        (lambda b: b.mirror(mode="transaction"), r"mirror: unknown order mode.*Use commit, or key"),
        (lambda b: b.mirror(mode="key", history="scd2"), r"history does not have.*without a hist"),
        (lambda b: b.mirror("/lake/mirror", mode="key"), r"must end in /mirror_by_key"),
        (lambda b: b.changelog("/lake/changelog", mode="transaction"), r"end in /transactions"),
        (lambda b: b.datastream_files("/lake/files"), r"must end in /datastream_files"),
        (lambda b: b.for_each_batch("print"), r"for_each_batch: not a function: str"),
        (lambda b: b.for_each_batch(print).for_each_batch(print), r"in use.*'batches'"),
        (lambda b: b.sink(print), r"sink: builtin_function_or_method is not a sink"),
        (lambda b: b.sink(Own("mine")).sink(Own("mine")), r"sink: .*in use.*'mine'"),
        (lambda b: b.output("/lake").mirror().catalog("lake/bank").start("/check"),
         r"catalog_schema: 'lake/bank': not the name of a schema"),
        (lambda b: b.trigger(processingTime="soon"), r"trigger: .*\"2 seconds\""),
        (lambda b: b.trigger(availableNow=True), r"trigger: .*--until caught-up"),
        (lambda b: b.trigger(processingTime="2 seconds", once=True), r"trigger: "),
        (lambda b: b.mirror().start("/check"), r"output: is not set"),
        (lambda b: b.output("/lake").start("/check"), r"the query has no output"),
        (lambda b: b.output("/lake").mirror().start(), r"checkpoint: is not set"),
        (lambda b: b.output("/lake").topic("x", topic_partitions=2).start("/check"),
         "a total order has one"),
        (lambda b: b.options(output="/lake", sinks="tape").start("/check"),
         r"sinks: 'tape': not one of"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_before_anything_is_created(started, build, text):
    with pytest.raises(ConfigError, match=text) as caught:
        build(new())
    assert caught.value.hint
    assert started.steps == []


@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (lambda b: b.mirror().trigger(processingTime="1 second"), {"trigger_interval_ms": 1_000}),
        (lambda b: b.mirror().trigger(processingTime="500 milliseconds"),
         {"trigger_interval_ms": 500}),
        (lambda b: b.mirror().trigger(processingTime="3 minutes"),
         {"trigger_interval_ms": 180_000}),
        (lambda b: b.iceberg(catalog="glue", namespace="raw.bank"),
         {"iceberg_catalog": "glue", "iceberg_namespace": "raw.bank"}),
        (lambda b: b.mirror().option("checkpoint", Path("/check")).catalog("lake.bank"),
         {"checkpoint": "/check", "catalog_schema": "lake.bank"}),
        (lambda b: b.datastream_files("/lake/datastream_files", format="jsonl.gz"),
         {"output": "/lake", "datastream_files_format": "jsonl.gz"}),
        (lambda b: b.parquet("/lake/parquet").topic("bank-ordered", order="key",
         topic_partitions=3), {"ordered_topic": "bank-ordered", "ordered_topic_order": "key",
         "ordered_topic_partitions": 3}),
    ],
)  # fmt: skip
def test_calls_become_settings_of_the_query(started, build, settings):
    build(new().output("/lake")).start("/check")
    assert {name: getattr(started.config, name) for name in settings} == settings


def test_sinks_and_functions_of_a_program_are_written_to_in_the_order_of_their_calls(started):
    building = new().output("/lake").sink(Own("mine")).for_each_batch(print)
    building = building.for_each_release(print).for_each_release(repr, name="second")
    building.start("/check")
    assert [sink.name for sink in started.sinks] == ["mine", "batches", "function", "second"]
    assert [isinstance(sink, BatchSink) for sink in started.sinks] == [False, True, False, False]
    assert started.config.sink_names == ()


def test_a_second_query_of_the_name_in_the_session_is_refused(started):
    building = stream(spark("other", "tidegate-bank"), **STREAM).output("/lake").mirror()
    with pytest.raises(ConfigError, match=r"a query of this name runs.*tidegate-bank"):
        building.start("/check")
    assert started.steps == ["session"]
    building.queryName("second").start("/check")


def test_steps_of_a_start_depend_on_what_the_program_asks_for(started, monkeypatch):
    new(take_over=True).output("/lake").mirror().start("/check")
    assert started.steps == ["session", "stream", "build"]
    started.steps.clear()
    # Log lines are formatted only where the program has no format.
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    new().output("/lake").mirror().start("/check")
    assert started.steps == ["session", "log", "stream", "turn", "build"]


def test_no_value_of_an_option_is_shown():
    building = new(
        registry_user_info="me:s3cret", kafka_options={"sasl.password": "s3cret"}
    ).changelog("/lake/changelog")
    assert "s3cret" not in repr(building)
    assert repr(building) == (
        "<StreamBuilder prefix='bank' output='/lake' outputs: changelog; options:"
        " bootstrap_servers, kafka_options, registry_url, registry_user_info>"
    )


# ---------------------------------------------------------------- own sinks
def test_what_is_no_sink_is_refused_with_what_it_lacks():
    is_sink = {"name": "a", "open": print, "write": print}
    for given, text in (
        (Own, r"Own is a class.*Own\(…\)"),
        (print, r"it lacks open, write, name"),
        (SimpleNamespace(name="a", open=print), r"SimpleNamespace is not a sink, it lacks write\."),
        (SimpleNamespace(**is_sink | {"name": 3}), r"it lacks name\."),
        (
            SimpleNamespace(**is_sink, merge=print, versions=print),
            r"has merge\(…\) and versions\(…\), as the mirrors have",
        ),
    ):
        with pytest.raises(ConfigError, match=text) as caught:
            named_sink(given)
        assert caught.value.hint
    mine = Own("mine")
    assert named_sink(mine) is mine


# ---------------------------------------------------------------- options
GIVEN = {
    "bootstrap_servers": "127.0.0.1:1",
    "registry_url": "http://127.0.0.1:1",
    "prefix": "bank",
    "output": "out",
    "checkpoint": "check",
}


def refused(name):
    with pytest.raises(ConfigError, match=f"option {name}: ") as caught:
        require_option(name)
    return str(caught.value)


def test_every_setting_is_an_option_or_is_refused_with_what_to_do():
    refusals = {}
    for name in ConsumerConfig.model_fields:
        if name in settings._WITHOUT_EFFECT:
            refusals[name] = refused(name)
        else:
            require_option(name)
    assert refusals.keys() == settings._WITHOUT_EFFECT.keys()
    assert "tidegate.session()" in refusals["packages"]
    assert "lastProgress" in refusals["metrics_port"]


def test_an_unknown_name_is_reported_with_the_one_that_was_meant():
    for name, text in (
        ("mirrorIntervalMs", "Did you mean mirror_interval_ms?"),
        ("bootstrap.servers", "Did you mean bootstrap_servers?"),
        ("colour", "docs/reference/settings.md"),
        ("kafka.sasl.mechanism", 'kafka_options={"sasl.mechanism": …}'),
    ):
        assert text in refused(name)


def test_every_wrong_value_is_reported_with_its_name_and_never_shown():
    with pytest.raises(ConfigError) as caught:
        load_settings(
            {**GIVEN, "mirror_interval_ms": "s3cret", "kafka_options": {"group.id": "s3cret"}}
        )
    text = str(caught.value)
    assert "mirror_interval_ms: " in text
    assert "kafka_options: group.id" in text
    assert "docs/reference/settings.md" in text
    assert "s3cret" not in text
    assert caught.value.__cause__ is None


def test_settings_of_the_environment_apply_unless_the_query_cannot_use_them(monkeypatch):
    monkeypatch.setenv("TIDEGATE_CONSUMER_RELEASES_KEPT", "7")
    monkeypatch.setenv("TIDEGATE_CONSUMER_UNTIL", "caught-up")
    monkeypatch.setenv("TIDEGATE_CONSUMER_METRICS_PORT", "9464")
    config = load_settings(GIVEN)
    assert (config.releases_kept, config.until, config.metrics_port) == (7, "", 0)
    assert load_settings({**GIVEN, "releases_kept": 8}).releases_kept == 8
    # Only warnings are logged unless more is asked for.
    assert config.log_level == "warning"
    assert load_settings({**GIVEN, "log_level": "info"}).log_level == "info"


# ---------------------------------------------------------------- sessions
@pytest.fixture
def calls(monkeypatch):
    """What was called, with which arguments."""
    found = []

    def note(name):
        return lambda *positional, **named: found.append((name, *positional, named)) or name

    monkeypatch.setattr(session_module, "require_spark", note("check"))
    monkeypatch.setattr(session_module, "require_session", note("session check"))
    monkeypatch.setattr(session_module, "require_iceberg", note("iceberg check"))
    monkeypatch.setattr(sessions, "local_session", note("local"))
    monkeypatch.setattr(sessions, "submitted_session", note("submitted"))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return found


def test_a_local_session_has_the_packages_and_is_checked_before_and_after(calls):
    assert session(iceberg=True) == "local"
    packages = f"{SPARK_PACKAGES},{ICEBERG_PACKAGES}"
    options = {"master": "local[*]", "packages": packages, "jars": ""}
    assert calls == [
        ("check", {"jars": ""}),
        ("local", {**options, "app_name": "tidegate", "settings": {}}),
        ("session check", "local", {}),
        ("iceberg check", "local", {}),
    ]
    calls.clear()
    settings = {"spark.driver.memory": "4g", "spark.ui.enabled": True, "spark.x": 8}
    session("bank", master="local[2]", jars="a.jar", **settings)
    texts = {"spark.driver.memory": "4g", "spark.ui.enabled": "true", "spark.x": "8"}
    options = {"master": "local[2]", "packages": SPARK_PACKAGES, "jars": "a.jar"}
    assert calls[1] == ("local", {**options, "app_name": "bank", "settings": texts})
    calls.clear()
    with pytest.raises(ConfigError, match=r"driver_memory: not a setting of Spark"):
        session(driver_memory="4g")
    assert calls == []


def test_under_spark_submit_the_submitters_master_and_packages_are_kept(calls, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session(**{"spark.sql.shuffle.partitions": 8}) == "submitted"
    assert calls[1] == (
        "submitted",
        {"app_name": "tidegate", "settings": {"spark.sql.shuffle.partitions": "8"}},
    )


# ---------------------------------------------------------------- an audit
@pytest.fixture
def audit_steps(monkeypatch):
    found, places = [], {"lake.bank": "file:/lake"}
    monkeypatch.setattr(audit_module, "require_session", lambda _: found.append("session"))
    monkeypatch.setattr(audit_module, "output_of", lambda _, place: places.get(place, place))
    monkeypatch.setattr(
        audit_module, "require_stream",
        lambda _: found.append("stream") or SimpleNamespace(schema="schema of an id"),
    )  # fmt: skip

    def compare(_spark, config, *, schema_of, step):
        step("Spark")
        found.append((config.output, config.checkpoint, config.kafka_options, schema_of))
        return "a report"

    monkeypatch.setattr(audit_module, "audit_stream", compare)
    return found


@pytest.mark.parametrize(
    ("output", "checkpoint", "expected"),
    [
        ("/lake", None, ("/lake", "/lake/_checkpoint")),
        ("s3a://lake/", None, ("s3a://lake/", "s3a://lake/_checkpoint")),
        (Path("/lake"), Path("/check"), ("/lake", "/check")),
        ("lake.bank", None, ("file:/lake", "file:/lake/_checkpoint")),
    ],
)
def test_the_session_is_checked_then_the_stream_then_they_are_compared(
    audit_steps, output, checkpoint, expected
):
    for options, text in (
        ({"colour": 1}, "option colour: unknown setting"),
        ({"kafka_options": {"group.id": "x"}}, "kafka_options: group.id"),
    ):
        with pytest.raises(ConfigError, match=text):
            audit(None, "/lake", **STREAM, **options)
    assert audit_steps == []
    assert audit(None, output, checkpoint=checkpoint, **STREAM) == "a report"
    assert audit_steps == ["session", "stream", (*expected, {}, "schema of an id")]
