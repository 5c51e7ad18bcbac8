"""Iceberg's tables: maintenance and changes by others, overtaken attempts, its Java API.

What its sinks have in common with all others is in test_contract.py, in part before each merge.
"""

from copy import copy
from dataclasses import replace

import pytest

from tests.any_schema.release import release_of
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import CommitOvertaken, ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.delta.as_of import as_of
from tidegate.spark_consumer.sinks.iceberg.catalog import JavaTable
from tidegate.spark_consumer.sinks.iceberg.mirror import IcebergMirrorSink
from tidegate.spark_consumer.sinks.iceberg.tables import IcebergTables
from tidegate.spark_consumer.sinks.kinds import changelog_sink, iceberg_changelog_sink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.port import Merge, TableVersion
from tidegate.spark_consumer.sinks.sql import session_settings
from tidegate.spark_consumer.sinks.tables import Commit, TableRows
from tidegate.spark_consumer.spark.query_session import QuerySession

pytestmark = [pytest.mark.spark, pytest.mark.deep]

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


def opened(kit, lake, *, make=IcebergMirrorSink, query_id="query-1", release_max=100):
    sink = make(kit.spark, lake.output, lake.place)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def rows(lake, version=None, table="t"):
    return sorted(lake.rows("mirror", table, version), key=lambda row: str(row["id"]))


def release(kit, number, topic, history, **options):
    """`history` is [(mod, key, new)] in commit order."""
    changes = [
        (topic, kit.Change(mod, key, new, us=number * 1_000 + n))
        for n, (mod, key, new) in enumerate(history)
    ]
    return kit.release(number, changes, topics=[topic], **options)


@pytest.fixture
def topic(kit):
    return kit.Topic("t", {1: COLUMNS}, ["id"])


@pytest.mark.rule("sink-iceberg-mirror")
@pytest.mark.parametrize("by", ["maintenance", "another run"])
def test_a_merge_that_another_commit_overtakes_is_repeated_or_left(
    kit, lake, topic, monkeypatch, by
):
    sink, other = opened(kit, lake), opened(kit, lake)
    sink.write(
        release(kit, 0, topic, [("INSERT", {"id": n}, {"a": "x", "b": n}) for n in range(3)])
    )
    second = release(kit, 1, topic, [("UPDATE", {"id": 1}, {"b": 9}), ("DELETE", {"id": 2}, None)])
    publish, is_inside = JavaTable.publish, []

    def overtaken(self, *known, **named):
        if not is_inside:
            is_inside.append(True)
            if by == "maintenance":
                lake.compact("mirror", "t")
            else:
                other.write(second)
        return publish(self, *known, **named)

    monkeypatch.setattr(JavaTable, "publish", overtaken)
    version = sink.write(second)["t"].version
    assert is_inside == [True]
    assert rows(lake) == rows(lake, version)
    assert rows(lake) == [{"id": 0, "a": "x", "b": 0}, {"id": 1, "a": "x", "b": 9}]


@pytest.mark.rule("sink-iceberg-mirror")
def test_maintenance_by_others_leaves_the_mirror_exact(kit, lake, topic):
    sink = opened(kit, lake)
    parts = [[("INSERT", {"id": 1}, {"a": "x", "b": 1})], [("UPDATE", {"id": 1}, {"b": 2})]]
    releases = [release(kit, n, topic, part) for n, part in enumerate(parts)]
    for one in releases:
        sink.write(one)
    lake.compact("mirror", "t")
    lake.expire("mirror", "t")
    restarted = opened(kit, lake)
    restarted.write(releases[1])
    restarted.write(release(kit, 2, topic, [("UPDATE", {"id": 1}, {"a": "z"})]))
    assert rows(lake) == [{"id": 1, "a": "z", "b": 2}]


def test_a_programs_settings_do_not_reach_the_merge(kit, lake, topic):
    """Iceberg's MERGE refuses LEGACY, and pyspark the 0 with which Spark itself has no limit."""
    settings = {
        "spark.sql.storeAssignmentPolicy": "LEGACY",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "0",
    }
    with session_settings(kit.spark, settings):
        own = QuerySession(kit.spark).spark
    sink = IcebergMirrorSink(own, lake.output, lake.place)
    sink.open(query_id="query-1", release_max=100)
    history = (("INSERT", {"a": "x", "b": 1}), ("UPDATE", {"b": 2}))
    for number, (mod, new) in enumerate(history):
        change = kit.Change(mod, {"id": 1}, new, us=number * 1_000)
        one, schemas = topic.row(change, ordinal=0), {topic.topic: topic.topic_schemas()}
        sink.write(release_of(own, [one], schemas, number=number, small=number == 1))
    assert rows(lake) == [{"id": 1, "a": "x", "b": 2}]


