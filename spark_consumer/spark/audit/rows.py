"""The rows of an output's changelogs as an audit compares them, all tables together.

Tables of an older program lack columns: `origin` then follows from the token in `source`, and
`value_bytes` is null.  Checksums of 64 bits are summed modulo 2^64 by their halves.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.window import Window

from tidegate.schemas.order_key import TIMESTAMP_BYTES
from tidegate.spark_consumer.batch.change_counts import HALF_BITS, high_half, low_half
from tidegate.spark_consumer.batch.rows import commit_us


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


def read_rows(
    spark: SparkSession, tables: Mapping[str, str], *, release_max: int
) -> tuple[DataFrame | None, tuple[str, ...]]:
    """Return the rows of these changelogs (paths by topic), and the topics without a table.

    Rows of later releases are left out; those without a release stay.  None without any table.
    """
    missing = tuple(sorted(t for t, path in tables.items() if not _exists(spark, path)))
    frames = [
        _rows(spark.read.format("delta").load(path), topic=topic, release_max=release_max)
        for topic, path in sorted(tables.items())
        if topic not in missing
    ]
    return (reduce(DataFrame.unionByName, frames) if frames else None), missing


def _exists(spark: SparkSession, path: str) -> bool:
    return DeltaTable.isDeltaTable(spark, path)


def _rows(table: DataFrame, *, topic: str, release_max: int) -> DataFrame:
    token = F.col("source.partition_token")
    origin = F.when(token != "", F.xxhash64(token))
    if "origin" in table.columns:
        origin = F.coalesce("origin", origin)
    value_bytes = F.col("value_bytes") if "value_bytes" in table.columns else F.lit(None)
    inside = table.where(F.coalesce("release", F.lit(-1)) <= release_max)
    return inside.select(
        F.lit(topic).alias("topic"),
        "release",
        "ordinal",
        "order_key",
        commit_us().alias("commit_us"),
        "server_transaction_id",
        "record_sequence",
        F.col("source.number_of_records_in_transaction").alias("records"),
        origin.alias("origin"),
        value_bytes.cast("long").alias("value_bytes"),
        _is_altered().alias("is_altered"),
    )


def _is_altered() -> Column:
    """Whether a row's columns are not those that its order key was made of."""
    timestamp = F.lpad(F.hex(F.unix_micros("commit_timestamp")), 2 * TIMESTAMP_BYTES, "0")
    begin = F.concat(
        F.unhex(timestamp),
        F.encode("server_transaction_id", "UTF-8"),
        F.lit(bytearray(b"\0")),
    )
    end = F.unhex(F.lpad(F.hex("mod_number"), 8, "0"))
    agrees = F.startswith("order_key", begin) & F.endswith("order_key", end)
    return ~F.coalesce(agrees, F.lit(False))  # noqa: FBT003 - a literal


def sums_by_origin(rows: DataFrame) -> DataFrame:
    """Return what markers state: `mods`, `value_bytes` (null if a row lacks it), `checksum`.

    `altered` counts the rows that do not agree with their order keys.
    """
    summed = rows.withColumn("hash", F.xxhash64("order_key"))
    return (
        summed.withColumns(halves_of("hash"))
        .groupBy("origin", "topic")
        .agg(
            F.count("*").alias("mods"),
            F.when(F.count("value_bytes") == F.count("*"), F.sum("value_bytes")).alias(
                "value_bytes"
            ),
            F.count_if("is_altered").alias("altered"),
            *half_sums(),
        )
        .select(
            "origin", "topic", "mods", "value_bytes", joined_halves().alias("checksum"), "altered"
        )
    )


def sums_by_release(rows: DataFrame) -> DataFrame:
    """Return for each release its rows, where they break its numbers or order, and its times."""
    before = Window.partitionBy("release").orderBy("ordinal", "order_key")
    neighbours = rows.select(
        "release",
        "ordinal",
        "order_key",
        "commit_us",
        F.lag("ordinal").over(before).alias("ordinal_before"),
        F.lag("order_key").over(before).alias("order_key_before"),
    )
    is_next = F.coalesce("ordinal", F.lit(-1)) == F.coalesce("ordinal_before", F.lit(-1)) + 1
    return neighbours.groupBy("release").agg(
        F.count("*").alias("found"),
        F.count_if(~is_next).alias("not_dense"),
        F.count_if(F.col("order_key") <= F.col("order_key_before")).alias("out_of_order"),
        F.min("commit_us").alias("first_us"),
        F.max("commit_us").alias("last_us"),
    )
