"""What the sinks that merge have in common, by a sink that does nothing else."""

from __future__ import annotations

import pytest

from tidegate.spark_consumer.sinks.delta.direct_way import find_direct_way
from tidegate.spark_consumer.sinks.delta.merging import DeltaMergingSink, key_names, key_struct
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_schema

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "k": "STRING(MAX)", "a": "INT64"}


class Noting(DeltaMergingSink):
    """Notes which tables it would merge in which way."""

    name = "noting"
    incomplete = "noting_incomplete"

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.merged = []

    def _schema(self, one):
        return mirror_schema(one)

    def _merge_directly(self, opened, *, commit):
        self.merged.append(("direct", sorted(opened), commit.release))

    def _merge_by_spark(self, tables, *, commit):
        with self._merging(self._spark, files=self._files(tables), commit=commit):
            name = self._spark.conf.get("spark.databricks.delta.write.txnVersion")
        self.merged.append(("spark", sorted(tables), int(name)))


@pytest.mark.parametrize("is_direct", [False, True], ids=["spark", "delta-rs"])
def test_each_table_with_changes_goes_one_way(kit, is_direct):
    one, other, quiet = (kit.Topic(name, {1: COLUMNS}, ["k", "id"]) for name in ("t", "u", "v"))
    direct = find_direct_way(kit.output, rows_max=100) if is_direct else None
    sink = Noting(kit.spark, kit.output, direct=direct)
    sink.open(query_id="query-1", release_max=5)
    key = {"id": 1, "k": "x"}
    changes = [(topic, kit.Change("INSERT", key, {"a": 1}, us=1)) for topic in (one, other)]
    versions = sink.write(kit.release(3, changes, topics=[quiet], small=True))
    ways = [("direct", ["bank.t", "bank.u"] if is_direct else [], 3)]
    if not is_direct:
        ways.append(("spark", ["bank.t", "bank.u"], 3))
    assert sink.merged == ways
    assert sorted(version.path for version in versions.values()) == [
        "noting/t",
        "noting/u",
        "noting/v",
    ]
    assert sink.versions(3, [quiet.topic_schemas()]) == {"v": versions["v"]}
    assert sink.versions(2, [quiet.topic_schemas()]) == {}
    assert sink.incomplete_changes == 0


def test_a_tables_key_is_that_of_a_decoded_change(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["k", "id"])
    keys = key_names(topic.topic_schemas())
    assert keys == ["k", "id"]
    change = kit.Change("INSERT", {"id": 1, "k": "x"}, {"a": 1})
    frame = kit.release(0, [(topic, change)]).tables["bank.t"].frame
    table = frame.select("new_values.*").select(key_struct(keys))
    assert table.schema["key"].dataType.simpleString() == "struct<k:string,id:bigint>"
    assert [row["key"] for row in table.collect()] == [row["key"] for row in frame.collect()]
