"""Counts of a batch's changes: by Spark in one job, or in the driver for a small batch.

Timestamps come from the first eight bytes of the order key; their distribution comes as quantiles,
by which the core cuts releases and segments.  Rows and checksums of frames are counted along with
the job that reads or writes the rows.  A row's hash is Spark's `xxhash64` of the gate's columns.
The two halves of the hash are added up separately: a sum of whole 64-bit hashes would overflow,
which Spark's ANSI mode reports as an error.

All rows of a small batch are collected in one Spark job.  A batch whose changes turn out to be too
large for the driver is left to Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.checksums import CHECKSUM_MODULUS
from tidegate.schemas.order_key import TIMESTAMP_BYTES, first_key_after
from tidegate.schemas.wire_format import HEADER_BYTES, unframe
from tidegate.spark_consumer.batch.rows import (
    CHANGE_COLUMNS,
    IS_PROGRESS,
    ORDER_KEY_BYTES_MIN,
    at_or_below,
    commit_us,
    has_order_key,
    within,
)
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.release import NO_CHANGES, QUANTILES, BatchStats, Distribution
from tidegate.spark_consumer.core.sums import RowSum

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


def read_sum(figures: Mapping[str, Any], name: str) -> RowSum:
    """Return the values of the aggregates of `sum_of`."""
    low, high = figures[f"{name}_low"] or 0, figures[f"{name}_high"] or 0
    return RowSum(figures[f"{name}_rows"] or 0, (low + (high << HALF_BITS)) % CHECKSUM_MODULUS)


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


def read_part_sums(figures: Mapping[str, Any], cuts_us: Sequence[int]) -> tuple[RowSum, ...]:
    """Return the values of the aggregates of `part_sums_of`, by part."""
    return tuple(read_sum(figures, f"part{number}") for number in range(len(cuts_us)))


RecordFrame: TypeAlias = "tuple[str, bytes, bytes | None]"
"""Topic, the key's header, the value's header or None for a record without a value."""

_ACCURACY = 1_000


def topics_of(
    frames: Iterable[RecordFrame],
) -> tuple[TopicIds, ...]:
    """Return the schema ids by topic.

    Raises SchemaError for bytes without Confluent's header.
    """
    keys: dict[str, set[int]] = defaultdict(set)
    values: dict[str, set[int]] = defaultdict(set)
    for topic, key, value in frames:
        keys[topic].add(unframe(key)[0])
        # A null value is a tombstone: it has no schema.
        if value is not None:
            values[topic].add(unframe(value)[0])
    return tuple(
        TopicIds(topic, tuple(sorted(keys[topic])), tuple(sorted(values[topic])))
        for topic in sorted(keys)
    )


def count_changes(
    rows: DataFrame,
    *,
    after_us: int,
    through_us: int,
    topics_of: Callable[[Iterable[RecordFrame]], tuple[TopicIds, ...]] = topics_of,
) -> BatchStats:
    """Count a batch's changes against the former and the new watermark.

    `topics_of` returns the schema ids of records with an order key, each once.
    """
    changes = rows.where(~F.col(IS_PROGRESS))
    is_ordered = has_order_key()
    is_late = is_ordered & at_or_below(after_us)
    is_due = is_ordered & within(after_us=after_us, through_us=through_us)
    is_early = is_ordered & ~at_or_below(max(after_us, through_us))
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    place = F.concat_ws("/", "topic", F.col("topic_partition"), F.col("offset"))
    # Columns first: otherwise each aggregate would compute its inputs again.
    columns = {
        "is_late": is_late,
        "is_due": is_due,
        "is_early": is_early,
        "unordered": F.when(~is_ordered, place),
        "size": size,
        "commit_us": F.when(is_ordered, commit_us()),
        "frame": F.when(
            is_ordered,
            F.struct("topic", _frame("key").alias("key"), _frame("value").alias("value")),
        ),
    }
    due, early = F.col("is_due"), F.col("is_early")
    counted = (
        with_hash(changes)
        .withColumns(columns)
        .agg(
            F.count_if("is_late").alias("late_rows"),
            F.count_if(due).alias("due_rows"),
            *sum_of(early, "early"),
            F.sum(F.when(due, F.col("size"))).alias("due_bytes"),
            F.sum(F.when(early, F.col("size"))).alias("early_bytes"),
            F.count("unordered").alias("unordered_rows"),
            F.min("unordered").alias("unordered_at"),
            F.min(F.when(early, F.col("commit_us"))).alias("early_min_us"),
            F.max(F.when(early, F.col("commit_us"))).alias("early_max_us"),
            _quantiles("is_due").alias("due_us"),
            _quantiles("is_early").alias("early_us"),
            F.collect_set("frame").alias("frames"),
        )
        .collect()[0]
    )
    return BatchStats(
        late_rows=counted["late_rows"],
        due=_distribution(counted["due_rows"], counted["due_us"], counted["due_bytes"]),
        early=_distribution(counted["early_rows"], counted["early_us"], counted["early_bytes"]),
        early_checksum=read_sum(counted.asDict(), "early").checksum,
        early_min_us=counted["early_min_us"],
        early_max_us=counted["early_max_us"],
        topics=topics_of(
            (
                frame["topic"],
                bytes.fromhex(frame["key"] or ""),
                None if frame["value"] is None else bytes.fromhex(frame["value"]),
            )
            for frame in counted["frames"]
        ),
        unordered_rows=counted["unordered_rows"],
        unordered_at=counted["unordered_at"] or "",
    )


def _quantiles(condition: str) -> Column:
    # As text: otherwise Python would call the JVM several times for each of the shares.
    shares = ", ".join(f"{(part + 1) / QUANTILES}D" for part in range(QUANTILES))
    times_us = f"CASE WHEN {condition} THEN commit_us END"
    return F.expr(f"percentile_approx({times_us}, array({shares}), {_ACCURACY})")


def _frame(column: str) -> Column:
    """Confluent's header of a key or value, as text: a set of bytes compares by identity."""
    return F.hex(F.substring(column, 1, HEADER_BYTES))


