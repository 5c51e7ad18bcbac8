"""Releases of hand-made topics, and what the tables hold after them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import deltalake
import pytest

from tests.any_schema.release import release_of
from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.spark_consumer.batch.releases import handed_batch
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace, JavaCatalog


class Kit:
    """Names that tests need: Topic, Change, release(...), handed(...), read(...), output."""

    Topic, Change = Topic, Change

    def __init__(self, spark, folder):
        self.spark, self.output = spark, str(folder / "out")

    @staticmethod
    def instant(us):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)

    def release(self, number, changes, *, topics=(), small=False, **options):
        """`changes` is [(topic, change)] in any order; they are numbered in commit order.

        `alter` changes the rows before they are decoded; a `small` release is decoded in memory.
        """
        ordered = sorted(changes, key=lambda pair: pair[1].order_key)
        rows = [topic.row(change, ordinal=n) for n, (topic, change) in enumerate(ordered)]
        schemas = self._schemas(topics, changes)
        return release_of(self.spark, rows, schemas, number=number, small=small, **options)

    def handed(self, number, changes, *, topics=(), query_id="query-1", through_us=5):
        """A batch before its release; `changes` is [(topic, change)] in Kafka's order."""
        rows = [topic.row(change, ordinal=None) for topic, change in changes]
        frame = self.spark.createDataFrame(rows, ROWS_SCHEMA).drop("ordinal").repartition(2)
        plan = SimpleNamespace(batch=number, query_id=query_id, through_us=through_us)
        return handed_batch(frame, plan=plan, topics=self._schemas(topics, changes))

    def read(self, path, version=None):
        """Rows of a Delta table, read by delta-rs and not by Spark."""
        return deltalake.DeltaTable(f"{self.output}/{path}", version=version).to_pyarrow_table()

    def write_json(self, name, content):
        path = Path(self.output, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    @staticmethod
    def _schemas(topics, changes):
        known = [*topics, *(topic for topic, _ in changes)]
        return {topic.topic: topic.topic_schemas() for topic in known}


class Lake:
    """Iceberg tables of an output, as any reader sees them."""

    def __init__(self, kit):
        self.kit = kit
        self.output = Storage(kit.spark, kit.output).root
        self.place = IcebergPlace.of(self.output, prefix="bank")

    def rows(self, kind, table, version=None):
        """Rows of a table as dictionaries, read by its path and without a catalog."""
        reader = self.kit.spark.read.format("iceberg")
        reader = reader if version is None else reader.option("versionAsOf", version)
        frame = reader.load(f"{self.output}/{self.place.path(kind, table)}")
        return [row.asDict(recursive=True) for row in frame.collect()]

    def java(self, kind, table):
        found = JavaCatalog(self.kit.spark, self.place, kind).table(table)
        assert found.load()
        return found

    def expire(self, kind, table):
        """Remove every snapshot but the newest, as `expire_snapshots` with `retain_last => 1`."""
        found = self.java(kind, table)._table
        now = found.currentSnapshot().timestampMillis() + 1_000
        found.expireSnapshots().expireOlderThan(now).retainLast(1).commit()

    def compact(self, kind, table):
        """Write all files again, as `rewrite_data_files`."""
        spark, found = self.kit.spark, self.java(kind, table)._table
        actions = spark._jvm.org.apache.iceberg.spark.actions.SparkActions
        rewrite = actions.get(spark._jsparkSession).rewriteDataFiles(found)
        rewrite.option("rewrite-all", "true").execute()


def require_iceberg(spark):
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable
    if not loads("org.apache.iceberg.spark.SparkCatalog"):
        pytest.skip("Iceberg's jar is not fetched: ./dev setup")


@pytest.fixture
def kit(spark, tmp_path):
    """Releases for the sinks of an output of this test."""
    return Kit(spark, tmp_path)


@pytest.fixture
def lake(kit):
    """The Iceberg tables of the output of this test."""
    require_iceberg(kit.spark)
    return Lake(kit)
