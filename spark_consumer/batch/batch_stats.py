"""Counts a batch's changes: one Spark job, one row to the driver.

Timestamps come from the first eight bytes of the order key; their
distribution comes as quantiles, by which the core cuts releases and segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.wire_format import HEADER_BYTES, unframe
from tidegate.spark_consumer.batch.row_sums import read_sum, sum_of, with_hash
from tidegate.spark_consumer.batch.rows import (
    IS_PROGRESS,
    at_or_below,
    commit_us,
    has_order_key,
    within,
)
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.release import NO_CHANGES, QUANTILES, Distribution

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

    `topics_of` returns the schema ids of records with an order key, each of which it gets once.
    """
    changes = rows.where(~F.col(IS_PROGRESS))
    is_ordered = has_order_key()
    is_late = is_ordered & at_or_below(after_us)
    is_due = is_ordered & within(after_us=after_us, through_us=through_us)
    is_early = is_ordered & ~at_or_below(max(after_us, through_us))
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    place = F.concat_ws("/", "topic", F.col("topic_partition"), F.col("offset"))
    # Columns first: each aggregate would compute what it takes for itself.
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
    # As text: Python would ask the JVM several times for each of the shares.
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