def _distribution(
    rows: int, quantiles_us: Sequence[int] | None, size_bytes: int | None
) -> Distribution:
    return Distribution(rows, tuple(quantiles_us), size_bytes) if quantiles_us else NO_CHANGES


_IS_LARGE = "is_large"


@dataclass(frozen=True, slots=True)
class CollectedBatch:
    """The rows of a batch: progress rows as (slot, offset, value), changes in any order.

    A change is a mapping with the gate's columns and the row's hash.
    """

    progress: Sequence[tuple[int, int, bytes | None]]
    changes: Sequence[Mapping[str, Any]]

    def count(
        self,
        *,
        after_us: int,
        through_us: int,
        topics_of: Callable[[Iterable[RecordFrame]], tuple[TopicIds, ...]] = topics_of,
    ) -> BatchStats:
        """Count the changes against the former and the new watermark.

        `topics_of` returns the schema ids of records with an order key.
        """
        unordered = [change for change in self.changes if not _is_ordered(change)]
        places = [
            f"{change['topic']}/{change['topic_partition']}/{change['offset']}"
            for change in unordered
        ]
        ordered = [change for change in self.changes if _is_ordered(change)]
        low, high = first_key_after(after_us), first_key_after(max(after_us, through_us))
        due = [change for change in ordered if low <= change["order_key"] < high]
        early = [change for change in ordered if change["order_key"] >= high]
        times_us = sorted(map(_commit_us, early))
        return BatchStats(
            late_rows=sum(change["order_key"] < low for change in ordered),
            due=_collected_distribution(due),
            early=_collected_distribution(early),
            early_checksum=sum_of_changes(early).checksum,
            early_min_us=times_us[0] if times_us else None,
            early_max_us=times_us[-1] if times_us else None,
            topics=topics_of(_frames(ordered)),
            unordered_rows=len(unordered),
            unordered_at=min(places, default=""),
        )

    def due(self, *, after_us: int, through_us: int) -> list[Mapping[str, Any]]:
        """Return the changes with `after_us` < commit timestamp <= `through_us`."""
        low, high = first_key_after(after_us), first_key_after(through_us)
        return [
            change
            for change in self.changes
            if _is_ordered(change) and low <= change["order_key"] < high
        ]


def collect_batch(rows: DataFrame, *, change_bytes_max: int) -> CollectedBatch | None:
    """Return all rows of a batch in one Spark job; None if a change is larger than the bound.

    The bound is of a change's key and value, and keeps what reaches the driver within the rows
    times the bound.
    """
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    is_large = ~F.col(IS_PROGRESS) & (size > change_bytes_max)
    value = F.when(~F.col(_IS_LARGE), F.col("value")).alias("value")
    columns = [value if name == "value" else F.col(name) for name in CHANGE_COLUMNS]
    records = (
        with_hash(rows)
        .withColumn(_IS_LARGE, is_large)
        .select(IS_PROGRESS, _IS_LARGE, HASH, *columns)
        .collect()
    )
    if any(row[_IS_LARGE] for row in records):
        return None
    progress = [
        (row["topic_partition"], row["offset"], row["value"]) for row in records if row[IS_PROGRESS]
    ]
    changes = [row.asDict() for row in records if not row[IS_PROGRESS]]
    return CollectedBatch(progress, changes)


def sum_of_changes(changes: Iterable[Mapping[str, Any]]) -> RowSum:
    """Return the sum that Spark would count with `sum_of`."""
    hashes = [change[HASH] for change in changes]
    return RowSum(len(hashes), sum(hashes) % CHECKSUM_MODULUS)


def _is_ordered(change: Mapping[str, Any]) -> bool:
    return change["order_key"] is not None and len(change["order_key"]) >= ORDER_KEY_BYTES_MIN


def _commit_us(change: Mapping[str, Any]) -> int:
    return int.from_bytes(change["order_key"][:TIMESTAMP_BYTES], "big")


def _collected_distribution(changes: Sequence[Mapping[str, Any]]) -> Distribution:
    if not changes:
        return NO_CHANGES
    times_us = sorted(map(_commit_us, changes))
    places = [-(-(part + 1) * len(times_us) // QUANTILES) - 1 for part in range(QUANTILES)]
    size = sum(len(change["key"] or b"") + len(change["value"] or b"") for change in changes)
    return Distribution(len(changes), tuple(times_us[place] for place in places), size)


def _frames(changes: Iterable[Mapping[str, Any]]) -> Iterable[RecordFrame]:
    return {
        (
            change["topic"],
            bytes((change["key"] or b"")[:HEADER_BYTES]),
            None if change["value"] is None else bytes(change["value"][:HEADER_BYTES]),
        )
        for change in changes
    }
