"""What the builder accepts, and what it hands to the query; no Spark is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.library import builder
from tidegate.spark_consumer.library.builder import stream
from tidegate.spark_consumer.sinks.handed_batch import BatchSink

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
        ("log_to_stderr", "log"),
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


def test_without_a_name_the_query_is_named_after_the_prefix(started):
    new().output("/lake").mirror().start("/check")
    assert started.query_name == "tidegate-bank"


@pytest.mark.parametrize(
    ("build", "output", "sinks"),
    [
        (lambda b: b.changelog("/lake/changelog"), "/lake", ("changelog",)),
        (lambda b: b.mirror("/lake/mirror/"), "/lake", ("mirror",)),
        (lambda b: b.mirror("s3a://lake/bank/mirror"), "s3a://lake/bank", ("mirror",)),
        (lambda b: b.changelog(Path("/lake/changelog")), "/lake", ("changelog",)),
        (lambda b: b.changelog("/changelog"), "/", ("changelog",)),
        (lambda b: b.changelog("changelog"), ".", ("changelog",)),
        (lambda b: b.output("/lake/").changelog().mirror(), "/lake", ("changelog", "mirror")),
        (lambda b: b.output("/lake").changelog("/lake/changelog"), "/lake", ("changelog",)),
        (lambda b: b.changelog().output("/lake"), "/lake", ("changelog",)),
        (lambda b: b.options(output="/lake", sinks="mirror, changelog"), "/lake",
         ("changelog", "mirror")),
        (lambda b: b.output("/lake").for_each_release(print), "/lake", ()),
        (lambda b: b.output("/lake").iceberg(), "/lake", ("iceberg_changelog", "iceberg_mirror")),
        (lambda b: b.output("/lake").iceberg(changelog=False), "/lake", ("iceberg_mirror",)),
    ],
)  # fmt: skip
def test_one_folder_holds_all(started, build, output, sinks):
    build(new()).start("/check")
    assert (started.config.output, started.config.sink_names) == (output, sinks)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda b: b.changelog("/lake/changes"), r"changelog: the path must end in /changelog"),
        (lambda b: b.mirror("/lake/changelog"), r"mirror: the path must end in /mirror"),
        (lambda b: b.mirror("/lake/other", history="scd2"), r"must end in /history"),
        (lambda b: b.mirror(history="scd1"), r'unknown kind of history.*history="scd2"'),
        (lambda b: b.changelog("/lake/changelog").mirror("/pond/mirror"), r"one output.*/pond"),
        (lambda b: b.changelog("/lake/changelog").output("/pond"), r"one output.*/pond"),
        (lambda b: b.iceberg(changelog=False, mirror=False), r"iceberg: no table is asked for"),
        (lambda b: b.option("colour", 1), r"option colour: unknown setting"),
        (lambda b: b.option("output", None), r"option output: there is no value"),
        (lambda b: b.options(jars="a.jar"), r"option jars: it has no effect"),
        (lambda b: b.for_each_release("print"), r"not a function: str"),
        (lambda b: b.for_each_release(print, name=""), r"name is empty or in use"),
        (lambda b: b.for_each_release(print, name="mirror"), r"empty or in use.*'mirror'"),
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
        (lambda b: b.for_each_batch("print"), r"for_each_batch: not a function: str"),
        (lambda b: b.for_each_batch(print).for_each_batch(print), r"in use.*'batches'"),
        (lambda b: b.for_each_batch(print, name="topic"), r"empty or in use.*'topic'"),
        (lambda b: b.sink(print), r"sink: builtin_function_or_method is not a sink"),
        (lambda b: b.sink(Own("transactions")), r"sink: .*in use.*'transactions'"),
        (lambda b: b.sink(Own("mine")).sink(Own("mine")), r"sink: .*in use.*'mine'"),
        (lambda b: b.output("/lake").mirror().catalog("lake/bank").start("/check"),
         r"catalog_schema: 'lake/bank': not the name of a schema"),
        (lambda b: b.catalog(None), r"option catalog_schema: there is no value"),
        (lambda b: b.trigger(processingTime="soon"), r"trigger: .*\"2 seconds\""),
        (lambda b: b.trigger(availableNow=True), r"trigger: .*--until caught-up"),
        (lambda b: b.trigger(processingTime="2 seconds", once=True), r"trigger: "),
        (lambda b: b.mirror().start("/check"), r"output: is not set"),
        (lambda b: b.for_each_release(print).start("/check"), r"output: is not set"),
        (lambda b: b.output("/lake").start("/check"), r"the query has no output"),
        (lambda b: b.output("/lake").mirror().start(), r"checkpoint: is not set"),
        (lambda b: b.output("/lake").mirror().option("releases_kept", -1).start("/check"),
         r"releases_kept: "),
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
    ("text", "ms"),
    [("2 seconds", 2_000), ("1 second", 1_000), ("500 milliseconds", 500), ("3 minutes", 180_000)],
)
def test_intervals_are_those_of_spark(started, text, ms):
    new().output("/lake").mirror().trigger(processingTime=text).start("/check")
    assert started.config.trigger_interval_ms == ms


def test_iceberg_tables_are_in_a_catalog_and_a_namespace(started):
    new().output("/lake").iceberg(catalog="glue", namespace="raw.bank").start("/check")
    assert (started.config.iceberg_catalog, started.config.iceberg_namespace) == (
        "glue",
        "raw.bank",
    )


@pytest.mark.parametrize("path", ["/lake/history", "/lake/mirror"])
def test_a_history_is_a_sink_of_its_own(started, path):
    new().mirror("/lake/mirror").mirror(path, history="scd2").start("/check")
    assert started.config.sink_names == ("mirror", "history")


def test_several_functions_are_written_to_in_order(started):
    building = new().output("/lake").mirror().for_each_release(print)
    building.for_each_release(repr, name="second", mode="transaction").start("/check")
    assert [sink.name for sink in started.sinks] == ["function", "second"]


def test_the_checkpoint_may_be_an_option(started):
    new(checkpoint=Path("/check")).output("/lake").mirror().start()
    assert started.config.checkpoint == "/check"


def test_a_second_query_of_the_name_in_the_session_is_refused(started):
    building = stream(spark("other", "tidegate-bank"), **STREAM).output("/lake").mirror()
    with pytest.raises(ConfigError, match=r"a query of this name runs.*tidegate-bank"):
        building.start("/check")
    assert started.steps == ["session"]
    building.queryName("second").start("/check")


def test_a_checkpoint_is_taken_over_only_where_that_is_asked_for(started):
    new(take_over=True).output("/lake").mirror().start("/check")
    assert started.steps == ["session", "stream", "build"]


def test_log_lines_are_formatted_only_where_the_program_has_no_format(started, monkeypatch):
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


def test_files_as_datastream_writes_them_have_a_form(started):
    new().datastream_files("/lake/datastream_files", format="jsonl.gz").start("/check")
    assert started.config.sink_names == ("datastream_files",)
    assert (started.config.output, started.config.datastream_files_format) == ("/lake", "jsonl.gz")
    with pytest.raises(ConfigError, match=r"must end in /datastream_files"):
        new().datastream_files("/lake/files")
    with pytest.raises(ConfigError, match="datastream_files_format"):
        new().output("/lake").datastream_files(format="parquet").start("/check")


def test_further_sinks_are_settings_of_the_query(started):
    query = (
        new()
        .parquet("/lake/parquet")
        .topic("bank-ordered", order="key", topic_partitions=3)
        .start(checkpoint="/lake/_checkpoint")
    )
    assert query.config.sink_names == ("parquet", "topic")
    found = query.config
    assert (found.output, found.ordered_topic) == ("/lake", "bank-ordered")
    assert (found.ordered_topic_order, found.ordered_topic_partitions) == ("key", 3)
    with pytest.raises(ConfigError, match="a total order has one"):
        new().output("/lake").topic("bank-ordered", topic_partitions=2).start(checkpoint="/check")
    with pytest.raises(ConfigError, match="empty or in use"):
        new().for_each_release(print, name="topic")


def test_transactions_are_sinks_of_their_own_beside_the_changes(started):
    building = (
        new().changelog("/lake/changelog").changelog("/lake/transactions", mode="transaction")
    )
    building.parquet(mode="transaction").start("/check")
    assert started.config.output == "/lake"
    assert started.config.sink_names == ("changelog", "transactions", "parquet_transactions")


def test_sinks_by_key_are_sinks_of_their_own_beside_those_that_wait(started):
    building = new().changelog("/lake/changelog").mirror("/lake/mirror_by_key", mode="key")
    building.changelog(mode="key").parquet(mode="key").start("/check")
    by_key = ("changelog_by_key", "mirror_by_key", "parquet_by_key")
    assert started.config.sink_names == ("changelog", *by_key)


def test_sinks_and_functions_of_a_program_are_written_to_in_the_order_of_their_calls(started):
    building = new().output("/lake").sink(Own("mine")).for_each_batch(print)
    building.for_each_release(print).start("/check")
    assert [sink.name for sink in started.sinks] == ["mine", "batches", "function"]
    assert [isinstance(sink, BatchSink) for sink in started.sinks] == [False, True, False]
    assert started.config.sink_names == ()


def test_tables_may_have_names_in_the_catalog(started):
    new().output("/lake").mirror().catalog("lake.bank").start("/check")
    assert started.config.catalog_schema == "lake.bank"
