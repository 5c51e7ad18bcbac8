"""What new tables get: properties, partitions, clusters, and which of it needs Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.layout import TableLayout

SCHEMA = StructType(
    [
        StructField("id", LongType()),
        StructField("region", StringType()),
        StructField("tags", ArrayType(StringType())),
    ]
)


def test_columns_are_those_of_the_table():
    layout = TableLayout(partition_by={"a": ("region",)}, cluster_by={"b": ("id", "region")})
    assert layout.partition_columns("a", SCHEMA) == ("region",)
    assert layout.cluster_columns("b", SCHEMA) == ("id", "region")
    assert layout.partition_columns("b", SCHEMA) == layout.cluster_columns("a", SCHEMA) == ()
    assert TableLayout().partition_columns("a", SCHEMA) == ()


@pytest.mark.parametrize("column", ["Region", "tags", "country"])
def test_a_column_that_cannot_be_is_named_with_the_setting(column):
    layout = TableLayout(partition_by={"a": (column,)}, cluster_by={"a": (column,)})
    with pytest.raises(ConfigError, match=rf"^mirror_partition_by: .*a.*{column}.*id"):
        layout.partition_columns("a", SCHEMA)
    with pytest.raises(ConfigError, match=r"^mirror_cluster_by: "):
        layout.cluster_columns("a", SCHEMA)


def test_partitions_are_of_types_that_both_engines_write_alike():
    others = (DecimalType(38, 9), DoubleType(), FloatType(), BinaryType(), TimestampType())
    equal = (LongType(), BooleanType(), DateType(), StringType())
    schema = StructType([StructField(one.typeName(), one) for one in (*equal, *others)])
    names = tuple(one.typeName() for one in equal)
    assert TableLayout(partition_by={"a": names}).partition_columns("a", schema) == names
    for one in others:
        columns = {"a": ("long", one.typeName())}
        layout = TableLayout(partition_by=columns, cluster_by=columns)
        with pytest.raises(ConfigError, match=rf"^mirror_partition_by: .*a.*{one.typeName()}"):
            layout.partition_columns("a", schema)
        assert layout.cluster_columns("a", schema) == columns["a"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("delta.logRetentionDuration", False),
        ("owner", False),
        ("delta.enableDeletionVectors", True),
        ("delta.enableChangeDataFeed", True),
    ],
)
def test_a_property_that_needs_a_feature_is_left_to_spark(name, expected):
    assert TableLayout({name: "x"}).has_features is expected
