"""Iceberg tables of an output, as any reader sees them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.iceberg.java_table import JavaCatalog
from tidegate.spark_consumer.sinks.iceberg.place import IcebergPlace


@pytest.fixture
def lake(kit):
    """Names that tests need: place, rows(...), table(...), expire(...), compact(...)."""
    loads = kit.spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable
    if not loads("org.apache.iceberg.spark.SparkCatalog"):
        pytest.skip("Iceberg's jar is not fetched: ./dev setup")
    output = Storage(kit.spark, kit.output).root
    place = IcebergPlace.of(output, prefix="bank")

    def rows(kind, table, version=None):
        """Rows of a table as dictionaries, read by its path and without a catalog."""
        reader = kit.spark.read.format("iceberg")
        reader = reader if version is None else reader.option("snapshot-id", version)
        frame = reader.load(f"{output}/{place.path(kind, table)}")
        return [row.asDict(recursive=True) for row in frame.collect()]

    def java(kind, table):
        found = JavaCatalog(kit.spark, place, kind).table(table)
        assert found.load()
        return found

    def expire(kind, table):
        """Remove every snapshot but the newest, as `expire_snapshots` with `retain_last => 1`."""
        found = java(kind, table)._table
        now = found.currentSnapshot().timestampMillis() + 1_000
        found.expireSnapshots().expireOlderThan(now).retainLast(1).commit()

    def compact(kind, table):
        """Write all files again, as `rewrite_data_files`."""
        found = java(kind, table)._table
        actions = kit.spark._jvm.org.apache.iceberg.spark.actions.SparkActions
        rewrite = actions.get(kit.spark._jsparkSession).rewriteDataFiles(found)
        rewrite.option("rewrite-all", "true").execute()

    def write_json(name, content):
        path = Path(kit.output, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))

    return SimpleNamespace(
        place=place,
        output=output,
        rows=rows,
        java=java,
        expire=expire,
        compact=compact,
        manifests=SimpleNamespace(write_json=write_json),
    )
