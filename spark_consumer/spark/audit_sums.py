"""Sums of 64-bit checksums modulo 2^64, within Spark: by halves, for ANSI mode forbids overflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["half_sums", "halves_of", "joined_halves"]

_HALF_BITS = 32
_LOW = (1 << _HALF_BITS) - 1


def halves_of(column: str) -> dict[str, Column]:
    """Return the columns `high` and `low` of a signed 64-bit number, both from 0 to 2^32 - 1."""
    return {
        "high": F.shiftrightunsigned(column, _HALF_BITS),
        "low": F.col(column).bitwiseAND(F.lit(_LOW)),
    }


def half_sums() -> list[Column]:
    """Return the aggregates of `high` and `low` that `joined_halves` reads."""
    return [F.sum("high").alias("high"), F.sum("low").alias("low")]


def joined_halves() -> Column:
    """Return the sum modulo 2^64 as 16 hexadecimal digits, of sums of up to 2^31 halves."""
    carry = F.shiftrightunsigned("low", _HALF_BITS)
    high = (F.col("high") + carry).bitwiseAND(F.lit(_LOW))
    low = F.col("low").bitwiseAND(F.lit(_LOW))
    return F.lower(F.concat(*(F.lpad(F.hex(half), 8, "0") for half in (high, low))))
