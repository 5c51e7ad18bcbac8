"""One batch from its start to its stored state: its effects and their order.

    state N-1 -> files to delete -> plan N, if it is stored: execute it
                                 -> else frontier N-1 -> topics -> progress -> stats
                                 -> frontier N, plan N
    plan N -> hand over -> its steps -> state N

Each release is counted before it is written, and each segment while it is written.  A count that
contradicts the plan or the state ends the batch before the sink's commit (`conservation`), and so
does a release that contradicts its records or markers (`release_check`), unless mismatches are
recorded.

The plan is stored before the first effect that it names and the state after the last.  A kill
between any two effects is therefore safe: the batch starts again and repeats them.  A replay that
finds a plan executes it and looks at neither frontier nor rows.  Nothing but the state is carried
to the next batch.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias, TypeVar, assert_never

from tidegate.lineage.frontier import EndOffsets, Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.batch_effects import (
    BatchEffect,
    CountChanges,
    CountRelease,
    DeleteFiles,
    DescribeTopics,
    DropManifests,
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
    hand_over,
)
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, Segment, State
from tidegate.spark_consumer.core.conservation import Balance, is_whole, require_whole
from tidegate.spark_consumer.core.file_names import frontier_name, list_part, segment_name
from tidegate.spark_consumer.core.gate import Gate
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.part_log import FrontierLog
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    MergeMirror,
    Plan,
    SetLateAside,
    StoreDeadLetters,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import BatchStats
from tidegate.spark_consumer.core.release_check import ReleaseCheck
from tidegate.spark_consumer.core.sums import ReleaseCount, RowSum, SegmentRead
from tidegate.spark_consumer.core.transition import (
    after,
    check_plan,
    first_kept_after,
    no_longer_needed,
    reads_of_step,
    require_same_batch,
    require_state,
    topics_of_merge,
    waiting_segments,
)
from tidegate.spark_consumer.errors import ChangesNotConserved, CheckpointMismatch

_Result = TypeVar("_Result")
Effects: TypeAlias = Generator[BatchEffect, Any, _Result]
"""Yields effects and is sent the answer of each (`batch_effects`), None if it has none."""


class BatchRun:
    """One attempt at batch `batch`; a replay is a new attempt with the same number."""

    def __init__(
        self,
        *,
        batch: int,
        prefix: str,
        query_id: str,
        subscription: Subscription,
        limits: Limits,
        code: str,
        sinks: tuple[str, ...],
        writer: int,
        first: State | None = None,
        complete_from_us: int = BEFORE_EVERYTHING_US,
        records_mismatches: bool = False,
        takers: Collection[str] = (),
    ) -> None:
        """Do nothing before `effects`.  `writer` is this run's number: it names its segments.

        `first` is the state before batch 0 if the checkpoint continues an adopted output.  Changes
        up to `complete_from_us` may be missing.  `records_mismatches`: a release whose transactions
        are not whole is written, and its manifest counts them.  `takers`: sinks that take batches.
        """
        invariant(batch >= 0, "batches are numbered from 0", batch=batch)
        self._batch = batch
        self._empty = State(prefix=prefix, query_id=query_id)
        self._sinks, self._takers = sinks, takers
        self._first = first
        self._subscription = subscription
        self._limits = limits
        self._code = code
        self._writer = writer
        self._complete_from_us = complete_from_us
        self._check = ReleaseCheck(complete_from_us, records=records_mismatches)
        self._before = self._empty
        self._written: dict[str, Segment] = {}
        self._following: State | None = None
        self.plan: Plan | None = None
        """The plan, loaded or decided; None before that."""
        self.state: State | None = None
        """The state that the batch leaves; None before it is stored."""

    def effects(self, end_offsets: EndOffsets, now_us: int = 0) -> Effects[None]:
        """Yield the effects in the order in which they must happen; the state is stored at the end.

        The batch's rows end at the offsets.  `now_us` is the wall time, for the cadence of the
        mirror alone.  Raises the errors of `errors` and of the lineage for loaded or read data that
        does not fit.  After an error this attempt is over; start a new one.
        """
        self._before = before = yield from self._load_state()
        self.check_invariants()
        names = no_longer_needed(before)  # a batch is started when no earlier one will be repeated
        if names:
            yield DeleteFiles(names)
        storing: list[BatchEffect] = []
        plan = yield from self._load_plan()
        if plan is None:
            plan, storing = yield from self._decide(end_offsets, now_us)
        else:
            yield from self._require_current(plan, end_offsets)
        self.plan = plan
        self.check_invariants()
        due = [*storing, *hand_over(plan, self._takers)]
        following = yield from self._execute(plan, due)
        yield following
        self.state = following.state

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the batch contradicts itself, its state or its plan."""
        if self.plan is None:
            self._before.check_invariants()
            invariant(
                self._batch in (0, self._before.batch + 1),
                "the state is not the one before this batch",
                batch=self._batch,
                state=self._before.batch,
            )
        elif self._following is None:
            self.plan.check_invariants()
            check_plan(self.plan, before=self._before)
        else:
            self._following.check_invariants()

    # ------------------------------------------------------------ what is stored

    def _load_state(self) -> Effects[State]:
        state = self._first or self._empty
        if self._batch > 0:
            state = yield LoadState(self._batch - 1)
        return require_state(state, self._batch - 1, like=self._empty, sinks=self._sinks)

    def _load_plan(self) -> Effects[Plan | None]:
        plan: Plan | None = yield LoadPlan(self._batch)
        return plan

    def _load_frontier(self, name: str) -> Effects[FrontierLog]:
        log: FrontierLog | None = yield LoadFrontier(name)
        if log is None:
            hint = "Restore the whole checkpoint of one moment, or adopt the output into a new one"
            raise CheckpointMismatch("the named frontier is not stored", hint=hint, frontier=name)
        return log

    def _require_current(self, plan: Plan, end_offsets: EndOffsets) -> Effects[None]:
        """Let a stored plan be executed if it is this batch's, and its topics are the same.

        A topic re-created since then holds other changes at the plan's offsets.
        """
        require_same_batch(self._before, plan, end_offsets=end_offsets, sinks=self._sinks)
        log = yield from self._load_frontier(plan.frontier)
        yield from self._require_topics(self._gate_of(log))

    # ------------------------------------------------------------ the decision

    def _gate_of(self, log: FrontierLog) -> Gate:
        log.frontier.check_invariants()
        return Gate(
            self._before, log.frontier, limits=self._limits, code=self._code, sinks=self._sinks
        )

    def _require_topics(self, gate: Gate) -> Effects[bool]:
        """Compare the recorded data topics with Kafka's; False if none is recorded yet."""
        topics = tuple(sorted(gate.frontier.topic_ids))
        if topics:
            gate.require_topics((yield DescribeTopics(topics)))
        return bool(topics)

    def _decide(
        self, end_offsets: EndOffsets, now_us: int
    ) -> Effects[tuple[Plan, list[BatchEffect]]]:
        """Return the plan, and the effects that store it."""
        before = self._before
        log = FrontierLog(Frontier(self._subscription))
        if before.frontier is not None:
            log = yield from self._load_frontier(before.frontier)
        gate = self._gate_of(log)
        moved = before.moved_to(end_offsets)
        offsets = moved.pop(self._subscription.progress_topic, 0)
        data_offsets = sum(moved.values())
        # Topics are compared once, before anything is read of them.  In the first batch they are
        # known only when the progress was folded.
        is_compared = yield from self._require_topics(gate)
        portion: Sequence[ProgressRow] | None = None
        if offsets > 0:
            portion = yield ReadProgress(offsets, data_offsets)
        while portion is not None:
            gate.take(portion, end_offsets=end_offsets)
            portion = yield ReadMoreProgress()
        gate.take((), end_offsets=end_offsets)
        through_us = gate.close()
        if not is_compared:
            yield from self._require_topics(gate)
        stats = BatchStats()
        if data_offsets:
            stats = yield CountChanges(before.watermark_us, through_us, data_offsets)
        name = frontier_name(self._batch, writer=self._writer)
        stored = log.write(name, code=self._code)
        plan = gate.decide(stats, frontier=name, dropped=stored.dropped, now_us=now_us)
        schemas = [StoreSchemas(plan.topics)] if plan.topics else []
        return plan, [*schemas, StoreFrontier(name, log, stored), StorePlan(plan)]

    # ------------------------------------------------------------ the plan's steps

    def _execute(self, plan: Plan, due: list[BatchEffect]) -> Effects[StoreState]:
        """Yield the due effects, then the plan's steps; return the effect that stores the state.

        The effects of a step stay due until the next question, so that a contradiction in the
        results ends the batch before they are written.
        """
        before, check = self._before, self._check
        balance = Balance(before, plan)
        check.begin(before, plan)
        for step in plan.steps:
            reads = reads_of_step(step, before)
            if isinstance(step, MergeMirror):
                due.append(replace(step, topics=topics_of_merge(step, plan, before)))
                continue
            yield from due
            due = []
            match step:
                case StoreDeadLetters():
                    balance.add_dead_letters(step.rows, (yield step))
                case SetLateAside():
                    balance.add_late((yield step))
                case WriteRelease():
                    count = yield from self._count_release(step, plan, reads)
                    due = yield from self._judge_release(step, plan, balance, count)
                case StoreSegment(segment):
                    balance.add_segment((yield from self._store_segment(segment)))
                case CompactSegments():
                    yield from self._compact(step, reads)
                case _:
                    assert_never(step)
        following = self._store_state(plan, balance)
        yield from due
        return following

    def _count_release(
        self, step: WriteRelease, plan: Plan, reads: tuple[SegmentRead, ...]
    ) -> Effects[ReleaseCount]:
        gaps = plan.gaps_within(step.bounds)
        count: ReleaseCount = yield CountRelease(step.bounds, reads, self._complete_from_us, gaps)
        if not is_whole(reads, count.waiting):
            yield from self._find_damage(reads)
        return count

    def _judge_release(
        self, step: WriteRelease, plan: Plan, balance: Balance, count: ReleaseCount
    ) -> Effects[list[BatchEffect]]:
        """Return the effect that writes a release, after its records and markers were checked.

        Its transactions are whole, or lack changes that may be parked: the topic of parked changes
        exists before the watermark passes such a change, or Kafka does not answer.
        """
        balance.add_release(count)
        if count.dead_letters:
            stored = yield StoreDeadLetters(count.dead_letters, step.bounds.number)
            balance.add_dead_letters(count.dead_letters, stored)
            self._check.dead_letters += stored
        topic = self._subscription.names.dead_letter
        ids: Mapping[str, str | None] = {}
        if self._check.take(count):
            ids = yield DescribeTopics((topic,))
        is_missing = ids.get(topic, "unknown") is None
        step = self._check.settle(step, plan, may_be_parked=not is_missing)
        kept, mirrored = self._limits.releases_kept, self._before.mirrored
        first = first_kept_after(step, plan, mirrored=mirrored, kept=kept)
        return [step] if first is None else [step, DropManifests(first)]

    def _store_segment(self, planned: Segment) -> Effects[Segment]:
        segment = self._named(planned)
        segment = segment.written((yield StoreSegment(segment)))
        self._written[planned.name] = segment
        return segment

    def _compact(self, step: CompactSegments, reads: tuple[SegmentRead, ...]) -> Effects[None]:
        planned = step.compaction.output
        output = self._named(planned)
        compaction = replace(step.compaction, output=output)
        sums, read = yield CompactSegments(compaction, step.after_us, reads)
        if not is_whole(reads, read):
            yield from self._find_damage(reads)
        self._written[planned.name] = output.written(sums)

    def _find_damage(self, reads: tuple[SegmentRead, ...]) -> Effects[NoReturn]:
        sums: Sequence[RowSum | None] = yield InspectSegments(reads)
        require_whole(reads, sums)
        raise ChangesNotConserved(
            "segments that are whole were not read as a whole",
            hint="Nothing of this release was written; a restart repeats the batch",
            batch=self._batch,
            segments=[read.name for read in reads],
        )

    def _store_state(self, plan: Plan, balance: Balance) -> StoreState:
        before, own_max = self._before, self._limits.state_segments_max
        waiting = waiting_segments(before, plan, self._written)
        listed, files = before.listed.write(
            waiting, batch=self._batch, writer=self._writer, own_max=own_max
        )
        file = list_part(self._batch, len(files), writer=self._writer)
        origins, origins_file, more = self._check.close(before, file=file, own_max=own_max)
        self._following = after(
            before,
            plan,
            written=self._written,
            waiting_rows=balance.close(waiting),
            code=self._code,
            listed=listed,
            mismatches=self._check.recorded,
            copies=balance.copies,
            origins=origins,
            origins_file=origins_file,
            dead_letters=self._check.dead_letters,
        )
        self.check_invariants()
        return StoreState(self._following, (*files, *more))

    def _named(self, planned: Segment) -> Segment:
        return replace(planned, name=segment_name(planned.name, writer=self._writer))
