"""The batch function: carries out what the core asks for, in its order, and brings the answers.

Nothing is decided here: which effects there are, what they wait for and what a kill between two of
them leaves behind, is `core.batch_run`.  Only how often Spark reads the batch's rows is this
module's matter.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, assert_never

from pyspark import StorageLevel
from pyspark.sql import functions as F  # noqa: N812

from tidegate.schemas.errors import InvariantViolation, invariant
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.spark_consumer.core.batch_effects import (
    DeleteFiles,
    LoadFrontier,
    LoadPlan,
    LoadState,
    ReadProgress,
    StoreFrontier,
    StorePlan,
    StoreSchemas,
    StoreState,
    TakeCensus,
)
from tidegate.spark_consumer.core.batch_events import (
    BatchBegun,
    CensusTaken,
    FrontierLoaded,
    PlanLoaded,
    ProgressRead,
    StateLoaded,
    StateStored,
)
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.files import SEGMENTS
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    ReleaseBounds,
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.errors import RunStopped
from tidegate.spark_consumer.spark.census import census_of
from tidegate.spark_consumer.spark.progress_rows import ProgressReader
from tidegate.spark_consumer.spark.release_writer import write_release
from tidegate.spark_consumer.spark.rows import CHANGE_COLUMNS, IS_PROGRESS, at_or_below
from tidegate.spark_consumer.spark.segments import SegmentFiles
from tidegate.spark_consumer.spark.sink import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from structlog.typing import FilteringBoundLogger

    from tidegate.spark_consumer.core.batch_effects import BatchEffect
    from tidegate.spark_consumer.core.batch_events import BatchEvent
    from tidegate.spark_consumer.core.batch_state import State
    from tidegate.spark_consumer.core.frontier import EndOffsets
    from tidegate.spark_consumer.core.gate import Limits
    from tidegate.spark_consumer.core.plan import Plan, Step
    from tidegate.spark_consumer.core.subscription import Subscription
    from tidegate.spark_consumer.metrics import Metrics
    from tidegate.spark_consumer.spark.gate_files import GateFiles, QueryIdentity
    from tidegate.spark_consumer.spark.schema_store import SchemaStore
    from tidegate.spark_consumer.spark.sink import Sink
    from tidegate.spark_consumer.spark.storage import Storage

__all__ = ["Batch", "LateTable", "Parts"]

_READING_ROWS = (ReadProgress, TakeCensus, SetLateAside, WriteRelease, StoreSegment)


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


@dataclass(slots=True)
class _Attempt:
    """One call of the batch function."""

    rows: DataFrame
    run: BatchRun
    log: FilteringBoundLogger
    is_kept: bool = False
    """Whether Spark was asked to keep the rows for a second reading."""

    @property
    def plan(self) -> Plan:
        """The plan that is carried out; no step comes before it."""
        if self.run.plan is None:
            raise InvariantViolation("a batch does what no plan names")
        return self.run.plan

    def keep_rows(self) -> None:
        if not self.is_kept:
            self.rows.persist(StorageLevel.MEMORY_AND_DISK)
            self.is_kept = True

    def let_rows_go(self) -> None:
        if self.is_kept:
            self.rows.unpersist()


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
        run = BatchRun(
            batch=batch,
            prefix=parts.identity.prefix,
            query_id=parts.identity.query_id,
            subscription=parts.subscription,
            limits=parts.limits,
            code=parts.code,
        )
        attempt = _Attempt(rows, run, log)
        event: BatchEvent | None = BatchBegun(parts.end_offsets(batch))
        try:
            while event is not None:
                effects = run.handle(event)
                run.check_invariants()
                if isinstance(event, PlanLoaded):
                    self._tell(event.plan, log)
                event = None
                for effect in effects:
                    invariant(event is None, "an effect follows one that was answered")
                    event = self._carry_out(effect, attempt)
        finally:
            attempt.let_rows_go()
        state = run.state
        if state is None:
            raise InvariantViolation("a batch has no more to do and has left no state", batch=batch)
        self._measure(state, attempt.plan)
        log.info(
            "batch",
            watermark_us=state.watermark_us,
            releases=len(attempt.plan.releases),
            late=attempt.plan.late_rows,
            segments=len(state.segments),
            slowest=attempt.plan.slowest,
        )
        return state

    def _carry_out(self, effect: BatchEffect, attempt: _Attempt) -> BatchEvent | None:
        """Do one effect; return the event that answers it, if it brings an answer."""
        parts, files, rows = self._parts, self._parts.files, attempt.rows
        if isinstance(effect, _READING_ROWS):
            attempt.keep_rows()
        match effect:
            case LoadState():
                return StateLoaded(files.state(effect.batch))
            case DeleteFiles():
                files.delete(effect.names)
            case LoadPlan():
                return PlanLoaded(files.plan(effect.batch))
            case LoadFrontier():
                return FrontierLoaded(files.frontier(effect.name, parts.subscription))
            case ReadProgress():
                return ProgressRead(tuple(self._progress.read(rows, offsets=effect.offsets)))
            case TakeCensus():
                return CensusTaken(
                    census_of(rows, after_us=effect.after_us, through_us=effect.through_us)
                )
            case StoreSchemas():
                parts.schemas.topics(effect.topics, parts.subscription)
            case StoreFrontier():
                files.store_frontier(effect.name, effect.frontier)
                parts.metrics.set("waiting_snapshots", effect.frontier.snapshots_waiting)
                parts.metrics.set("finished_stream_partitions", effect.frontier.finished_tokens)
            case StorePlan():
                files.store_plan(effect.plan)
            case StoreState():
                attempt.log.debug("step", step="state")
                files.store_state(effect.state)
                return StateStored()
            case _:
                self._carry_out_step(effect, attempt)
        return None

    def _carry_out_step(self, step: Step, attempt: _Attempt) -> None:
        log = attempt.log
        match step:
            case SetLateAside():
                log.debug("step", step="late")
                log.warning("late changes", rows=step.rows, watermark_us=step.through_us)
                late = attempt.rows.where(~F.col(IS_PROGRESS) & at_or_below(step.through_us))
                self._parts.late.write(
                    late.select(*CHANGE_COLUMNS),
                    query_id=attempt.plan.query_id,
                    batch=attempt.plan.batch,
                    watermark_us=step.through_us,
                )
            case WriteRelease():
                self._release(step.bounds, attempt)
            case StoreSegment():
                log.debug("step", step="pending")
                self._segments.store(attempt.rows, step.segment)
            case CompactSegments():
                log.debug("step", step="pending")
                self._segments.join(step.compaction, after_us=step.after_us)
            case _:
                assert_never(step)

    def _tell(self, found: Plan | None, log: FilteringBoundLogger) -> None:
        ours = self._parts.code
        if found is None:
            log.debug("step", step="plan")
        elif found.code != ours:
            log.warning("plan of other code is obeyed", theirs=found.code, ours=ours)

    def _release(self, bounds: ReleaseBounds, attempt: _Attempt) -> None:
        parts, plan, log = self._parts, attempt.plan, attempt.log
        log.debug("step", step="release", release=bounds.number)
        released = self._segments.release(attempt.rows, bounds)
        released.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            release = Release(
                number=bounds.number,
                after_us=bounds.after_us,
                through_us=bounds.through_us,
                query_id=plan.query_id,
                batch=plan.batch,
                rows=released,
                topics=parts.schemas.topics(plan.topics, parts.subscription),
            )
            count = write_release(release, sinks=parts.sinks, output=parts.output, log=log)
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
