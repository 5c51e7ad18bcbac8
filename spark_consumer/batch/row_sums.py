"""Rows and checksums of frames, as Spark counts them beside the job that reads or writes the rows.

A row's hash is Spark's `xxhash64` of the gate's columns.  The two halves of the hash are added up
separately: a sum of whole 64-bit hashes would overflow, which Spark's ANSI mode reports as an
error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.order_key import first_key_after
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS
from tidegate.spark_consumer.core.row_sums import CHECKSUM_MODULUS, RowSum

HASH = "row_hash"
"""Name of the column that `with_hash` adds."""

HALF_BITS = 32
"""Half of a hash of 64 bits."""


def with_hash(frame: DataFrame) -> DataFrame:
    """Return rows in the gate's columns with their hash, for `sum_of` and `part_sums_of`."""
    return frame.withColumn(HASH, F.xxhash64(*CHANGE_COLUMNS))


def low_half(number: str) -> Column:
    """Return the lower half of the bits of a column of longs, from 0 to 2^32 - 1."""
    return F.col(number).bitwiseAND(F.lit((1 << HALF_BITS) - 1))


def high_half(number: str) -> Column:
    """Return the upper half, likewise."""
    return F.shiftrightunsigned(number, HALF_BITS)


def sum_of(condition: Column, name: str) -> list[Column]:
    """Return the aggregates that `read_sum` reads under a name: of rows that meet a condition."""
    return [
        F.count_if(condition).alias(f"{name}_rows"),
        F.sum(F.when(condition, low_half(HASH))).alias(f"{name}_low"),
        F.sum(F.when(condition, high_half(HASH))).alias(f"{name}_high"),
    ]


def read_sum(found: Mapping[str, Any], name: str) -> RowSum:
    """Return what the aggregates of `sum_of` found."""
    low, high = found[f"{name}_low"] or 0, found[f"{name}_high"] or 0
    return RowSum(found[f"{name}_rows"] or 0, (low + (high << HALF_BITS)) % CHECKSUM_MODULUS)


def part_sums_of(cuts_us: Sequence[int]) -> list[Column]:
    """Return aggregates over the parts that the cuts end, for `read_part_sums`."""
    place = F.lit(0)
    for cut_us in cuts_us[:-1]:
        is_above = F.col("order_key") >= F.lit(bytearray(first_key_after(cut_us)))
        place += is_above.cast("int")
    return [
        aggregate
        for number in range(len(cuts_us))
        for aggregate in sum_of(place == number, f"part{number}")
    ]


def read_part_sums(found: Mapping[str, Any], cuts_us: Sequence[int]) -> tuple[RowSum, ...]:
    """Return what the aggregates of `part_sums_of` found, by part."""
    return tuple(read_sum(found, f"part{number}") for number in range(len(cuts_us)))
