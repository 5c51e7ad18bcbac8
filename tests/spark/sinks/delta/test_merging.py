"""What the sinks that merge have in common, by a sink that does nothing else."""

from __future__ import annotations

import deltalake
import pyarrow
import pytest

from tidegate.spark_consumer.sinks.delta import direct_merge
from tidegate.spark_consumer.sinks.delta.changelog_reader import as_type
from tidegate.spark_consumer.sinks.delta.direct_way import find_direct_way
from tidegate.spark_consumer.sinks.delta.merge_clauses import merge_clauses
from tidegate.spark_consumer.sinks.delta.merging import DeltaMergingSink, key_names, key_struct
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_schema
from tidegate.spark_consumer.sinks.sql_names import double_quoted, quoted

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


def test_marks_in_names_are_parts_of_them(kit):
    """No source has such columns today; each statement quotes its names all the same."""
    key, a, b = "i`d", 'a`"b', "c'.d"
    path, types = f"{kit.output}/odd`folder", f'`i``d` INT, `a``"b` STRING, `{b}` STRING'
    table = kit.spark.createDataFrame([(1, "old", "kept"), (2, "gone", "")], types)
    assert as_type(table, table.schema).columns == [key, a, b]
    table.write.format("delta").save(path)
    known = kit.spark.read.format("delta").load(path).select(key_struct([key]))
    assert sorted(row["key"][key] for row in known.collect()) == [1, 2]
    folded = [(1, "patch", "new"), (2, "delete", None), (3, "replace", "three")]
    rows = kit.spark.createDataFrame(
        [((k,), action, k, False, text, True, None, k == 3) for k, action, text in folded],
        "key struct<`i``d`: INT>, action STRING, value_0 INT, captured_0 BOOLEAN, value_1 STRING, "
        "captured_1 BOOLEAN, value_2 STRING, captured_2 BOOLEAN",
    )
    rows.createOrReplaceTempView("folded")
    clauses = merge_clauses(columns=[key, a, b], keys=[key])
    kit.spark.sql(clauses.sql(quoted("delta", path), "folded"))
    found = kit.spark.read.format("delta").load(path).collect()
    assert sorted(map(tuple, found)) == [(1, "new", "kept"), (3, "three", None)]

    table = deltalake.DeltaTable(path)
    source = pyarrow.table({"key_0": pyarrow.array([1], pyarrow.int32()), "text": ["newer"]})
    merger = table.merge(
        source, direct_merge.same_key(source, [key]), source_alias="s", target_alias="t"
    )
    value = f"CASE WHEN t.{double_quoted(a)} = 'new' THEN s.text ELSE t.{double_quoted(a)} END"
    merger.when_matched_update({double_quoted(a): value}).execute()
    assert {row[key]: row[a] for row in table.to_pyarrow_table().to_pylist()} == {
        1: "newer", 3: "three",
    }  # fmt: skip
