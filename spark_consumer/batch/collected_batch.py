"""A small batch: all its rows collected in one Spark job, and counted in the driver.

The figures are those of `batch_stats`, where Spark counts.  A batch whose changes turn out to be
too large for the driver is left to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.order_key import TIMESTAMP_BYTES, first_key_after
from tidegate.schemas.wire_format import HEADER_BYTES
from tidegate.spark_consumer.batch.batch_stats import RecordFrame, topics_of
from tidegate.spark_consumer.batch.row_sums import HASH, with_hash
from tidegate.spark_consumer.batch.rows import (
    CHANGE_COLUMNS,
    IS_PROGRESS,
    ORDER_KEY_BYTES_MIN,
)
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.release import NO_CHANGES, QUANTILES, Distribution
from tidegate.spark_consumer.core.row_sums import CHECKSUM_MODULUS, RowSum

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
        unordered = [one for one in self.changes if not _is_ordered(one)]
        places = [f"{one['topic']}/{one['topic_partition']}/{one['offset']}" for one in unordered]
        ordered = [one for one in self.changes if _is_ordered(one)]
        low, high = first_key_after(after_us), first_key_after(max(after_us, through_us))
        due = [one for one in ordered if low <= one["order_key"] < high]
        early = [one for one in ordered if one["order_key"] >= high]
        times_us = sorted(map(_commit_us, early))
        return BatchStats(
            late_rows=sum(one["order_key"] < low for one in ordered),
            due=_distribution(due),
            early=_distribution(early),
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
        return [one for one in self.changes if _is_ordered(one) and low <= one["order_key"] < high]


def collect_batch(rows: DataFrame, *, change_bytes_max: int) -> CollectedBatch | None:
    """Return all rows of a batch in one Spark job; None if a change is larger than the bound.

    The bound is of a change's key and value, and keeps what reaches the driver within the rows
    times the bound.
    """
    size = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    is_large = ~F.col(IS_PROGRESS) & (size > change_bytes_max)
    value = F.when(~F.col(_IS_LARGE), F.col("value")).alias("value")
    columns = [value if name == "value" else F.col(name) for name in CHANGE_COLUMNS]
    found = (
        with_hash(rows)
        .withColumn(_IS_LARGE, is_large)
        .select(IS_PROGRESS, _IS_LARGE, HASH, *columns)
        .collect()
    )
    if any(row[_IS_LARGE] for row in found):
        return None
    progress = [
        (row["topic_partition"], row["offset"], row["value"]) for row in found if row[IS_PROGRESS]
    ]
    changes = [row.asDict() for row in found if not row[IS_PROGRESS]]
    return CollectedBatch(progress, changes)


def sum_of_changes(changes: Iterable[Mapping[str, Any]]) -> RowSum:
    """Return the sum that Spark would count: `row_sums.sum_of`."""
    hashes = [one[HASH] for one in changes]
    return RowSum(len(hashes), sum(hashes) % CHECKSUM_MODULUS)


def _is_ordered(change: Mapping[str, Any]) -> bool:
    return change["order_key"] is not None and len(change["order_key"]) >= ORDER_KEY_BYTES_MIN


def _commit_us(change: Mapping[str, Any]) -> int:
    return int.from_bytes(change["order_key"][:TIMESTAMP_BYTES], "big")


def _distribution(changes: Sequence[Mapping[str, Any]]) -> Distribution:
    if not changes:
        return NO_CHANGES
    times_us = sorted(map(_commit_us, changes))
    places = [-(-(part + 1) * len(times_us) // QUANTILES) - 1 for part in range(QUANTILES)]
    size = sum(len(one["key"] or b"") + len(one["value"] or b"") for one in changes)
    return Distribution(len(changes), tuple(times_us[place] for place in places), size)


def _frames(changes: Iterable[Mapping[str, Any]]) -> Iterable[RecordFrame]:
    return {
        (
            one["topic"],
            bytes((one["key"] or b"")[:HEADER_BYTES]),
            None if one["value"] is None else bytes(one["value"][:HEADER_BYTES]),
        )
        for one in changes
    }
