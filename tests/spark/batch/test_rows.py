"""The gate's columns, and comparisons of order keys."""

from __future__ import annotations

import pytest

from tests.spark.gate_rows import change, commit_times_us
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS, kafka_columns, within

pytestmark = pytest.mark.spark


def test_kafkas_rows_get_the_gates_columns(spark):
    headers = "array<struct<key:string,value:binary>>"
    kafka = spark.createDataFrame(
        [
            ("t", 3, 9, b"k", b"v", [("order", b"\x01"), ("mod", b"U")]),
            ("t", 3, 10, b"k", b"v", [("mod", b"U"), ("order", b"\x01")]),
            ("t", 3, 11, b"k", b"v", None),
        ],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    found = kafka_columns(kafka, is_progress=False)
    assert found.columns == ["is_progress", *CHANGE_COLUMNS]
    assert [(row.order_key, row.mod) for row in found.collect()] == [
        (b"\x01", "U"),
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("after_us", "through_us", "expected"),
    [(10, 20, [11, 20]), (-1, 10, [0, 10]), (9, 10, [10]), (20, 30, [])],
)
def test_bounds_are_exclusive_below_and_inclusive_above(rows, after_us, through_us, expected):
    found = rows(*(change(us) for us in (0, 10, 11, 20)))
    assert (
        commit_times_us(found.where(within(after_us=after_us, through_us=through_us))) == expected
    )
