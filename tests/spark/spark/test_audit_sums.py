"""Sums of 64-bit numbers modulo 2^64: as Python has them, under ANSI mode."""

from __future__ import annotations

import random

import pytest

from tidegate.spark_consumer.spark.audit_sums import half_sums, halves_of, joined_halves

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_sums_wrap_at_2_to_the_64(spark):
    chance = random.Random(3)
    numbers = {
        "all ones": [-1, -1],
        "carry": [0xFFFFFFFF, 1],
        "zero": [-(1 << 63), -(1 << 63)],
        "one": [1],
        "many": [chance.randrange(-(1 << 63), 1 << 63) for _ in range(2_000)],
    }
    rows = [(name, number) for name, of_name in numbers.items() for number in of_name]
    frame = spark.createDataFrame(rows, "name string, number long")
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"

    summed = frame.withColumns(halves_of("number")).groupBy("name").agg(*half_sums())

    found = {
        row["name"]: row["sum"]
        for row in summed.select("name", joined_halves().alias("sum")).collect()
    }
    assert found == {name: f"{sum(of_name) % (1 << 64):016x}" for name, of_name in numbers.items()}
