"""Counts and checksums as Spark makes them, under its ANSI mode."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.gate_rows import change
from tidegate.spark_consumer.batch.row_sums import (
    part_sums_of,
    read_part_sums,
    read_sum,
    sum_of,
    with_hash,
)
from tidegate.spark_consumer.core.row_sums import NO_ROWS, RowSum

pytestmark = pytest.mark.spark


def sums_of(frame):
    found = with_hash(frame.drop("is_progress")).agg(*sum_of(F.lit(True), "all")).collect()[0]
    return read_sum(found.asDict(), "all")


def test_sums_do_not_overflow_under_ansi_and_copies_do_not_cancel_out(spark, rows):
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    one = sums_of(rows(change(10, 7)))
    assert one.checksum != 0
    assert sums_of(rows(*(change(10, 7) for _ in range(64)))) == RowSum(
        64, one.checksum * 64 % 2**64
    )
    assert sums_of(rows()) == NO_ROWS


@pytest.mark.parametrize("place", range(1, 9), ids=lambda place: f"column {place}")
def test_every_column_counts(rows, place):
    other = {1: "x", 2: 9, 3: 9, 4: b"x", 5: None, 6: b"x", 7: "D", 8: None}[place]
    row = change(10, 7)
    spoiled = (*row[:place], other, *row[place + 1 :])
    assert sums_of(rows(row)) != sums_of(rows(spoiled))


def test_parts_end_at_their_cuts_and_together_are_the_whole(rows):
    frame = rows(*(change(us) for us in (1, 5, 6, 6, 9)))
    cuts_us = (5, 6, 9)
    found = with_hash(frame.drop("is_progress")).agg(*part_sums_of(cuts_us)).collect()[0]
    parts = read_part_sums(found.asDict(), cuts_us)
    assert [part.rows for part in parts] == [2, 2, 1]
    assert sum(parts, NO_ROWS) == sums_of(frame)
