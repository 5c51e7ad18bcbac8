"""The batch function: executes what the core decides, in the order that survives a kill anywhere.

    state N-1 -> frontier N -> plan N, unless it is there -> late rows, releases, segments -> state
    N

A replay finds the plan, reads no progress rows and repeats the same effects: sinks recognise a
release by its number, segments are replaced by equal ones.  Nothing is decided here.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, assert_never

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.order_key import first_key_after
from tidegate.spark_consumer.core.files import SEGMENTS
from tidegate.spark_consumer.core.gate import (
    Census,
    Gate,
    Limits,
    after,
    no_longer_needed,
    require_same_batch,
)
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    ReleaseBounds,
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.errors import RunStopped
from tidegate.spark_consumer.spark.census import census_of
from tidegate.spark_consumer.spark.manifest import Manifest, write_manifest
from tidegate.spark_consumer.spark.progress_rows import ProgressReader
from tidegate.spark_consumer.spark.rows import CHANGE_COLUMNS, IS_PROGRESS, at_or_below
from tidegate.spark_consumer.spark.segments import SegmentFiles
from tidegate.spark_consumer.spark.sink import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from structlog.typing import FilteringBoundLogger

    from tidegate.spark_consumer.core.batch_state import State
    from tidegate.spark_consumer.core.frontier import EndOffsets
    from tidegate.spark_consumer.core.plan import Plan, Step
    from tidegate.spark_consumer.core.subscription import Subscription
    from tidegate.spark_consumer.metrics import Metrics
    from tidegate.spark_consumer.spark.gate_files import GateFiles, QueryIdentity
    from tidegate.spark_consumer.spark.schema_store import SchemaStore
    from tidegate.spark_consumer.spark.sink import Sink, TableVersion
    from tidegate.spark_consumer.spark.storage import Storage

__all__ = ["Batch", "LateTable", "Parts"]


class LateTable(Protocol):
    """Where changes go that came at or below the watermark."""

    def write(self, rows: DataFrame, *, query_id: str, batch: int, watermark_us: int) -> None:
        """Append a batch's late changes (the gate's columns); idempotent by the batch."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a batch works with; wired in `query`."""

    files: GateFiles
    gate: Storage
    output: Storage
    schemas: SchemaStore
    sinks: Sequence[Sink]
    late: LateTable
    end_offsets: Callable[[int], EndOffsets]
    subscription: Subscription
    identity: QueryIdentity
    limits: Limits
    code: str
    log: FilteringBoundLogger
    metrics: Metrics


