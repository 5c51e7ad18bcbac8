"""Iceberg's Java API: what is read, staged and published."""

from __future__ import annotations

import pytest

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.sinks.iceberg.java_table import JavaCatalog
from tidegate.spark_consumer.sinks.iceberg.place import IcebergPlace

pytestmark = pytest.mark.spark


@pytest.fixture
def table(kit, lake):
    """A table of numbers, into which a session stages under a name."""
    lake.place.register(kit.spark)
    name = lake.place.identifier("test", "t")
    frame = kit.spark.createDataFrame([(1,)], "n bigint")
    frame.writeTo(name).tableProperty("write.wap.enabled", "true").create()
    return lake.java("test", "t")


def stage(kit, lake, marker, number):
    kit.spark.conf.set("spark.wap.id", marker)
    try:
        frame = kit.spark.createDataFrame([(number,)], "n bigint")
        frame.writeTo(lake.place.identifier("test", "t")).append()
    finally:
        kit.spark.conf.unset("spark.wap.id")


def numbers(lake):
    return sorted(row["n"] for row in lake.rows("test", "t"))


def test_a_catalog_names_its_tables_and_a_missing_one_is_not_there(kit, lake, table):
    assert JavaCatalog(kit.spark, lake.place, "test").names() == ["t"]
    other = JavaCatalog(kit.spark, lake.place, "other")
    assert other.names() == []
    assert not other.table("t").load()
    assert table.snapshot(7) is None
    assert table.bytes() > 0


def test_a_staged_snapshot_is_published_once_with_properties(kit, lake, table):
    stage(kit, lake, "a", 2)
    assert numbers(lake) == [1]
    staged = table.staged("a")
    assert table.staged("b") is None
    assert table.publish(staged, {"k": "v"}, marker="a")
    assert numbers(lake) == [1, 2]
    assert table.load()
    assert table.properties()["k"] == "v"
    assert (table.current().number, table.current().marker) == (staged, "a")
    assert not table.publish(staged, {"k": "w"}, marker="a")
    stage(kit, lake, "a", 2)
    assert not table.publish(table.staged("a"), {"k": "w"}, marker="a")
    assert numbers(lake) == [1, 2]
    assert table.load()
    assert table.properties()["k"] == "v"


def test_what_was_staged_before_another_commit_keeps_its_name_when_it_is_published(
    kit, lake, table
):
    stage(kit, lake, "a", 2)
    stage(kit, lake, "b", 3)
    assert table.publish(table.staged("b"), {}, marker="b")
    assert table.publish(table.staged("a"), {}, marker="a")
    assert numbers(lake) == [1, 2, 3]
    assert table.load()
    assert (table.current().marker, table.current().operation) == ("a", "append")


def test_without_a_staged_snapshot_an_empty_one_is_published(lake, table):
    before = table.current().number
    assert table.publish(None, {"k": "v"}, marker="a")
    assert table.load()
    assert (table.current().marker, table.current().parent) == ("a", before)
    assert numbers(lake) == [1]


def test_a_table_gets_the_fields_that_it_lacks(kit, lake, table):
    table.widen(kit.spark.createDataFrame([], "N bigint, s struct<a:int>").schema)
    table.widen(kit.spark.createDataFrame([], "n bigint, s struct<a:int,b:string>").schema)
    found = kit.spark.table(lake.place.identifier("test", "t")).schema.simpleString()
    assert found == "struct<n:bigint,s:struct<a:int,b:string>>"


def test_a_catalog_that_the_session_lacks_is_an_error_by_name(kit, lake):
    place = IcebergPlace.of(lake.output, prefix="bank", catalog="nowhere")
    with pytest.raises(UnreachableError, match=r"rejected a request.*nowhere"):
        JavaCatalog(kit.spark, place, "test")
