"""Tables whose commits have the numbers of batches: what is refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import ForeignChange, TableMissing
from tidegate.spark_consumer.sinks.delta.adoption import adopt_changes
from tidegate.spark_consumer.sinks.delta.changelog_by_key import DeltaChangelogByKeySink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

pytestmark = pytest.mark.spark


def opened(kit, **known):
    sink = DeltaChangelogByKeySink(kit.spark, kit.output)
    sink.open(**({"query_id": "query-1", "release_max": 7} | known))
    return sink


@pytest.fixture
def topic(kit):
    return kit.Topic("t", {1: {"id": "INT64"}}, ["id"])


@pytest.fixture
def sink(kit, topic):
    one = opened(kit)
    one.take(kit.handed(7, [(topic, kit.Change("INSERT", {"id": 1}, {}))]))
    return one


def test_tables_of_another_query_or_of_later_batches_are_refused(kit, sink, topic):
    opened(kit)
    with pytest.raises(ConfigError, match=r"later batch.*batch_in_table=7, batch_in_checkpoint=6"):
        opened(kit, release_max=6)
    with pytest.raises(ConfigError, match="another writer"):
        opened(kit, query_id="query-2")
    # With the checkpoint of the batch the same output goes on, and an empty one begins.
    for output, batch, ids in ((kit.output, 8, [1, 2]), (f"{kit.output}-new", 0, [2])):
        sink = DeltaChangelogByKeySink(kit.spark, output)
        sink.open(query_id="query-1", release_max=batch - 1)
        sink.take(kit.handed(batch, [(topic, kit.Change("INSERT", {"id": 2}, {}, us=9))]))
        rows = kit.spark.read.format("delta").load(f"{output}/{sink.name}/t").collect()
        assert sorted(row["key"]["id"] for row in rows) == ids


def test_a_table_that_was_deleted_is_missed(kit, sink, topic):
    versions = sink.write(kit.release(7, [], topics=[topic]))
    tables = {table: {sink.name: version} for table, version in versions.items()}
    files = Storage(kit.spark, kit.output)
    files.take()
    write_manifest(files, Manifest(
        release=0, query_id="query-1", batch=7, after_us=0, through_us=9, rows=1, tables=tables,
    ))  # fmt: skip
    opened(kit)
    Path(kit.output, sink.name).rename(Path(kit.output, "gone"))
    with pytest.raises(TableMissing):
        opened(kit)


def test_rows_that_others_deleted_are_adopted_like_those_of_a_release(kit, sink):
    kit.spark.sql(f"DELETE FROM delta.`{kit.output}/{sink.name}/t`")
    with pytest.raises(ForeignChange, match="adopt"):
        opened(kit)
    known = {"query_id": "query-1", "release_max": 0}
    with pytest.raises(ConfigError, match="later release"):
        adopt_changes(kit.spark, kit.output, **known, batch_max=6)
    (adopted,) = adopt_changes(kit.spark, kit.output, **known, batch_max=7)
    assert adopted.table == f"{sink.name}/t"
    opened(kit)
