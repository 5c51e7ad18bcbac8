"""The rows of one batch as Spark holds them: the port `BatchRows` over a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.order_key import first_key_after
from tidegate.schemas.progress import PartitionGap
from tidegate.schemas.wire_format import HEADER_BYTES
from tidegate.spark_consumer.batch.bad_records import (
    BadRecords,
    as_dead_letters,
    frame_of,
    naming_undecodable,
    place_of,
    readable_rows,
    reasons_of,
    unordered_rows,
    unreadable_rows,
    without,
)
from tidegate.spark_consumer.batch.change_counts import (
    CollectedBatch,
    RecordFrame,
    collect_batch,
    count_changes,
    sum_of_changes,
    topics_of,
)
from tidegate.spark_consumer.batch.progress_rows import ROWS_TAKEN_WHOLE_MAX, ProgressReader
from tidegate.spark_consumer.batch.release_order import find_inner_cuts
from tidegate.spark_consumer.batch.releases import collected_release, decoded_release, handed_batch
from tidegate.spark_consumer.batch.rows import (
    CHANGE_COLUMNS,
    IS_PROGRESS,
    ORDER_KEY_BYTES_MIN,
    at_or_below,
    within,
)
from tidegate.spark_consumer.batch.segments import COUNTED, SegmentFiles
from tidegate.spark_consumer.batch.transaction_sums import count_collected, count_ordered
from tidegate.spark_consumer.core.batch_state import Segment, TopicIds
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.release import BatchStats
from tidegate.spark_consumer.core.sums import ReleaseCount, RowSum, SegmentRead
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.errors import UndecodableRecord
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import Release


class LateRows(Protocol):
    """Where changes at or below the former watermark are kept."""

    def write(self, rows: DataFrame, *, query_id: str, batch: int, watermark_us: int) -> int:
        """Append a batch's late changes (the gate's columns); idempotent by the batch.

        Returns how many rows of the batch were written, by this call or an earlier one.
        """
        ...


class SparkRows:
    """A batch's rows; its changes are read from Kafka at most once until `close`."""

    def __init__(
        self,
        frame: DataFrame,
        *,
        segments: SegmentFiles,
        progress: ProgressReader,
        late: LateRows,
        collects: bool = False,
        limits: Limits | None = None,
        bad: BadRecords | None = None,
    ) -> None:
        """Take the frame of a batch, with the gate's columns; reads nothing yet.

        Without `bad`, schema ids are not looked up and no record is set aside.

        `collects` says whether small releases are collected, and batches that are as small by
        `limits`; otherwise Spark counts, makes and writes them too.
        """
        self._frame = frame
        self._segments = segments
        self._progress = progress
        self._late = late
        self._collects = collects
        self._limits = limits or Limits()
        self._batch: CollectedBatch | None = None
        self._is_left_to_spark = not collects
        self._kept: DataFrame | None = None
        self._bad = bad
        self._unreadable: DataFrame | None = None

    def close(self) -> None:
        """Free the memory that Spark keeps the rows in."""
        if self._kept is not None:
            self._kept.unpersist()

    def read_progress(self, *, offsets: int, data_offsets: int) -> Iterator[Sequence[ProgressRow]]:
        """Yield the batch's progress rows: one Spark job, also for the changes if they are few."""
        if offsets > ROWS_TAKEN_WHOLE_MAX:
            self._is_left_to_spark = True
        if (batch := self._collected(data_offsets)) is not None:
            return self._progress.decode(batch.progress)
        # Together with changes, so that Kafka is read once; but a long history is never kept.
        if data_offsets and offsets <= ROWS_TAKEN_WHOLE_MAX:
            self._keep(self._frame)
        return self._progress.read(self._frame, offsets=offsets)

    def count_changes(self, *, after_us: int, through_us: int, offsets: int) -> BatchStats:
        """Count the data rows: one Spark job, or none if they are collected."""
        if (batch := self._collected(offsets)) is not None:
            stats = batch.count(after_us=after_us, through_us=through_us, topics_of=self._topics_of)
        else:
            stats = count_changes(
                self._persisted,
                after_us=after_us,
                through_us=through_us,
                topics_of=self._topics_of,
            )
        if not self._sets_aside:
            return stats
        return replace(stats, unordered_rows=0, unordered_at="", dead_letters=stats.unordered_rows)

    def store_dead_letters(self, plan: Plan, release: int | None) -> int:
        """Append dead letters to their table, in a Spark job; return how many it holds."""
        if self._bad is None or (release is not None and self._unreadable is None):
            raise InvariantViolation(
                "a plan sets records aside that were not found", batch=plan.batch, release=release
            )
        if release is None or self._unreadable is None:
            rows = unordered_rows(self._frame)
        else:
            rows = as_dead_letters(self._unreadable)
        return self._bad.table.write(
            rows, query_id=plan.query_id, batch=plan.batch, release=release
        )

    def set_late_aside(self, plan: Plan) -> int:
        """Append the late rows to their table; return how many it holds of the batch."""
        late = self._persisted.where(at_or_below(plan.after_us))
        return self._late.write(
            late.select(*CHANGE_COLUMNS),
            query_id=plan.query_id,
            batch=plan.batch,
            watermark_us=plan.after_us,
        )

    @contextmanager
    def handed_over(
        self, *, plan: Plan, topics: Mapping[str, TopicSchemas]
    ) -> Iterator[HandedBatch]:
        """Return the batch's changes; one Spark job counts them."""
        rows = self._persisted
        with naming_undecodable(rows, topics, release=plan.batch):
            yield handed_batch(rows, plan=plan, topics=topics, sets_aside=self._sets_aside)

    def store_segment(self, segment: Segment) -> tuple[RowSum, ...]:
        """Store the data rows within the segment's times."""
        return self._segments.store(self._persisted, segment)

    def join_segments(
        self, output: Segment, *, reads: Sequence[SegmentRead], after_us: int
    ) -> tuple[tuple[RowSum, ...], RowSum]:
        """Join segments; the batch's own rows are not read."""
        return self._segments.join(output, reads=reads, after_us=after_us)

    def inspect_segments(self, reads: Sequence[SegmentRead]) -> tuple[RowSum | None, ...]:
        """Count each read in its own job."""
        return self._segments.inspect(reads)

    @contextmanager
    def release(
        self,
        bounds: ReleaseBounds,
        *,
        reads: Sequence[SegmentRead],
        plan: Plan,
        topics: Mapping[str, TopicSchemas],
        complete_from_us: int,
        gaps: Sequence[PartitionGap] = (),
    ) -> Iterator[tuple[Release, ReleaseCount]]:
        """Return a release's changes: counted in two Spark jobs, or in one that collects them."""
        with ExitStack() as opened:
            with self._segments.readable(reads):
                if bounds.is_small and self._collects:
                    release, count = self._small_release(
                        bounds, reads=reads, plan=plan, topics=topics
                    )
                    faults = count_collected(release, complete_from_us=complete_from_us, gaps=gaps)
                else:
                    bad = self._find_unreadable(bounds, reads, topics)
                    chosen = (lambda records: readable_rows(records, topics)) if bad else None
                    cuts = self._inner_cuts(bounds, reads, plan)
                    rows = self._segments.release(
                        self._persisted, bounds, reads=reads, chosen=chosen, inner_cuts=cuts
                    )
                    release, count = opened.enter_context(
                        decoded_release(rows, bounds, plan=plan, topics=topics)
                    )
                    count = replace(count, dead_letters=bad)
                    number = bounds.number
                    opened.enter_context(naming_undecodable(rows.frame, topics, release=number))
                    # Decoded again for the sinks: those rows are not kept, and this is one field
                    # in ten.
                    faults = count_ordered(
                        rows.frame,
                        bounds,
                        topics=topics,
                        complete_from_us=complete_from_us,
                        gaps=gaps,
                        inner_cuts=cuts,
                    )
            yield release, replace(count, transactions=faults)

    def _small_release(
        self,
        bounds: ReleaseBounds,
        *,
        reads: Sequence[SegmentRead],
        plan: Plan,
        topics: Mapping[str, TopicSchemas],
    ) -> tuple[Release, ReleaseCount]:
        low, high = first_key_after(bounds.after_us), first_key_after(bounds.through_us)
        stored = self._segments.collect(reads)
        waiting = [record for record in stored if low <= record["order_key"] < high]
        records = [*self._due(bounds), *waiting]

        def make(
            records: Sequence[Mapping[str, Any]],
            chosen: Callable[[DataFrame], DataFrame] | None = None,
        ) -> tuple[Release, ReleaseCount]:
            return collected_release(
                records,
                bounds,
                plan=plan,
                topics=topics,
                spark=self._frame.sparkSession,
                in_order=lambda: (
                    self._segments.release(
                        self._persisted, bounds, reads=reads, chosen=chosen
                    ).frame
                ),
            )

        release, count = self._made_readable(records, topics, make)
        read = sum_of_changes(record for record in stored if record[COUNTED])
        return release, replace(count, waiting=read, waiting_due=len(waiting))

    def _made_readable(
        self,
        records: Sequence[Mapping[str, Any]],
        topics: Mapping[str, TopicSchemas],
        make: Callable[..., tuple[Release, ReleaseCount]],
    ) -> tuple[Release, ReleaseCount]:
        """Make a small release, without what cannot be decoded where that is set aside."""
        try:
            made = make(records)
            if not self._sets_aside or made[1].conflict is None:
                return made
        except UndecodableRecord:
            if not self._sets_aside:
                raise
        # Only now: almost no release has such a record.
        reasons = reasons_of(records, topics)
        self._unreadable = frame_of(self._frame.sparkSession, records, reasons)
        readable = [record for record in records if place_of(record) not in reasons]
        release, count = make(readable, lambda rows: without(rows, reasons))
        return release, replace(count, dead_letters=len(reasons))

    def _inner_cuts(
        self, bounds: ReleaseBounds, reads: Sequence[SegmentRead], plan: Plan
    ) -> tuple[bytes, ...]:
        """Return where a large release is cut besides at commit times: one Spark job, or none."""
        limits = self._limits
        waiting = sum(read.expected.rows for read in reads if read.expected is not None)
        fresh = 0 if plan.fresh is None else plan.fresh.due_rows
        slice_rows: float = limits.slice_rows
        if limits.release_bytes_max:
            # A wide change counts as several, as in the plan's own cuts.
            row_bytes = limits.release_bytes_max / limits.release_rows_max
            slice_rows /= max(1.0, plan.change_bytes / row_bytes)
        return find_inner_cuts(
            self._segments.records(self._persisted, bounds, reads=reads),
            bounds,
            rows_max=waiting + fresh,
            slice_rows=slice_rows,
        )

    def _find_unreadable(
        self,
        bounds: ReleaseBounds,
        reads: Sequence[SegmentRead],
        topics: Mapping[str, TopicSchemas],
    ) -> int:
        """Return how many records of a large release cannot be decoded: one Spark job."""
        if not self._sets_aside:
            return 0
        records = self._segments.records(self._persisted, bounds, reads=reads)
        self._unreadable = unreadable_rows(records, topics)
        return self._unreadable.count()

    @property
    def _sets_aside(self) -> bool:
        return self._bad is not None and self._bad.sets_aside

    def _topics_of(self, frames: Iterable[RecordFrame]) -> tuple[TopicIds, ...]:
        if self._bad is None:
            return topics_of(frames)
        return self._bad.ids.topics_of(frames, find=self._find)

    def _find(self, topic: str, column: str, head: bytes) -> Mapping[str, int]:
        """Return the place of a record, in its own Spark job: it ends the batch."""
        begins = F.coalesce(F.substring(column, 1, HEADER_BYTES), F.lit(bytearray()))
        records = self._persisted.where(
            (F.col("topic") == topic)
            & (begins == F.lit(bytearray(head)))
            & (F.length("order_key") >= ORDER_KEY_BYTES_MIN)
        )
        row = (
            records.orderBy("topic_partition", "offset").select("topic_partition", "offset").first()
        )
        return {} if row is None else row.asDict()

    def _due(self, bounds: ReleaseBounds) -> Sequence[Mapping[str, Any]]:
        """Return the batch's own changes of a release; a job where they are not collected."""
        if self._batch is not None:
            return self._batch.due(after_us=bounds.after_us, through_us=bounds.through_us)
        inside = within(after_us=bounds.after_us, through_us=bounds.through_us)
        due = self._persisted.where(inside).select(*CHANGE_COLUMNS)
        return [row.asDict() for row in due.collect()]

    def _collected(self, data_offsets: int) -> CollectedBatch | None:
        """Return the whole batch, collected when it is first asked for; None if it is large."""
        if data_offsets > self._limits.small_release_rows_max:
            self._is_left_to_spark = True
        if self._batch is None and not self._is_left_to_spark:
            # A power of two: Spark would compile its code again for each other number.
            rows_max = 1 << max(0, data_offsets - 1).bit_length()
            change_bytes_max = self._limits.small_release_bytes_max // rows_max
            self._batch = collect_batch(self._frame, change_bytes_max=change_bytes_max)
            self._is_left_to_spark = self._batch is None
        return self._batch

    @property
    def _persisted(self) -> DataFrame:
        """The changes, kept by Spark from their first use on: most batches read them often."""
        if self._kept is None:
            self._keep(self._frame.where(f"NOT {IS_PROGRESS}"))
        return self._frame.where(f"NOT {IS_PROGRESS}")

    def _keep(self, rows: DataFrame) -> None:
        rows.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept = rows
