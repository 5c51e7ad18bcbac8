"""The ports of the effect loop: one batch's rows, and what a batch works with.

Nothing here needs Spark, so the loop also runs over rows and files in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from tidegate.lineage.frontier import ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.batch_state import Segment, State
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.plan import Plan, ReleaseBounds
from tidegate.spark_consumer.core.release import BatchStats
from tidegate.spark_consumer.core.sums import ReleaseCount, RowSum, SegmentRead
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.manifest import ManifestWriter
from tidegate.spark_consumer.sinks.port import Release, Sink


class BatchRows(Protocol):
    """The rows of one batch, and the segments that earlier batches stored.

    Every method blocks until it is done and may be called again with the same result: a replay has
    the same data rows.  Only progress rows may be fewer then, after a compaction of their topic.
    """

    def read_progress(self, *, offsets: int, data_offsets: int) -> Iterable[Sequence[ProgressRow]]:
        """Yield the batch's progress rows in portions of bounded size.

        In every slot each portion continues where the portion before it ended.  All portions
        together hold at least the newest record of each Kafka key, and at least the first and the
        last heartbeat of each minute in a long history.  `offsets` is how many offsets of the
        progress topic the batch spans, `data_offsets` how many of all data topics.  Raises
        SchemaError for a row that cannot be decoded.
        """
        ...

    def count_changes(self, *, after_us: int, through_us: int, offsets: int) -> BatchStats:
        """Count the data rows against the former and the new watermark.

        `offsets` is how many offsets of all data topics the batch spans.  Raises UndecodableRecord
        for a record that names no schema of its topic, unless such records are set aside.
        """
        ...

    def set_late_aside(self, plan: Plan) -> int:
        """Append the data rows at or below `plan.after_us` to the table of late changes, once.

        Returns how many rows of the batch the table holds.
        """
        ...

    def store_dead_letters(self, plan: Plan, release: int | None) -> int:
        """Append records that are not changes to the table of dead letters, once.

        Without `release` these are the batch's records without an order key, with it those that the
        release has counted.  Returns how many of them the table holds.
        """
        ...

    def store_segment(self, segment: Segment) -> tuple[RowSum, ...]:
        """Store the data rows within the segment's times; return a sum for each of its cuts."""
        ...

    def join_segments(
        self, output: Segment, *, reads: Sequence[SegmentRead], after_us: int
    ) -> tuple[tuple[RowSum, ...], RowSum]:
        """Store what the reads hold above `after_us` as one segment.

        Returns a sum for each cut of the output, and the sum of all rows that were read from
        counted segments.  Raises SegmentDamaged if a segment cannot be read.
        """
        ...

    def inspect_segments(self, reads: Sequence[SegmentRead]) -> tuple[RowSum | None, ...]:
        """Return what each read holds; None where it cannot be read."""
        ...

    def release(
        self,
        bounds: ReleaseBounds,
        *,
        reads: Sequence[SegmentRead],
        plan: Plan,
        topics: Mapping[str, TopicSchemas],
        complete_from_us: int,
        gaps: Sequence[PartitionGap] = (),
    ) -> AbstractContextManager[tuple[Release, ReleaseCount]]:
        """Return a release's changes, decoded and counted; its frames are valid within the block.

        Transactions up to `complete_from_us` are not counted; those in one of the accepted `gaps`
        may lack records.  Where records that cannot be decoded are set aside, they are counted and
        are not in the release; otherwise the first of them ends the batch with UndecodableRecord.

        Raises InvariantViolation if the rows are not those that the bounds promise, and
        SegmentDamaged if a segment cannot be read.
        """
        ...

    def handed_over(
        self, *, plan: Plan, topics: Mapping[str, TopicSchemas]
    ) -> AbstractContextManager[HandedBatch]:
        """Return all data rows of the batch; its frames are valid within the block."""
        ...


def _wall_us() -> int:
    return time.time_ns() // NS_PER_US


@dataclass(frozen=True, slots=True)
class Parts:
    """What every batch of a query works with; built in `spark.query`."""

    files: GateFiles
    schemas: SchemaStore
    sinks: Sequence[Sink]
    output: ManifestWriter
    subscription: Subscription
    query_id: str
    limits: Limits
    code: str
    topic_ids: Callable[[Sequence[str]], Mapping[str, str | None]]
    """Returns the ids that topics have now, None for one that does not exist; blocks.

    A topic for which Kafka has no answer is left out.
    """
    writer: int
    """This run's number among the writers of the checkpoint."""
    first_state: State | None = None
    """The state before batch 0 where the checkpoint goes on with an adopted output."""
    complete_from_us: int | None = None
    """Where the output begins to be complete, for its manifests; None: at the first change."""
    late_events: Callable[[Release], int] | None = None
    """Appends the late events of a release to their table, once; returns how many it has of it.

    It is called for releases with events of files only.
    """
    records_mismatches: bool = False
    """Whether releases that contradict their own figures are written, and say so."""
    now_us: Callable[[], int] = _wall_us
    """The wall clock, in microseconds."""
    settings_of: Callable[[Sink], AbstractContextManager[None]] = lambda _: nullcontext()
    """Gives a sink of the program's its own session settings, within the block."""
    close: Callable[[], None] = lambda: None
    """Closes the clients of the other parts, when the query has stopped; they may be used again."""