@pytest.mark.rule("sink-iceberg-mirror")
def test_a_mirror_that_joins_takes_all_releases_from_the_delta_changelog(kit, lake, topic):
    changelog = changelog_sink(kit.spark, kit.output)
    changelog.open(query_id="query-1", release_max=-1)
    parts = [
        [("INSERT", {"id": n}, {"a": "x", "b": n}) for n in range(3)],
        [("UPDATE", {"id": 1}, {"b": 9}), ("DELETE", {"id": 2}, None)],
        [("UPDATE", {"id": 1}, {"a": None}), ("UPDATE", {"id": 8}, {"b": 1})],
    ]
    for number, part in enumerate(parts):
        changelog.write(release(kit, number, topic, part))
    sink = opened(kit, lake, release_max=-1)
    tables = {topic.topic: topic.topic_schemas()}
    for after in (-1, 1):
        merged = sink.merge(Merge("query-1", 5, after, 2, 3_000_000, tables))
        assert rows(lake, merged["t"].version) == [
            {"id": 0, "a": "x", "b": 0},
            {"id": 1, "a": None, "b": 9},
        ]
    assert [(row["release"], row["ordinal"]) for row in lake.rows("incomplete", "t")] == [(2, 1)]


@pytest.mark.rule("sink-iceberg-mirror")
def test_as_of_reads_the_mirror_at_a_release(kit, lake, topic):
    sink = opened(kit, lake)
    for number, balance in enumerate((5, 6, 7)):
        mod = "UPDATE" if number else "INSERT"
        part = release(kit, number, topic, [(mod, {"id": 1}, {"a": "x", "b": balance})])
        tables = {name: {sink.name: version} for name, version in sink.write(part).items()}
        bounds = (part.after_us, part.through_us)
        write_manifest(kit, Manifest(number, "query-1", number, *bounds, 1, tables))
    for time_us, balance in ((1_000_000, 5), (2_500_000, 6), (9_000_000, 7)):
        found = as_of(kit.spark, kit.output, time_us, sink="iceberg_mirror")
        assert [row["b"] for row in found.table("t").collect()] == [balance]
    assert as_of(kit.spark, kit.output, 9_000_000) == {}
    with pytest.raises(ConfigError, match=r"changelog.*mirror or iceberg_mirror|mirror or"):
        as_of(kit.spark, kit.output, 9_000_000, sink="changelog")


# ---------------------------------------------------------------- the changelog


def insert(kit, number):
    return kit.Change("INSERT", {"id": number}, {"a": f"a{number}", "b": 1})


def places(lake, version=None):
    found = lake.rows("changelog", "t", version)
    return sorted((row["release"], row["ordinal"]) for row in found)


@pytest.mark.rule("sink-iceberg-changelog")
@pytest.mark.parametrize("moment", ["staged", "publish"])
def test_of_two_runs_that_write_one_release_one_publishes_it(kit, lake, topic, monkeypatch, moment):
    first, second = (
        opened(kit, lake, make=iceberg_changelog_sink),
        opened(kit, lake, make=iceberg_changelog_sink),
    )
    first.write(kit.release(0, [(topic, insert(kit, 0))]))
    release = kit.release(1, [(topic, insert(kit, n)) for n in range(3)])
    real, is_inside = getattr(JavaTable, moment), []

    def overtaken(self, *known, **named):
        """The other run writes all of it at this moment of the first one."""
        if not is_inside:
            is_inside.append(True)
            second.write(release)
        return real(self, *known, **named)

    monkeypatch.setattr(JavaTable, moment, overtaken)
    version = first.write(release)["t"].version
    assert is_inside == [True]
    assert places(lake) == places(lake, version) == [(0, 0), (1, 0), (1, 1), (1, 2)]


