"""Schemas of the tables, and writing several of them; Delta itself is in tests/spark."""

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from tidegate.schemas.errors import InvariantViolation, SchemaError
from tidegate.spark_consumer.sinks.delta import tables
from tidegate.spark_consumer.sinks.delta.tables import SinkTables, as_nullable, for_each_table


def schema(**fields):
    return StructType([StructField(name, kind, nullable=True) for name, kind in fields.items()])


def test_every_level_of_a_schema_becomes_nullable():
    inner = StructType([StructField("x", LongType(), nullable=False)])
    strict = StructType([StructField("a", ArrayType(inner, containsNull=False), nullable=False)])
    (field,) = as_nullable(strict)
    assert field.nullable
    assert field.dataType.containsNull
    assert field.dataType.elementType["x"].nullable


@pytest.mark.parametrize(
    ("have", "want", "is_missing"),
    [
        (schema(a=LongType()), schema(a=LongType()), False),
        (schema(A=LongType()), schema(a=LongType()), False),
        (schema(a=LongType(), b=LongType()), schema(a=LongType()), False),
        (schema(a=LongType()), schema(a=LongType(), b=LongType()), True),
        (schema(r=schema(a=LongType())), schema(r=schema(b=LongType())), True),
    ],
)
def test_missing_columns_are_found_at_every_level(have, want, is_missing):
    assert tables.lacks_columns(have, want, table="t") is is_missing


def test_a_changed_type_is_named_with_its_path():
    have, want = schema(r=schema(a=LongType())), schema(r=schema(a=StringType()))
    with pytest.raises(SchemaError, match=r"column='r\.a'.*bigint.*string"):
        tables.lacks_columns(have, want, table="t")


def test_a_sink_that_was_not_opened_may_not_write():
    with pytest.raises(InvariantViolation, match="open"):
        SinkTables("out", folder="mirror", sink="mirror").log(None, "t")


def test_paths_are_relative_and_addresses_are_whole():
    one = SinkTables("s3a://bucket/out/", folder="mirror", sink="mirror")
    assert one.path("t") == "mirror/t"
    assert one.address("t") == "s3a://bucket/out/mirror/t"


def test_one_table_is_written_in_this_thread():
    written = []
    for_each_table(None, ["a"], written.append)
    for_each_table(None, [], written.append)
    assert written == ["a"]


def test_the_first_error_is_raised_after_all_tables_were_tried(monkeypatch):
    monkeypatch.setattr(tables, "inheritable_thread_target", lambda _spark: lambda write: write)
    written = []

    def write(table):
        written.append(table)
        if table in ("b", "c"):
            raise ValueError(table)

    with pytest.raises(ValueError, match="b"):
        for_each_table(None, ["a", "b", "c", "d"], write)
    assert sorted(written) == ["a", "b", "c", "d"]