class Batch:
    """Called by Spark with each batch's rows.

    `finished` is told each new state.  After `stop` no further batch begins: a call fails, so that
    Spark commits nothing that was not done.
    """

    def __init__(self, spark: SparkSession, parts: Parts) -> None:
        """Wait for Spark's first call."""
        self._parts = parts
        self._segments = SegmentFiles(spark, parts.gate.path(SEGMENTS))
        self._progress = ProgressReader(parts.schemas.schema)
        self._stopping = threading.Event()
        self._running = threading.Lock()
        self.failure: BaseException | None = None
        self.finished: Callable[[State], None] = lambda _: None

    def stop(self) -> None:
        """Begin no further batch; returns when none is running."""
        self._stopping.set()
        with self._running:
            pass

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Do batch `batch` with all its rows, or do it again."""
        with self._running:
            if self._stopping.is_set():
                message = "the run is being stopped"
                raise RunStopped(message, batch=batch)
            try:
                state = self._run(rows, batch)
            except BaseException as error:
                # Spark passes a stack trace on as text; whoever runs the query wants the error.
                self.failure = error
                raise
        self.finished(state)

    def _run(self, rows: DataFrame, batch: int) -> State:
        parts = self._parts
        log = parts.log.bind(batch=batch)
        log.debug("step", step="load")
        before = parts.files.state(batch - 1, parts.identity)
        parts.files.delete(no_longer_needed(before))
        end_offsets = parts.end_offsets(batch)
        plan = parts.files.plan(batch)
        if plan is not None:
            require_same_batch(before, plan, end_offsets=end_offsets)
            if plan.code != parts.code:
                log.warning("plan of other code is obeyed", theirs=plan.code, ours=parts.code)
        if plan is None or plan.steps:
            rows.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                if plan is None:
                    log.debug("step", step="plan")
                    plan = self._plan(rows, before, end_offsets)
                for step in plan.steps:
                    self._execute(step, rows, plan, log)
            finally:
                rows.unpersist()
        log.debug("step", step="state")
        state = after(before, plan)
        parts.files.store_state(state)
        self._measure(state, plan)
        log.info(
            "batch",
            watermark_us=state.watermark_us,
            releases=len(plan.releases),
            late=plan.late_rows,
            segments=len(state.segments),
            slowest=plan.slowest,
        )
        return state

    def _plan(self, rows: DataFrame, before: State, end_offsets: EndOffsets) -> Plan:
        parts = self._parts
        known = parts.files.frontier(before.frontier, parts.subscription)
        gate = Gate(before, known, limits=parts.limits, code=parts.code)
        moved = _offsets_moved(before.end_offsets or {}, end_offsets)
        topic = parts.subscription.progress_topic
        offsets = moved.pop(topic, 0)
        progress = self._progress.read(rows, offsets=offsets) if offsets else []
        through_us = gate.fold(progress, end_offsets=end_offsets)
        census = Census()
        if any(moved.values()):
            census = census_of(rows, after_us=before.watermark_us, through_us=through_us)
        plan = gate.decide(census)
        # Every schema that the plan names is stored with it: a replay asks no registry.
        parts.schemas.topics(plan.topics, parts.subscription)
        parts.files.store_plan(plan, gate.frontier)
        parts.metrics.set("waiting_snapshots", gate.frontier.snapshots_waiting)
        parts.metrics.set("finished_stream_partitions", gate.frontier.finished_tokens)
        return plan

    def _execute(self, step: Step, rows: DataFrame, plan: Plan, log: FilteringBoundLogger) -> None:
        match step:
            case SetLateAside():
                log.debug("step", step="late")
                log.warning("late changes", rows=step.rows, watermark_us=step.through_us)
                late = rows.where(~F.col(IS_PROGRESS) & at_or_below(step.through_us))
                self._parts.late.write(
                    late.select(*CHANGE_COLUMNS),
                    query_id=plan.query_id,
                    batch=plan.batch,
                    watermark_us=step.through_us,
                )
            case WriteRelease():
                self._release(step.bounds, rows, plan, log)
            case StoreSegment():
                log.debug("step", step="pending")
                self._segments.store(rows, step.segment)
            case CompactSegments():
                log.debug("step", step="pending")
                self._segments.join(step.compaction, after_us=step.after_us)
            case _:
                assert_never(step)

    def _release(
        self, bounds: ReleaseBounds, rows: DataFrame, plan: Plan, log: FilteringBoundLogger
    ) -> None:
        parts = self._parts
        log.debug("step", step="release", release=bounds.number)
        released = self._segments.release(rows, bounds).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            count = _checked_count(released, bounds)
            release = Release(
                number=bounds.number,
                after_us=bounds.after_us,
                through_us=bounds.through_us,
                query_id=plan.query_id,
                batch=plan.batch,
                rows=released,
                topics=parts.schemas.topics(plan.topics, parts.subscription),
            )
            tables: dict[str, dict[str, TableVersion]] = {}
            for sink in parts.sinks:
                log.debug("step", step=f"sink-{sink.name}", release=bounds.number)
                for table, version in sink.write(release).items():
                    tables.setdefault(table, {})[sink.name] = version
            log.debug("step", step="manifest", release=bounds.number)
            manifest = Manifest(
                release=bounds.number,
                query_id=plan.query_id,
                batch=plan.batch,
                after_us=bounds.after_us,
                through_us=bounds.through_us,
                rows=count,
                tables=tables,
            )
            write_manifest(parts.output, manifest)
        finally:
            released.unpersist()
        parts.metrics.add("released_changes_total", count)
        parts.metrics.add("releases_total", 1)

    def _measure(self, state: State, plan: Plan) -> None:
        metrics = self._parts.metrics
        metrics.set("watermark_seconds", state.watermark_us / US_PER_SECOND)
        metrics.set("waiting_changes", sum(segment.rows for segment in state.segments))
        metrics.set("waiting_segments", len(state.segments))
        metrics.add("late_changes_total", plan.late_rows)


def _offsets_moved(before: EndOffsets, now: EndOffsets) -> dict[str, int]:
    """Return, by topic, how many offsets a batch spans."""
    return {
        topic: sum(end - before.get(topic, {}).get(p, 0) for p, end in ends.items())
        for topic, ends in now.items()
    }


def _checked_count(released: DataFrame, bounds: ReleaseBounds) -> int:
    """Return a release's size; raises InvariantViolation if its rows are not what it promises."""
    found = released.agg(
        F.count("*").alias("rows"),
        F.min("order_key").alias("first"),
        F.max("order_key").alias("last"),
        F.max("ordinal").alias("ordinal_max"),
    ).collect()[0]
    count = int(found["rows"])
    if count:
        invariant(
            bytes(found["first"]) >= first_key_after(bounds.after_us)
            and bytes(found["last"]) < first_key_after(bounds.through_us),
            "a release holds changes outside its bounds",
            release=bounds.number,
        )
        invariant(
            found["ordinal_max"] == count - 1,
            "a release's ordinals are not dense",
            release=bounds.number,
        )
    return count
