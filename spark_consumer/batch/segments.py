"""Changes that wait for the watermark, as sorted files of raw bytes, and releases made from them.

A segment is a folder with a sorted Parquet file.  Reading compares order keys with the bounds, so
Parquet's statistics skip what is outside.  A segment is never overwritten: a repeated attempt adds
a file with the same rows, and `release` keeps each change once.  Overwriting would delete the files
that a younger run may be reading, and a folder without files reads as no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from tidegate.spark_consumer.batch.rows import (
    CHANGE_COLUMNS,
    CHANGE_SCHEMA,
    IS_PROGRESS,
    at_or_below,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from tidegate.spark_consumer.core.batch_state import Segment
    from tidegate.spark_consumer.core.plan import Compaction, ReleaseBounds

__all__ = ["SegmentFiles"]


class SegmentFiles:
    """The segments below one folder, written and read by name."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """Take the folder's whole path."""
        self._spark = spark
        self._folder = folder

    def store(self, rows: DataFrame, segment: Segment) -> None:
        """Write a batch's changes within a segment's times to that segment."""
        inside = within(after_us=segment.min_us - 1, through_us=segment.max_us)
        self._write(rows.where(~F.col(IS_PROGRESS) & inside), segment.name)

    def join(self, compaction: Compaction, *, after_us: int) -> None:
        """Write what segments hold above `after_us` to one segment."""
        waiting = self._read(compaction.inputs).where(~at_or_below(after_us))
        self._write(waiting, compaction.output.name)

    def release(self, rows: DataFrame, bounds: ReleaseBounds) -> DataFrame:
        """Return a release's changes, each once, in commit order, with their ordinals.

        One task makes them, so ordinals are dense.  Of several copies of a change the first by
        topic, topic partition and offset stays, in whatever order they were read.
        """
        inside = within(after_us=bounds.after_us, through_us=bounds.through_us)
        found = rows.where(~F.col(IS_PROGRESS) & inside).select(*CHANGE_COLUMNS)
        if bounds.segments:
            found = found.unionByName(self._read(bounds.segments).where(inside))
        rest = [column for column in CHANGE_COLUMNS if column != "order_key"]
        # A single task's aggregation by the sort key comes out sorted: one sort serves both.
        return (
            found.coalesce(1)
            .groupBy("order_key")
            .agg(F.min(F.struct(*rest)).alias("change"))
            .sortWithinPartitions("order_key")
            .select("change.*", "order_key")
            .select(*CHANGE_COLUMNS, F.monotonically_increasing_id().alias("ordinal"))
        )

    def _read(self, names: Sequence[str]) -> DataFrame:
        paths = [f"{self._folder}/{name}" for name in names]
        return self._spark.read.schema(CHANGE_SCHEMA).parquet(*paths)

    def _write(self, rows: DataFrame, name: str) -> None:
        ordered = rows.select(*CHANGE_COLUMNS).coalesce(1).sortWithinPartitions("order_key")
        ordered.write.mode("append").parquet(f"{self._folder}/{name}")
