"""Records of a stream's progress, and batches that have read them."""

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
from tidegate.spark_consumer.core.batch_effects import StoreFrontier
from tidegate.spark_consumer.core.batch_events import (
    BatchBegun,
    ChangesCounted,
    FrontierLoaded,
    PlanLoaded,
    ProgressRead,
)
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.files import frontier_file
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.core.release import Distribution

SUBSCRIPTION = Subscription(TopicNames("bank"))
PROGRESS, DATA, PARKED = "bank-progress", "bank.accounts", "bank-dead-letter"
IDS = (TopicIds(DATA, (1,), (2,)),)
DUE = BatchStats(due=Distribution(2, (8, 9)), topics=IDS)


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
    return BatchRun(batch=batch, prefix="bank", subscription=SUBSCRIPTION, **options | changes)


def handle(run, *events):
    """Let a batch handle several events; return the effects of the last."""
    effects = []
    for event in events:
        effects = run.handle(event)
        run.check_invariants()
    return effects


DUE_ROWS = (*opening(), beat(2, watermark_us=20, data=2))


def decided(rows=DUE_ROWS, stats=DUE, *, data=2, **changes):
    """A first batch that has read these records and counted its changes, and its effects."""
    run = begin(**changes)
    end_offsets = ends(len(rows), data)
    handle(run, BatchBegun(end_offsets), PlanLoaded(None), ProgressRead(rows))
    return run, handle(run, ChangesCounted(stats))


def restored(effects):
    """The frontier as one of the effects stores it in files."""
    (effect,) = (one for one in effects if isinstance(one, StoreFrontier))
    files = as_json(dict(effect.stored.files))
    index = files[frontier_file(effect.name)]
    return FrontierLog.restore(effect.name, index, files.get, SUBSCRIPTION)


def replayed(plan):
    """What is loaded in another attempt at a batch whose plan is stored."""
    return PlanLoaded(plan), FrontierLoaded(FrontierLog(Frontier(SUBSCRIPTION)))
