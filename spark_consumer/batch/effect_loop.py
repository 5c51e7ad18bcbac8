"""Runs one batch: executes the core's effects in its order, and sends it their answers.

The loop decides nothing.  Which effects there are, their order, and why a kill between any two of
them is safe is in `core.batch_run`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, assert_never

from tidegate.lineage.frontier import EndOffsets, Frontier, ProgressRow
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.batch.ports import BatchRows, Parts
from tidegate.spark_consumer.core.batch_effects import (
    BatchEffect,
    CountChanges,
    CountRelease,
    DeleteFiles,
    DescribeTopics,
    DropManifests,
    HandOver,
    InspectSegments,
    LoadFrontier,
    LoadPlan,
    LoadState,
    ReadMoreProgress,
    ReadProgress,
    StoreFrontier,
    StorePlan,
    StoreSchemas,
    StoreState,
    require_handed,
)
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    MergeMirror,
    Plan,
    ReleaseBounds,
    SetLateAside,
    StoreDeadLetters,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.proof import Mismatch
from tidegate.spark_consumer.core.sums import ReleaseCount
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, by_table, row_columns
from tidegate.spark_consumer.sinks.handed_batch import BatchSink
from tidegate.spark_consumer.sinks.manifest import drop_manifests
from tidegate.spark_consumer.sinks.port import AdmittingSink, MergingSink, Release, Sink
from tidegate.spark_consumer.sinks.release_writer import (
    merge_mirrors,
    merging_sinks,
    write_release,
)


@dataclass(frozen=True, slots=True)
class LoopStep:
    """What the loop does next: the word for log lines, and the release that it belongs to."""

    name: str
    release: int | None = None


_Answered: TypeAlias = "Generator[LoopStep, None, Any]"
"""Yields each step before it is done; returns the answer of the effect, None if it has none."""


class EffectLoop:
    """One attempt at one batch; `steps` runs it.  Its figures are complete when that has ended."""

    def __init__(
        self, batch: int, rows: BatchRows, *, end_offsets: EndOffsets, parts: Parts
    ) -> None:
        """Do nothing before `steps`."""
        self._rows = rows
        self._end_offsets = end_offsets
        self._parts = parts
        self._run = BatchRun(
            batch=batch,
            prefix=parts.subscription.names.prefix,
            query_id=parts.query_id,
            subscription=parts.subscription,
            limits=parts.limits,
            code=parts.code,
            sinks=tuple(sink.name for sink in parts.sinks),
            writer=parts.writer,
            first=parts.first_state,
            complete_from_us=BEFORE_EVERYTHING_US
            if parts.complete_from_us is None
            else parts.complete_from_us,
            records_mismatches=parts.records_mismatches,
            takers=tuple(sink.name for sink in parts.sinks if isinstance(sink, BatchSink)),
        )
        self._opened = ExitStack()
        self._release: Release | None = None
        self._progress: Iterator[Sequence[ProgressRow]] = iter(())
        self._fresh_times_us: tuple[int, ...] = ()
        self._waiting_times_us: dict[str, tuple[int, ...]] = {}
        self.input_rows = 0
        """Rows read, progress rows included; 0 in a replay that executes a stored plan."""
        self.released_rows = 0
        self.release_rows: dict[int, int] = {}
        """The changes of each release that was written, by its number."""
        self.table_rows: Counter[str] = Counter()
        """The changes of these releases by table."""
        self.released_times_us: list[int] = []
        """Commit timestamps of released changes: of the batch's own and of each segment up to 64,
        evenly spaced."""
        self.copies = 0
        """Records that were left out of the releases because they repeat a change."""
        self.recorded = 0
        """Mismatches of the batch's releases, which were written all the same."""
        self.mismatches: list[Mismatch] = []
        """The first of them, of each release."""
        self.dead_letters = 0
        """Records that were set aside because they are not changes."""
        self.late_events = 0
        """Changes of the releases that came too late for their place in the order."""
        self.frontier: Frontier | None = None
        """The frontier that the batch stored; None in a replay that executes a stored plan."""

    @property
    def plan(self) -> Plan:
        """The plan that is executed; no step of it comes before the plan."""
        if self._run.plan is None:
            raise InvariantViolation("batch step without a plan")
        return self._run.plan

    @property
    def state(self) -> State:
        """The state that the batch leaves, once it is stored."""
        if self._run.state is None:
            raise InvariantViolation("the batch is not finished")
        return self._run.state

    def steps(self) -> Iterator[LoopStep]:
        """Run the batch; yields each step before it is done, and returns when the state is stored.

        Dropping the iterator between two steps is like a kill there: another attempt at the batch
        may follow.  Raises what the core and the parts raise.
        """
        effects = self._run.effects(self._end_offsets, self._parts.now_us())
        answer: Any = None
        with self._opened:
            while True:
                try:
                    effect = effects.send(answer)
                except StopIteration:
                    return
                answer = yield from self._execute(effect)

    def _execute(self, effect: BatchEffect) -> _Answered:
        match effect:
            case LoadState() | LoadPlan() | LoadFrontier() | DeleteFiles():
                yield LoopStep("load")
                return self._load(effect)
            case DescribeTopics() | ReadProgress() | ReadMoreProgress() | CountChanges():
                yield LoopStep("plan")
                return self._read(effect)
            case StoreSchemas() | StoreFrontier() | StorePlan():
                yield LoopStep("plan")
                self._store(effect)
            case HandOver():
                yield from self._hand_over(effect)
            case StoreDeadLetters():
                yield LoopStep("dead-letters", effect.release)
                self._require_writer()
                stored = self._rows.store_dead_letters(self.plan, effect.release)
                self.dead_letters += stored
                return stored
            case SetLateAside():
                yield LoopStep("late")
                self._require_writer()
                return self._rows.set_late_aside(self.plan)
            case CountRelease():
                yield LoopStep("release", effect.bounds.number)
                return self._count_release(effect)
            case InspectSegments():
                yield LoopStep("inspect")
                return self._rows.inspect_segments(effect.reads)
            case WriteRelease():
                yield from self._write_release(effect)
            case DropManifests():
                yield LoopStep("drop-manifests")
                drop_manifests(self._parts.output, before=effect.before)
            case MergeMirror():
                yield from self._merge_mirrors(effect)
            case StoreSegment():
                yield LoopStep("pending")
                self._require_writer()
                return self._rows.store_segment(effect.segment)
            case CompactSegments():
                yield LoopStep("pending")
                self._require_writer()
                output = effect.compaction.output
                return self._rows.join_segments(
                    output, reads=effect.reads, after_us=effect.after_us
                )
            case StoreState():
                yield LoopStep("state")
                self._parts.files.store_state(effect.state, effect.files)
            case _:
                assert_never(effect)
        return None

    def _require_writer(self) -> None:
        """Raise WriterReplaced if another run has taken the checkpoint.

        Rows are written past the gate's files, which refuse a replaced run by themselves.
        """
        self._parts.files.require_writer()

    def _load(self, effect: LoadState | LoadPlan | LoadFrontier | DeleteFiles) -> Any:
        files = self._parts.files
        match effect:
            case LoadState():
                state = files.state(effect.batch)
                segments = () if state is None else state.segments
                self._waiting_times_us = {
                    segment.name: segment.quantiles_us for segment in segments
                }
                return state
            case LoadPlan():
                return files.plan(effect.batch)
            case LoadFrontier():
                return files.frontier(effect.name, self._parts.subscription)
            case DeleteFiles():
                return files.delete(effect.names)
            case _:
                assert_never(effect)

    def _read(self, effect: DescribeTopics | ReadProgress | ReadMoreProgress | CountChanges) -> Any:
        match effect:
            case DescribeTopics():
                return self._parts.topic_ids(effect.topics)
            case ReadProgress():
                portions = self._rows.read_progress(
                    offsets=effect.offsets, data_offsets=effect.data_offsets
                )
                self._progress = iter(portions)
                return self._next_portion()
            case ReadMoreProgress():
                return self._next_portion()
            case CountChanges():
                stats = self._rows.count_changes(
                    after_us=effect.after_us,
                    through_us=effect.through_us,
                    offsets=effect.offsets,
                )
                self.input_rows += stats.rows
                self._fresh_times_us = stats.due.quantiles_us
                return stats
            case _:
                assert_never(effect)

    def _next_portion(self) -> Sequence[ProgressRow] | None:
        portion = next(self._progress, None)
        self.input_rows += 0 if portion is None else len(portion)
        return portion

    def _store(self, effect: StoreSchemas | StoreFrontier | StorePlan) -> None:
        parts = self._parts
        match effect:
            case StoreSchemas():
                parts.schemas.topics(effect.topics, parts.subscription)
            case StoreFrontier():
                parts.files.store_frontier(effect.name, effect.log, effect.stored)
                self.frontier = effect.log.frontier
            case StorePlan():
                parts.files.store_plan(effect.plan)
            case _:
                assert_never(effect)

    def _count_release(self, effect: CountRelease) -> ReleaseCount:
        parts = self._parts
        topics = parts.schemas.topics(self.plan.topics, parts.subscription)
        self._admit(topics)
        self._release, count = self._opened.enter_context(
            self._rows.release(
                effect.bounds,
                reads=effect.reads,
                plan=self.plan,
                topics=topics,
                complete_from_us=effect.complete_from_us,
                gaps=effect.gaps,
            )
        )
        return replace(count, leaves_out=any(schemas.excludes for schemas in topics.values()))

    def _hand_over(self, effect: HandOver) -> Iterator[LoopStep]:
        parts, plan = self._parts, self.plan
        topics = parts.schemas.topics(plan.topics, parts.subscription)
        self._admit(topics)
        with self._rows.handed_over(plan=plan, topics=topics) as batch:
            require_handed(batch.rows + batch.left_out, effect, batch=batch.number)
            for sink in self._sinks(effect.sinks):
                yield LoopStep(f"hand-over-{sink.name}")
                self._require_writer()
                if isinstance(sink, BatchSink):
                    with parts.settings_of(sink):
                        sink.take(batch)

    def _admit(self, topics: Mapping[str, TopicSchemas]) -> None:
        """Let the sinks refuse a table before one of them has written anything."""
        for sink in self._sinks(self.plan.sinks):
            if isinstance(sink, AdmittingSink):
                sink.admit(by_table(topics).values())

    def _write_release(self, step: WriteRelease) -> Iterator[LoopStep]:
        parts, release = self._parts, self._release
        if release is None:
            raise InvariantViolation("a release was not counted", release=step.bounds.number)
        if parts.late_events is not None and _has_events(release):
            yield LoopStep("late-events", release.number)
            self._require_writer()
            self.late_events += parts.late_events(release)
        stands_at = step.mirror_at
        writing = write_release(
            release,
            sinks=self._sinks(step.sinks),
            settings_of=parts.settings_of,
            output=parts.output,
            complete_from_us=parts.complete_from_us,
            waiting_mirrors=None if stands_at is None else (self._mirrors(), stands_at),
            mismatches=step.mismatches,
            first_mismatches=step.first_mismatches,
            gaps=step.gaps,
        )
        self.recorded += step.mismatches
        self.mismatches += step.first_mismatches
        yield from self._as_writer(writing, step.bounds.number)
        self.released_rows += release.rows
        self.release_rows[release.number] = release.rows
        self.table_rows.update(
            {table.schemas.table: table.rows for table in release.tables.values()}
        )
        self.copies += release.copies
        self._note_times(step.bounds)
        self._release = None
        self._opened.close()

    def _note_times(self, bounds: ReleaseBounds) -> None:
        """Note when changes of a release were committed, now that its manifest is written."""
        waiting = (self._waiting_times_us.get(name, ()) for name in bounds.segments)
        for times_us in (self._fresh_times_us, *waiting):
            inside = {us for us in times_us if bounds.after_us < us <= bounds.through_us}
            self.released_times_us += inside

    def _merge_mirrors(self, step: MergeMirror) -> Iterator[LoopStep]:
        parts = self._parts
        topics = parts.schemas.topics(step.topics, parts.subscription)
        self._admit(topics)
        merging = merge_mirrors(
            step,
            plan=self.plan,
            mirrors=self._mirrors(),
            topics=by_table(topics),
            output=parts.output,
        )
        yield from self._as_writer(merging, step.through)

    def _as_writer(self, steps: Iterator[str], release: int) -> Iterator[LoopStep]:
        """Pass the steps on; each is done only while this run is the checkpoint's writer."""
        for name in steps:
            yield LoopStep(name, release)
            self._require_writer()

    def _mirrors(self) -> list[MergingSink]:
        return merging_sinks(self._parts.sinks, self.plan.sinks)

    def _sinks(self, names: Sequence[str]) -> list[Sink]:
        """Return the sinks that a plan names, in its order."""
        by_name = {sink.name: sink for sink in self._parts.sinks}
        return [by_name[name] for name in names]


def _has_events(release: Release) -> bool:
    """Whether a release has changes that came out of order, as those of files do."""
    return any(
        table.rows and SOURCE_ORDER in row_columns(table.schemas.reader_schema)
        for table in release.tables.values()
    )