def test_a_release_whose_staged_rows_maintenance_has_removed_is_staged_again(
    kit, lake, topic, monkeypatch
):
    sink = opened(kit, lake, make=iceberg_changelog_sink)
    sink.write(kit.release(0, [(topic, insert(kit, 0))]))
    staged, is_expired = JavaTable.staged, []

    def expire_first(self, marker):
        if not is_expired:
            is_expired.append(True)
            lake.expire("changelog", "t")
        return staged(self, marker)

    monkeypatch.setattr(JavaTable, "staged", expire_first)
    sink.write(kit.release(1, [(topic, insert(kit, n)) for n in range(3)]))
    assert is_expired == [True]
    assert places(lake) == [(0, 0), (1, 0), (1, 1), (1, 2)]


@pytest.mark.rule("sink-iceberg-changelog")
def test_maintenance_by_others_neither_repeats_a_release_nor_ends_the_query(kit, lake, topic):
    releases = [kit.release(n, [(topic, insert(kit, n))]) for n in range(4)]
    sink = opened(kit, lake, make=iceberg_changelog_sink)
    for release in releases[:2]:
        sink.write(release)
    lake.compact("changelog", "t")
    lake.expire("changelog", "t")
    assert lake.java("changelog", "t").current().release is None
    restarted = opened(kit, lake, make=iceberg_changelog_sink)
    for release in releases[:3]:
        restarted.write(release)
    assert places(lake) == [(0, 0), (1, 0), (2, 0)]
    lake.compact("changelog", "t")
    restarted.write(releases[3])
    assert places(lake) == [(0, 0), (1, 0), (2, 0), (3, 0)]


# ---------------------------------------------------------------- tables of others


def commit(release):
    return Commit("query-1", "iceberg_test", release, 10 * release + 10)


class Writer:
    """Writes one number in each release to the table `t`."""

    def __init__(self, kit, lake):
        self.spark = kit.spark
        self.tables = IcebergTables(lake.output, lake.place, kind="test", sink="iceberg_test")
        self.name = lake.place.identifier("test", "t")

    def open(self, release_max=100):
        self.tables.open(self.spark, query_id="query-1", release_max=release_max)
        return self

    def frame(self, number):
        return self.spark.createDataFrame([(number,)], "n bigint")

    def write(self, release):
        self.tables.prepare(self.spark, "t", schema=self.frame(0).schema, commit=commit(release))
        with self.tables.staging(self.spark, commit=commit(release)):
            rows = TableRows(
                topic="t",
                table="t",
                spark=self.spark,
                schema=lambda: self.frame(0).schema,
                frame=lambda: self.frame(release),
                sources={"t": 1},
            )
            return self.tables.append(rows, commit=commit(release))


@pytest.fixture
def writer(kit, lake):
    return Writer(kit, lake)


def numbers(lake):
    return sorted(row["n"] for row in lake.rows("test", "t"))


def test_what_is_written_says_so_and_the_session_is_as_before(writer, lake):
    before = {row["key"]: row["value"] for row in writer.spark.sql("SET").collect()}
    writer.open()
    assert [writer.write(release) for release in (0, 1, 1)] == [True, True, False]
    # Before the test itself reads the table, for which Iceberg sets a catalog of its own.
    after = {row["key"]: row["value"] for row in writer.spark.sql("SET").collect()}
    assert numbers(lake) == [0, 1]
    new = {name for name in after if name not in before}
    assert [name for name in new if not name.startswith("spark.sql.catalog.tidegate_")] == []
    assert {name: after[name] for name in before} == before
    summary = lake.java("test", "t")._table.currentSnapshot().summary()
    assert summary.get("tidegate-release") == "1"


def test_a_table_that_somebody_else_made_is_refused(kit, writer, lake):
    lake.place.register(writer.spark)
    writer.frame(7).writeTo(writer.name).create()
    with pytest.raises(ConfigError, match="another writer"):
        writer.open()
    assert numbers(lake) == [7]
    # Another namespace, or the table dropped.
    other = copy(lake)
    other.place = replace(lake.place, namespace=f"{lake.place.namespace}_other")
    Writer(kit, other).open(release_max=-1).write(0)
    assert [row["n"] for row in kit.spark.table(other.place.identifier("test", "t")).collect()] == [
        0
    ]
    assert numbers(lake) == [7]
    writer.spark.sql(f"DROP TABLE {writer.name}")
    writer.open(release_max=-1).write(0)
    assert numbers(lake) == [0]
    # A table ahead of its checkpoint goes on with the restored one.
    writer.write(1)
    with pytest.raises(ConfigError, match="later release"):
        writer.open(release_max=0)
    writer.open(release_max=1).write(2)
    assert numbers(lake) == [0, 1, 2]


