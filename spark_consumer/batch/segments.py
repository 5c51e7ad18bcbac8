"""Changes that wait for the watermark, as sorted files of raw bytes, and releases made from them.

A segment is a folder with a sorted Parquet file.  Reading compares order keys with the bounds, so
Parquet's statistics skip the files' rows outside of them.  Its name holds the number of the run
that wrote it, so no two runs write to one folder.  Rows are counted when they are written and when
they are read (`change_counts`); the core compares the counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.batch.change_counts import (
    part_sums_of,
    read_part_sums,
    read_sum,
    sum_of,
    with_hash,
)
from tidegate.spark_consumer.batch.release_order import in_order
from tidegate.spark_consumer.batch.rows import (
    CHANGE_COLUMNS,
    CHANGE_SCHEMA,
    IS_PROGRESS,
    at_or_below,
    within,
)
from tidegate.spark_consumer.core.batch_state import Segment
from tidegate.spark_consumer.core.conservation import require_whole
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.sums import NO_ROWS, RowSum, SegmentRead
from tidegate.spark_consumer.sinks.sql import observed

COUNTED = "is_counted"


class ReleaseRows:
    """A release's rows, and the sums of the segments, which are known once a job has read them."""

    def __init__(
        self,
        frame: DataFrame,
        observation: Observation | None,
        inner_cuts: Sequence[bytes] = (),
    ) -> None:
        """Take a frame of `in_order` with its inner cuts, and what observes the segments in it."""
        self.frame = frame
        self.inner_cuts = tuple(inner_cuts)
        self._observation = observation

    @property
    def waiting(self) -> tuple[RowSum, int]:
        """The sum of all that was read of counted segments, and how many rows of all are due.

        Blocks until a job has read the frame.
        """
        if self._observation is None:
            return NO_ROWS, 0
        figures = observed(self._observation)
        return read_sum(figures, "read"), figures["due"] or 0


class SegmentFiles:
    """The segments below one folder, written and read by name."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        """Take the folder's whole path."""
        self._spark = spark
        self._folder = folder

    def store(self, rows: DataFrame, segment: Segment) -> tuple[RowSum, ...]:
        """Write a batch's changes within a segment's times to that segment; count its parts."""
        inside = within(after_us=segment.min_us - 1, through_us=segment.max_us)
        return self._write(rows.where(~F.col(IS_PROGRESS) & inside), segment)

    def join(
        self, output: Segment, *, reads: Sequence[SegmentRead], after_us: int
    ) -> tuple[tuple[RowSum, ...], RowSum]:
        """Write what segments hold above `after_us` to one segment.

        Returns the sums of its parts, and of all that was read of counted segments.
        """
        is_above = ~at_or_below(after_us)
        with self.readable(reads):
            waiting, observation = self._observed(reads, is_due=is_above, spark=self._spark)
            sums = self._write(waiting.where(is_above), output)
        return sums, read_sum(observed(observation), "read")

    def records(
        self, rows: DataFrame, bounds: ReleaseBounds, *, reads: Sequence[SegmentRead]
    ) -> DataFrame:
        """Return what lies within a release's bounds, with copies, in any order."""
        inside = within(after_us=bounds.after_us, through_us=bounds.through_us)
        frames = [
            rows.where(~F.col(IS_PROGRESS)),
            *(self._read(r, rows.sparkSession) for r in reads),
        ]
        due = [frame.where(inside).select(*CHANGE_COLUMNS) for frame in frames]
        return reduce(DataFrame.unionByName, due)

    def release(
        self,
        rows: DataFrame,
        bounds: ReleaseBounds,
        *,
        reads: Sequence[SegmentRead],
        chosen: Callable[[DataFrame], DataFrame] | None = None,
        inner_cuts: Sequence[bytes] = (),
    ) -> ReleaseRows:
        """Return a release's changes as `in_order` makes them; of all records those `chosen`."""
        inside = within(after_us=bounds.after_us, through_us=bounds.through_us)
        due = rows.where(~F.col(IS_PROGRESS) & inside).select(*CHANGE_COLUMNS)
        observation = None
        if reads:
            # In the session of the rows, which runs the job: only that one gets the counts.
            waiting, observation = self._observed(reads, is_due=inside, spark=rows.sparkSession)
            due = due.unionByName(waiting.where(inside).select(*CHANGE_COLUMNS))
        if chosen is not None:
            due = chosen(due)
        return ReleaseRows(in_order(due, bounds, inner_cuts), observation, inner_cuts)

    def collect(self, reads: Sequence[SegmentRead]) -> list[dict[str, Any]]:
        """Return all rows of the reads in one job, each with its hash and `COUNTED`.

        `COUNTED` says whether the row's segment was counted as it was written.
        """
        if not reads:
            return []
        frames = [self._read(read, self._spark) for read in reads]
        return [row.asDict() for row in reduce(DataFrame.unionByName, frames).collect()]

    def inspect(self, reads: Sequence[SegmentRead]) -> tuple[RowSum | None, ...]:
        """Count each read by itself, in its own job; None where that fails."""
        return tuple(self._inspected(read) for read in reads)

    @contextmanager
    def readable(self, reads: Sequence[SegmentRead]) -> Iterator[None]:
        """Raise SegmentDamaged if a job within the block fails because it cannot read a segment."""
        try:
            yield
        except (PySparkException, Py4JJavaError):
            require_whole(reads, self.inspect(reads))
            raise

    def _inspected(self, read: SegmentRead) -> RowSum | None:
        try:
            frame = self._read(read, self._spark)
            figures = frame.agg(*sum_of(F.lit(True), "read")).collect()[0]  # noqa: FBT003 - the column, not a flag
        except (PySparkException, Py4JJavaError):
            return None
        return read_sum(figures.asDict(), "read")

    def _observed(
        self, reads: Sequence[SegmentRead], *, is_due: Column, spark: SparkSession
    ) -> tuple[DataFrame, Observation]:
        frames = [self._read(read, spark) for read in reads]
        observation = Observation()
        together = reduce(DataFrame.unionByName, frames)
        due = F.count_if(is_due).alias("due")
        return together.observe(observation, *sum_of(F.col(COUNTED), "read"), due), observation

    def _read(self, read: SegmentRead, spark: SparkSession) -> DataFrame:
        frame = spark.read.schema(CHANGE_SCHEMA).parquet(f"{self._folder}/{read.name}")
        inside = within(after_us=read.after_us, through_us=read.through_us)
        is_counted = F.lit(read.expected is not None)
        return with_hash(frame.where(inside)).withColumn(COUNTED, is_counted)

    def _write(self, rows: DataFrame, segment: Segment) -> tuple[RowSum, ...]:
        observation = Observation()
        counted = with_hash(rows.select(*CHANGE_COLUMNS)).observe(
            observation, *part_sums_of(segment.cuts_us)
        )
        ordered = counted.select(*CHANGE_COLUMNS).coalesce(1).sortWithinPartitions("order_key")
        # Only this run writes to a folder of this name.
        ordered.write.mode("overwrite").parquet(f"{self._folder}/{segment.name}")
        return read_part_sums(observed(observation), segment.cuts_us)
