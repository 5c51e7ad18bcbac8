"""Sums of 64-bit checksums modulo 2^64, within Spark: by halves as in `batch.row_sums`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.batch.row_sums import HALF_BITS, high_half, low_half


def halves_of(column: str) -> dict[str, Column]:
    """Return the columns `high` and `low` of a signed 64-bit number, both from 0 to 2^32 - 1."""
    return {"high": high_half(column), "low": low_half(column)}


def half_sums() -> list[Column]:
    """Return the aggregates of `high` and `low` that `joined_halves` reads."""
    return [F.sum("high").alias("high"), F.sum("low").alias("low")]


def joined_halves() -> Column:
    """Return the sum modulo 2^64 as 16 hexadecimal digits, of sums of up to 2^31 halves.

    Not by `lower`, for which Spark first computes the title case of every character there is: a
    second of CPU time in each session.
    """
    modulus = F.lit(1 << HALF_BITS)
    high = (F.col("high") + high_half("low")) % modulus
    digits = F.format_string("%08x%08x", high, low_half("low"))
    return F.when(high.isNotNull(), digits)
