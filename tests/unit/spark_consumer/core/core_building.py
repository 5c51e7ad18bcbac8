"""Records of a stream's progress, batches that have read them, and a plan."""

from __future__ import annotations

import json

from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.batch_effects import (
    CountChanges,
    CountRelease,
    DescribeTopics,
    InspectSegments,
    LoadFrontier,
    LoadPlan,
    LoadState,
    ReadMoreProgress,
    ReadProgress,
    StoreFrontier,
    StoreState,
)
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.batch_state import Segment, TopicIds
from tidegate.spark_consumer.core.file_names import frontier_file
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.part_log import FrontierLog
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    Compaction,
    CompactSegments,
    FreshRows,
    Plan,
    ReleaseBounds,
    SetLateAside,
    StoreDeadLetters,
    StoreSegment,
)
from tidegate.spark_consumer.core.release import BatchStats, Distribution
from tidegate.spark_consumer.core.sums import RowSum

SUBSCRIPTION = Subscription(TopicNames("bank"))
PROGRESS, DATA, PARKED = "bank-progress", "bank.accounts", "bank-dead-letter"
IDS = (TopicIds(DATA, (1,), (2,)),)
DUE = BatchStats(due=Distribution(2, (8, 9)), topics=IDS)

PLANNED_SEGMENT = Segment("000000000004-000", 21, 30, 6, (25, 30))

JOINED = Segment("000000000004-joined", 15, 40, 9, (40,))

PLAN = Plan(
    format=PLAN_FORMAT,
    code="0.1.0",
    prefix="bank",
    query_id="q",
    batch=4,
    end_offsets={"bank-progress": {0: 9, 15: 3}},
    after_us=10,
    through_us=20,
    slowest="token",
    stream_has_ended=False,
    late_rows=1,
    releases=(ReleaseBounds(2, 10, 15, ("s",), cuts_us=(12,)), ReleaseBounds(3, 15, 20, ())),
    stored=(PLANNED_SEGMENT,),
    compaction=Compaction(("s", "t"), JOINED),
    topics=(TopicIds("bank.a", (1,), (2,)),),
    frontier="000000000004/1",
    dropped_frontiers=("frontiers/000000000003",),
    sinks=("changelog", "mirror"),
    fresh=FreshRows(3, RowSum(6, 2**63 + 1)),
)


def as_json(content):
    return json.loads(json.dumps(content))


def row(offset, body, *, epoch="e"):
    return ProgressRow(0, offset, ProgressRecord(epoch, "w", body))


def opening(*topics, filters=(), start_us=0):
    child = ChildPartition("t", ("",), start_us * 1_000)
    started = StreamStarted(
        "s", "g", start_us * 1_000, None, "bank-fleet", 1, "id", topics, (child,), filters=filters
    )
    return (row(0, started), row(1, PartitionAnnounced(child, "")))


def beat(offset, *, watermark_us, data=0, **changes):
    vector = (TopicOffset(DATA, 0, data - 1),) if data else ()
    body = SlotProgress(0, offset, 0, 1, vector, (TokenSnapshot("t", 0, (), (), watermark_us),))
    return row(offset, body, **changes)


def ends(progress, data=0):
    return {PROGRESS: {0: progress}, DATA: {0: data}}


def marked():
    """A stream partition with two changes that has ended at 15, and what follows it up to 20."""
    child = ChildPartition("u", ("t",), 15_000)
    totals = (TopicTotals(DATA, 2, 2, 20, 7),)
    marker = PartitionFinished(
        "t", ("",), 0, 15_000, (child,), totals, checksums=ChecksumKind.XXHASH_64
    )
    tokens = (TokenSnapshot("u", 15_000, ("t",), ("t",), 20),)
    progress = SlotProgress(0, 4, 0, 3, (TopicOffset(DATA, 0, 1),), tokens)
    bodies = (PartitionAnnounced(child, "t"), marker, progress)
    return (*opening(), *(row(offset, body) for offset, body in enumerate(bodies, 2)))


def begin(batch=0, **changes):
    options = {
        "query_id": "q",
        "limits": Limits(),
        "code": "1",
        "sinks": ("changelog", "mirror"),
        "writer": 1,
    }
    run = BatchRun(batch=batch, prefix="bank", subscription=SUBSCRIPTION, **options | changes)
    return Attempt(run)


NO_PLAN = NO_FRONTIER = STORED = None
"""Answers: nothing is stored under that name; the state is stored."""

ANSWERED = (
    LoadState,
    LoadPlan,
    LoadFrontier,
    DescribeTopics,
    ReadProgress,
    ReadMoreProgress,
    CountChanges,
    CountRelease,
    InspectSegments,
    SetLateAside,
    StoreDeadLetters,
    StoreSegment,
    CompactSegments,
    StoreState,
)


class Attempt:
    """A batch that is sent one answer after the other; the first is where its rows end."""

    def __init__(self, run):
        self._run, self._effects = run, None

    plan = property(lambda self: self._run.plan)
    state = property(lambda self: self._run.state)

    def handle(self, *answers):
        """Send answers; return the effects after the last, up to the next with an answer."""
        effects = []
        for answer in answers:
            effects = [*self._next(answer)]
        return effects

    def _next(self, answer):
        if self._effects is None:
            self._effects, answer = self._run.effects(answer), None
        effect = None
        while not isinstance(effect, ANSWERED):
            try:
                effect = self._effects.send(answer)
            except StopIteration:
                return
            answer = None
            yield effect


def read(rows):
    """Answers: these progress rows, and no more."""
    return rows, None


DUE_ROWS = (*opening(), beat(2, watermark_us=20, data=2))


def decided(rows=DUE_ROWS, stats=DUE, *, data=2, **changes):
    """A first batch that has read these records and counted its changes, and its effects."""
    run = begin(**changes)
    end_offsets = ends(len(rows), data)
    run.handle(end_offsets, NO_PLAN, *read(rows))
    return run, run.handle(stats)


def restored(effects):
    """The frontier as one of the effects stores it in files."""
    (effect,) = (one for one in effects if isinstance(one, StoreFrontier))
    files = as_json(dict(effect.stored.files))
    index = files[frontier_file(effect.name)]
    return FrontierLog.restore(effect.name, index, files.get, SUBSCRIPTION)


def replayed(plan):
    """What is loaded in another attempt at a batch whose plan is stored."""
    return plan, FrontierLog(Frontier(SUBSCRIPTION))
