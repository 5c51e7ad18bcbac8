"""The gate's columns, and comparisons of order keys."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.gate_rows import change, commit_times_us
from tidegate.schemas.checksums import origin_of
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS, kafka_columns, within

pytestmark = pytest.mark.spark

ORIGINS = {
    bytes(8): 0,
    b"\x7f" + b"\xff" * 7: 2**63 - 1,
    b"\x80" + bytes(7): -(2**63),
    b"\xff" * 8: -1,
    b"\xff" * 7: None,
    b"\x01" * 9: None,
    b"": None,
    origin_of("P"): int.from_bytes(origin_of("P"), "big", signed=True),
}
"""Contents of the header, and the column."""


def test_kafkas_rows_get_the_gates_columns(spark):
    headers = "array<struct<key:string,value:binary>>"
    kafka = spark.createDataFrame(
        [
            ("t", 3, 9, b"k", b"v", [("order", b"\x01"), ("mod", b"U")]),
            *(
                ("t", 3, 12, b"k", b"v", [("order", b"\x01"), ("mod", b"U"), ("origin", origin)])
                for origin in ORIGINS
            ),
            ("t", 3, 13, b"k", b"v", [("order", b"\x01"), ("mod", b"U"), ("redriven", bytes(8))]),
            ("t", 3, 10, b"k", b"v", [("mod", b"U"), ("order", b"\x01")]),
            ("t", 3, 11, b"k", b"v", None),
        ],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    found = kafka_columns(kafka, is_progress=False)
    assert found.columns == ["is_progress", *CHANGE_COLUMNS]
    assert [(row.order_key, row.mod, row.origin) for row in found.collect()] == [
        (b"\x01", "U", None),
        *((b"\x01", "U", number) for number in ORIGINS.values()),
        (b"\x01", "U", None),
        (None, None, None),
        (None, None, None),
    ]


@pytest.mark.parametrize("is_progress", [False, True])
def test_a_record_without_a_value_is_a_row_of_the_progress_topic_only(spark, is_progress):
    headers = "array<struct<key:string,value:binary>>"
    named = [("order", b"\x01"), ("mod", b"D")]
    kafka = spark.createDataFrame(
        [("t", 3, 9, b"k", b"", named), ("t", 3, 10, b"k", None, None)],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    found = kafka_columns(kafka, is_progress=is_progress).collect()
    assert [row.offset for row in found] == ([9, 10] if is_progress else [9])


def test_the_origin_is_sparks_hash_of_the_token(spark):
    tokens = ["", "P", "täglich", "x" * 200, *(f"token {number}" for number in range(50))]
    hashed = spark.createDataFrame([(token,) for token in tokens], "token string").select(
        F.xxhash64("token").alias("number")
    )
    numbers = [int.from_bytes(origin_of(token), "big", signed=True) for token in tokens]
    assert [row.number for row in hashed.collect()] == numbers


@pytest.mark.parametrize(
    ("after_us", "through_us", "expected"),
    [(10, 20, [11, 20]), (-1, 10, [0, 10]), (9, 10, [10]), (20, 30, [])],
)
def test_bounds_are_exclusive_below_and_inclusive_above(rows, after_us, through_us, expected):
    found = rows(*(change(us) for us in (0, 10, 11, 20)))
    assert (
        commit_times_us(found.where(within(after_us=after_us, through_us=through_us))) == expected
    )