def test_rows_by_others_are_refused_by_the_next_write_and_the_next_run(kit, writer, lake):
    writer.open().write(0)
    own = lake.java("test", "t").current().number
    named = {"t": {"iceberg_test": TableVersion("iceberg/bank_test/t", own)}}
    write_manifest(kit, Manifest(0, "query-1", 0, 0, 10, 1, named))
    writer.frame(7).writeTo(writer.name).append()
    with pytest.raises(ForeignChange, match="operation='append'"):
        writer.write(1)
    with pytest.raises(ForeignChange, match="bank_test") as caught:
        Writer.open(writer)
    assert numbers(lake) == [0, 7]
    assert "set_current_snapshot" in caught.value.hint
    lake.java("test", "t")._table.manageSnapshots().setCurrentSnapshot(own).commit()
    Writer.open(writer).write(1)
    assert numbers(lake) == [0, 1]


def test_a_table_that_was_rolled_back_is_refused(writer, lake):
    writer.open().write(0)
    first = lake.java("test", "t").current().number
    writer.write(1)
    newest = lake.java("test", "t").current().number
    lake.java("test", "t")._table.manageSnapshots().rollbackTo(first).commit()
    with pytest.raises(ForeignChange, match="rollback"):
        writer.open()
    lake.java("test", "t")._table.manageSnapshots().setCurrentSnapshot(newest).commit()
    Writer.open(writer).write(2)
    assert numbers(lake) == [0, 1, 2]


def test_a_table_that_a_manifest_names_and_that_is_gone_is_missing(kit, writer, lake):
    writer.open().write(0)
    version = lake.java("test", "t").current().number
    named = {"t": {"iceberg_test": TableVersion("iceberg/bank_test/t", version)}}
    write_manifest(kit, Manifest(0, "query-1", 0, 0, 10, 1, named))
    writer.open()
    writer.spark.sql(f"DROP TABLE {writer.name}")
    with pytest.raises(TableMissing, match="release=0"):
        writer.open()
    with pytest.raises(TableMissing):
        Writer(writer, lake).open()


def test_a_table_without_a_snapshot_after_a_kill_gets_one(writer, lake, monkeypatch):
    writer.open()
    with monkeypatch.context() as patch:
        patch.setattr(JavaTable, "publish", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            writer.write(0)
    assert lake.java("test", "t").current() is None
    writer.open().write(0)
    assert numbers(lake) == [0]


def test_a_table_that_others_have_set_to_publish_at_once_is_set_back(writer, lake):
    writer.open().write(0)
    lake.java("test", "t").set_properties({"write.wap.enabled": "false"})
    writer.write(1)
    assert numbers(lake) == [0, 1]


def test_a_write_that_is_overtaken_each_time_ends_with_an_error_by_name(writer, lake, monkeypatch):
    writer.open().write(0)
    with monkeypatch.context() as patch:
        patch.setattr(JavaTable, "publish", lambda *_, **__: False)
        with pytest.raises(CommitOvertaken) as caught:
            writer.write(1)
    assert caught.value.retriable
    assert numbers(lake) == [0]
    writer.write(1)
    assert numbers(lake) == [0, 1]


def test_a_staged_snapshot_is_published_once_with_properties(kit, lake):
    def stage(marker, number):
        kit.spark.conf.set("spark.wap.id", marker)
        try:
            kit.spark.createDataFrame([(number,)], "n bigint").writeTo(name).append()
        finally:
            kit.spark.conf.unset("spark.wap.id")

    def numbers():
        return sorted(row["n"] for row in lake.rows("test", "t"))

    lake.place.register(kit.spark)
    name = lake.place.identifier("test", "t")
    first = kit.spark.createDataFrame([(1,)], "n bigint")
    first.writeTo(name).tableProperty("write.wap.enabled", "true").create()
    table = lake.java("test", "t")

    stage("a", 2)
    staged = table.staged("a")
    assert (numbers(), table.staged("b")) == ([1], None)
    assert table.publish(staged, {"k": "v"}, marker="a")
    assert numbers() == [1, 2]
    assert table.load()
    assert (table.current().number, table.current().marker) == (staged, "a")
    # Neither the same snapshot nor another one of its name is published, nor are its properties.
    assert not table.publish(staged, {"k": "w"}, marker="a")
    stage("a", 2)
    assert not table.publish(table.staged("a"), {"k": "w"}, marker="a")
    assert numbers() == [1, 2]
    assert table.load()
    assert table.properties()["k"] == "v"
