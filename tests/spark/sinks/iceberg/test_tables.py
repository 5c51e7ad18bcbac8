"""Tables of others, changes by others, and attempts that are overtaken."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import CommitOvertaken, ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.iceberg.java_table import JavaTable
from tidegate.spark_consumer.sinks.iceberg.tables import IcebergTables
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.port import TableVersion

pytestmark = pytest.mark.spark


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
            return self.tables.write(
                self.spark,
                "t",
                lambda: self.tables.stage_rows(self.frame(release), "t", commit=commit(release)),
                commit=commit(release),
            )


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


def test_rows_by_others_are_refused_by_the_next_write_and_the_next_run(writer, lake):
    writer.open().write(0)
    own = lake.java("test", "t").current().number
    named = {"t": {"iceberg_test": TableVersion("iceberg/bank_test/t", own)}}
    write_manifest(lake.manifests, Manifest(0, "query-1", 0, 0, 10, 1, named))
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


def test_a_table_that_a_manifest_names_and_that_is_gone_is_missing(writer, lake):
    writer.open().write(0)
    version = lake.java("test", "t").current().number
    named = {"t": {"iceberg_test": TableVersion("iceberg/bank_test/t", version)}}
    write_manifest(lake.manifests, Manifest(0, "query-1", 0, 0, 10, 1, named))
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


@pytest.mark.slow
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
