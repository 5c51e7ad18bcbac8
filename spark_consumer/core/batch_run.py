"""One batch from its start to its stored state: its effects and their order.

    state N-1 -> files to delete -> plan N, if it is stored: execute it
                                 -> else frontier N-1 -> topics -> progress -> stats
                                 -> frontier N, plan N
    plan N -> hand over -> its steps -> state N

Each release is counted before it is written, and each segment as it is written: what does not agree
with the plan or the state ends the batch before the sink's commit (`conservation`), and so does
what contradicts its own records or markers (`release_check`), unless mismatches are recorded.

The plan is stored before the first effect that it names and the state after the last, so that a
kill between any two effects leads to the same batch again.  A replay that finds a plan executes it
and looks at neither frontier nor rows.  Nothing but the state is carried to the next batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from tidegate.lineage.frontier import EndOffsets, Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import InvariantViolation, invariant
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
)
from tidegate.spark_consumer.core.batch_events import (
    BatchBegun,
    BatchEvent,
    ChangesCounted,
    DeadLettersStored,
    FrontierLoaded,
    LateSetAside,
    PlanLoaded,
    ProgressRead,
    ReleaseCounted,
    SegmentsInspected,
    SegmentsJoined,
    SegmentStored,
    StateLoaded,
    StateStored,
    TopicsDescribed,
)
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, Segment, State
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.conservation import Balance, is_whole, require_whole
from tidegate.spark_consumer.core.files import frontier_name, list_part, segment_name
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.gate import (
    Gate,
    Limits,
    after,
    no_longer_needed,
    waiting_segments,
)
from tidegate.spark_consumer.core.hand_over import hand_over
from tidegate.spark_consumer.core.kept_releases import first_kept_after
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    MergeMirror,
    Plan,
    SetLateAside,
    Step,
    StoreDeadLetters,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.plan_check import (
    check_plan,
    reads_of_step,
    require_same_batch,
    require_state,
    topics_of_merge,
)
from tidegate.spark_consumer.core.release_check import ReleaseCheck
from tidegate.spark_consumer.core.row_sums import RowSum, SegmentRead
from tidegate.spark_consumer.errors import ChangesNotConserved, CheckpointMismatch


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
        """Wait for `BatchBegun`.  `writer` is this run's number: it names the run's segments.

        `first` is the state before batch 0 where the checkpoint goes on with an adopted output.
        Changes up to `complete_from_us` may be missing.  `records_mismatches`: a release whose
        transactions are not whole is written, and says so.  `takers`: sinks that take batches.
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
        self._awaited: type[BatchEvent] | None = BatchBegun
        self._end_offsets: EndOffsets = {}
        self._begun_us = 0
        self._before = self._empty
        self._checked: State | None = None
        self._log: FrontierLog | None = None
        self._gate: Gate | None = None
        self._has_described = self._is_folded = False
        self._through_us = self._before.watermark_us
        self._stored: Plan | None = None
        """That of an earlier attempt, before it is executed."""
        self._plan: Plan | None = None
        self._balance: Balance | None = None
        self._steps: list[Step] = []
        self._written: dict[str, Segment] = {}
        self._inspected: tuple[SegmentRead, ...] = ()
        self._counted: ReleaseCounted | None = None  # until its dead letters are stored
        self._following: State | None = None

    @property
    def is_done(self) -> bool:
        """Whether the batch's state is stored."""
        return self._awaited is None

    @property
    def state(self) -> State | None:
        """The state that the batch leaves; None before it is stored."""
        return self._following if self.is_done else None

    @property
    def plan(self) -> Plan | None:
        """The plan, loaded or decided; None before that."""
        return self._plan

    def handle(self, event: BatchEvent) -> list[BatchEffect]:
        """Take an event; return the next effects, in the order in which they must happen.

        Raises the errors of `errors` and of the lineage for what was loaded or read and does not
        fit.  After an error this attempt is over; start a new one.
        """
        invariant(
            self._awaited is not None and isinstance(event, self._awaited),
            "unexpected event for this batch",
            batch=self._batch,
            event=type(event).__name__,
            expected=None if self._awaited is None else self._awaited.__name__,
        )
        match event:
            case BatchBegun():
                return self._begin(event)
            case StateLoaded():
                return self._continue(event.state)
            case PlanLoaded():
                return self._find_plan(event.plan)
            case FrontierLoaded():
                return self._look(event.log)
            case TopicsDescribed() if self._plan is not None:
                return self._write_release(event.ids)
            case TopicsDescribed():
                self._deciding.require_topics(event.ids)
                if self._stored is not None:
                    return self._execute(self._stored)
                return self._count() if self._is_folded else self._read_progress()
            case ProgressRead():
                return self._fold(event.rows, is_last=event.is_last)
            case ChangesCounted():
                return self._decide(event.stats)
            case DeadLettersStored():
                return self._add_dead_letters(event.rows)
            case LateSetAside():
                self._account.add_late(event.rows)
                self._steps.pop(0)
                return self._continue_plan()
            case ReleaseCounted():
                return self._check_release(event)
            case SegmentsInspected():
                return self._find_damage(event.found)
            case SegmentStored():
                return self._add_segment(event.sums)
            case SegmentsJoined():
                return self._check_join(event)
            case StateStored():
                self._awaited = None
                return []
            case _:
                assert_never(event)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the batch contradicts itself, its state or its plan."""
        if self._before is not self._checked:  # it may name thousands of segments
            self._before.check_invariants()
            self._checked = self._before
        invariant(
            self._before is self._empty or self._before.batch == self._batch - 1,
            "the state is not the one before this batch",
            batch=self._batch,
            state=self._before.batch,
        )
        if self._gate is not None:
            self._gate.frontier.check_invariants()
        if self._plan is None:
            invariant(self._following is None, "a batch has a state without a plan")
            return
        self._plan.check_invariants()
        check_plan(self._plan, before=self._before)
        if self._following is not None:
            self._following.check_invariants()

    def _begin(self, event: BatchBegun) -> list[BatchEffect]:
        self._end_offsets, self._begun_us = event.end_offsets, event.now_us
        if self._batch == 0:
            return self._continue(self._first or self._empty)
        self._awaited = StateLoaded
        return [LoadState(self._batch - 1)]

    def _continue(self, state: State | None) -> list[BatchEffect]:
        state = require_state(state, self._batch - 1, like=self._empty, sinks=self._sinks)
        self._before = state
        self._awaited = PlanLoaded
        names = no_longer_needed(state)  # a batch is started when no earlier one will be repeated
        return [*([DeleteFiles(names)] if names else []), LoadPlan(self._batch)]

    def _find_plan(self, plan: Plan | None) -> list[BatchEffect]:
        if plan is not None:
            ends, sinks = self._end_offsets, self._sinks
            require_same_batch(self._before, plan, end_offsets=ends, sinks=sinks)
            # A topic re-created since then holds other changes at the plan's offsets.
            self._stored, self._awaited = plan, FrontierLoaded
            return [LoadFrontier(plan.frontier)]
        if self._before.frontier is None:
            return self._look(FrontierLog(Frontier(self._subscription)))
        self._awaited = FrontierLoaded
        return [LoadFrontier(self._before.frontier)]

    def _look(self, log: FrontierLog | None) -> list[BatchEffect]:
        if log is None:
            hint = "Restore the whole checkpoint of one moment, or adopt the output into a new one"
            name = (self._stored or self._before).frontier
            raise CheckpointMismatch("the named frontier is not stored", hint=hint, frontier=name)
        self._log = log
        self._gate = Gate(
            self._before, log.frontier, limits=self._limits, code=self._code, sinks=self._sinks
        )
        stored = self._stored
        return self._describe() or (self._execute(stored) if stored else self._read_progress())

    def _describe(self) -> list[BatchEffect]:
        """Ask for the recorded data topics, once per batch and before anything is read of them.

        In the first batch they are known only when the progress was folded.
        """
        topics = tuple(sorted(self._deciding.frontier.topic_ids))
        if self._has_described or not topics:
            return []
        self._has_described = True
        self._awaited = TopicsDescribed
        return [DescribeTopics(topics)]

    def _read_progress(self) -> list[BatchEffect]:
        moved = self._before.moved_to(self._end_offsets)
        offsets = moved.get(self._subscription.progress_topic, 0)
        if offsets <= 0:
            return self._fold((), is_last=True)
        self._awaited = ProgressRead
        return [ReadProgress(offsets, self._data_offsets)]

    def _fold(self, rows: Iterable[ProgressRow], *, is_last: bool) -> list[BatchEffect]:
        self._deciding.take(rows, end_offsets=self._end_offsets)
        if not is_last:
            return [ReadMoreProgress()]
        self._through_us = self._deciding.close()
        self._is_folded = True
        return self._describe() or self._count()

    def _count(self) -> list[BatchEffect]:
        offsets = self._data_offsets
        if not offsets:
            return self._decide(BatchStats())
        self._awaited = ChangesCounted
        return [CountChanges(self._before.watermark_us, self._through_us, offsets)]

    def _decide(self, stats: BatchStats) -> list[BatchEffect]:
        gate, log = self._deciding, self._log
        if log is None:
            raise InvariantViolation("batch step without a frontier", batch=self._batch)
        name = frontier_name(self._batch, writer=self._writer)
        stored = log.write(name, code=self._code)
        plan = gate.decide(stats, frontier=name, dropped=stored.dropped, now_us=self._begun_us)
        schemas = [StoreSchemas(plan.topics)] if plan.topics else []
        frontier = StoreFrontier(name, log, stored)
        return [*schemas, frontier, StorePlan(plan), *self._execute(plan)]

    def _execute(self, plan: Plan) -> list[BatchEffect]:
        self._plan = plan
        self._balance = Balance(self._before, plan)
        self._check.begin(self._before, plan)
        self._steps = list(plan.steps)
        return [*hand_over(plan, self._takers), *self._continue_plan()]

    def _continue_plan(self) -> list[BatchEffect]:
        """Return the effects up to the next one that has an answer."""
        effects: list[BatchEffect] = []
        while self._steps:
            step = self._steps[0]
            match step:
                case StoreDeadLetters():
                    self._awaited = DeadLettersStored
                    return [*effects, step]
                case SetLateAside():
                    self._awaited = LateSetAside
                    return [*effects, step]
                case WriteRelease():
                    self._awaited = ReleaseCounted
                    reads = reads_of_step(step, self._before)
                    gaps = self._executing.gaps_within(step.bounds)
                    count = CountRelease(step.bounds, reads, self._complete_from_us, gaps)
                    return [*effects, count]
                case MergeMirror():
                    self._steps.pop(0)
                    topics = topics_of_merge(step, self._executing, self._before)
                    effects.append(replace(step, topics=topics))
                case StoreSegment():
                    self._awaited = SegmentStored
                    return [*effects, StoreSegment(self._named(step.segment))]
                case CompactSegments():
                    self._awaited = SegmentsJoined
                    output = self._named(step.compaction.output)
                    compaction = replace(step.compaction, output=output)
                    reads = reads_of_step(step, self._before)
                    return [*effects, CompactSegments(compaction, step.after_us, reads)]
                case _:
                    assert_never(step)
        return [*effects, self._store_state()]

    def _store_state(self) -> StoreState:
        before, plan = self._before, self._executing
        waiting = waiting_segments(before, plan, self._written)
        listed, files = before.listed.write(
            waiting,
            batch=self._batch,
            writer=self._writer,
            own_max=self._limits.state_segments_max,
        )
        origins, origins_file, more = self._check.close(
            before,
            file=list_part(self._batch, len(files), writer=self._writer),
            own_max=self._limits.state_segments_max,
        )
        self._following = after(
            before,
            plan,
            written=self._written,
            waiting_rows=self._account.close(waiting),
            code=self._code,
            listed=listed,
            mismatches=self._check.recorded,
            copies=self._account.copies,
            origins=origins,
            origins_file=origins_file,
            dead_letters=self._check.dead_letters,
        )
        self._awaited = StateStored
        return StoreState(self._following, (*files, *more))

    def _check_release(self, event: ReleaseCounted) -> list[BatchEffect]:
        """Let a release be written if everything that it should hold was found."""
        step, count = self._steps[0], event.count
        reads = reads_of_step(step, self._before)
        if not is_whole(reads, count.waiting):
            return self._inspect(reads)
        self._account.add_release(count)
        if count.dead_letters and isinstance(step, WriteRelease):
            self._counted, self._awaited = event, DeadLettersStored
            return [StoreDeadLetters(count.dead_letters, step.bounds.number)]
        return self._judge_release(event)

    def _add_dead_letters(self, stored: int) -> list[BatchEffect]:
        """Go on with the release in hand, or with the plan, whose first step these were."""
        event, self._counted = self._counted, None
        expected = self._executing.dead_letters if event is None else event.count.dead_letters
        self._account.add_dead_letters(expected, stored)
        if event is not None:
            self._check.dead_letters += stored
            return self._judge_release(event)
        self._steps.pop(0)
        return self._continue_plan()

    def _judge_release(self, event: ReleaseCounted) -> list[BatchEffect]:
        """Let a release be written unless it contradicts what its records and markers state."""
        if self._check.take(event):
            # Only now: no batch asks for what it does not need.
            self._awaited = TopicsDescribed
            return [DescribeTopics((self._subscription.names.dead_letter,))]
        return self._write_release()

    def _write_release(self, ids: Mapping[str, str | None] | None = None) -> list[BatchEffect]:
        """Write a release whose transactions are whole, or lack what may be parked.

        The topic of parked changes is there before the watermark passes one, or not answered for.
        """
        step = self._steps.pop(0)
        if isinstance(step, WriteRelease):
            parked = (ids or {}).get(self._subscription.names.dead_letter, "unknown")
            step = self._check.settle(step, self._executing, may_be_parked=parked is not None)
        kept, plan = self._limits.releases_kept, self._executing
        before = first_kept_after(step, plan, mirrored=self._before.mirrored, kept=kept)
        drop = () if before is None else (DropManifests(before),)
        return [step, *drop, *self._continue_plan()]

    def _check_join(self, event: SegmentsJoined) -> list[BatchEffect]:
        reads = reads_of_step(self._steps[0], self._before)
        is_read = is_whole(reads, event.read)
        return self._add_segment(event.sums) if is_read else self._inspect(reads)

    def _add_segment(self, sums: Sequence[RowSum]) -> list[BatchEffect]:
        step = self._steps.pop(0)
        if isinstance(step, StoreSegment):
            segment = self._named(step.segment).written(sums)
            self._written[step.segment.name] = segment
            self._account.add_segment(segment)
        elif isinstance(step, CompactSegments):
            output = step.compaction.output
            self._written[output.name] = self._named(output).written(sums)
        return self._continue_plan()

    def _inspect(self, reads: tuple[SegmentRead, ...]) -> list[BatchEffect]:
        self._inspected, self._awaited = reads, SegmentsInspected
        return [InspectSegments(reads)]

    def _find_damage(self, found: Sequence[RowSum | None]) -> list[BatchEffect]:
        require_whole(self._inspected, found)
        raise ChangesNotConserved(
            "segments that are whole were not read as a whole",
            hint="Nothing of this release was written; a restart repeats the batch",
            batch=self._batch,
            segments=[read.name for read in self._inspected],
        )

    def _named(self, planned: Segment) -> Segment:
        return replace(planned, name=segment_name(planned.name, writer=self._writer))

    @property
    def _executing(self) -> Plan:
        if self._plan is None:
            raise InvariantViolation("batch step without a plan", batch=self._batch)
        return self._plan

    @property
    def _account(self) -> Balance:
        if self._balance is None:
            raise InvariantViolation("batch step without a plan", batch=self._batch)
        return self._balance

    @property
    def _deciding(self) -> Gate:
        if self._gate is None:
            raise InvariantViolation("batch step without a frontier", batch=self._batch)
        return self._gate

    @property
    def _data_offsets(self) -> int:  # how many the batch spans
        moved = self._before.moved_to(self._end_offsets)
        return sum(moved.values()) - moved.get(self._subscription.progress_topic, 0)
