"""Stream partitions are compared with their markers before a release, and in a replay."""

import json
from dataclasses import replace

import pytest

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
from tidegate.spark_consumer.core.batch_events import (
    BatchBegun,
    ChangesCounted,
    FrontierLoaded,
    PlanLoaded,
    ProgressRead,
    ReleaseCounted,
    StateLoaded,
    StateStored,
)
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.batch_state import State, TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.core.marker_news import NO_NEWS, MarkerChunk
from tidegate.spark_consumer.core.origin_account import OriginAccount
from tidegate.spark_consumer.core.origin_ledger import ALL_AGREE, Followed, OriginLedger
from tidegate.spark_consumer.core.origin_sums import OriginSum, signed_origin
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.release import Distribution
from tidegate.spark_consumer.core.row_sums import ReleaseCount
from tidegate.spark_consumer.errors import StreamPartitionIncomplete

PROGRESS, DATA = "bank-progress", "bank.accounts"
IDS = (TopicIds(DATA, (1,), (2,)),)
DUE = BatchStats(due=Distribution(2, (8, 9)), topics=IDS)


def row(offset, body):
    return ProgressRow(0, offset, ProgressRecord("e", "w", body))


def opening():
    child = ChildPartition("t", ("",), 0)
    started = StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), (child,))
    return (row(0, started), row(1, PartitionAnnounced(child, "")))


def ends(progress, data):
    return {PROGRESS: {0: progress}, DATA: {0: data}}


def begin(batch=0, *, writer=1, **more):
    return BatchRun(
        batch=batch,
        prefix="bank",
        query_id="q",
        subscription=Subscription(TopicNames("bank")),
        code="1",
        sinks=("changelog", "mirror"),
        writer=writer,
        **{"limits": Limits(), **more},
    )


def handle(run, *events):
    """Let a batch handle several events; return the effects of the last."""
    effects = []
    for event in events:
        effects = run.handle(event)
        run.check_invariants()
    return effects


TOKEN = signed_origin("t")
STATED = OriginSum(2, 20, 7)


def with_marker(mods=2, *, stats=DUE, writer=1, **changes):
    """A batch that reads a marker of two changes and a release that has `mods` of them."""
    run = begin(writer=writer, **changes)
    child = ChildPartition("u", ("t",), 15_000)
    totals = (TopicTotals(DATA, 2, 2, 20, 7),)
    marker = PartitionFinished(
        "t", ("",), 0, 15_000, (child,), totals, checksums=ChecksumKind.XXHASH_64
    )
    vector = (TopicOffset(DATA, 0, 1),)
    tokens = (TokenSnapshot("u", 15_000, ("t",), ("t",), 20),)
    progress = (
        *opening(),
        row(2, PartitionAnnounced(child, "t")),
        row(3, marker),
        row(4, SlotProgress(0, 4, 0, 3, vector, tokens)),
    )
    handle(run, BatchBegun(ends(5, 2)), PlanLoaded(None), ProgressRead(progress))
    tail = run.handle(ChangesCounted(stats))
    return run, tail, ReleaseCounted(counted(mods))


def counted(mods):
    found = OriginSum(mods, 10 * mods, 7)
    return ReleaseCount(2, 2, origins={(TOKEN, DATA): found})


def test_a_marker_that_agrees_leaves_its_child_to_follow():
    run, _, event = with_marker()
    written, stored = run.handle(event)
    assert (written.origins, stored.state.mismatches) == (ALL_AGREE, 0)
    assert stored.state.origins == OriginLedger(-1, {"u": Followed(15)})


def test_a_stream_partition_that_lacks_changes_ends_the_batch_before_its_release_is_written():
    run, _, event = with_marker(1)
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing") as caught:
        run.handle(event)
    fields = caught.value.fields
    assert (fields["token"], fields["topic"], fields["release"]) == ("t", DATA, 0)
    assert fields["expected"] == STATED.content()
    assert fields["found"] == {"mods": 1, "value_bytes": 10, "checksum": f"{7:016x}"}


def test_a_replay_compares_the_same_without_its_progress():
    first, _, _ = with_marker()
    stored = Plan.restore(json.loads(json.dumps(first.plan.snapshot())))
    assert stored == first.plan
    again = begin()
    log = FrontierLog(Frontier(Subscription(TopicNames("bank"))))
    handle(again, BatchBegun(ends(5, 2)), PlanLoaded(stored), FrontierLoaded(log))
    with pytest.raises(StreamPartitionIncomplete):
        again.handle(ReleaseCounted(counted(1)))


def test_a_recorded_contradiction_is_written_with_the_release_and_counted():
    run, _, event = with_marker(1, records_mismatches=True)
    written, stored = run.handle(event)
    assert (written.mismatches, stored.state.mismatches) == (1, 1)
    assert [one.fault for one in written.first_mismatches] == ["changes are missing"]
    assert stored.state.origins == OriginLedger(-1, {"u": Followed(15)})


def test_what_had_begun_before_the_output_was_complete_is_not_judged():
    run, _, event = with_marker(1, complete_from_us=0)
    assert run.handle(event)[0].origins == ALL_AGREE


def test_a_stream_partition_that_ends_without_a_release_is_compared_too():
    nothing = BatchStats(topics=IDS)
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing"):
        with_marker(stats=nothing)
    _, tail, _ = with_marker(stats=nothing, records_mismatches=True)
    assert set(tail[-1].state.origins.followed) == {"t", "u"}  # for the next manifest


def test_many_that_are_followed_are_in_a_file_until_another_one_replaces_it():
    run, _, event = with_marker(limits=Limits(state_segments_max=0), writer=4)
    _, stored = run.handle(event)
    file = "lists/000000000000/4-000.json"
    assert stored.files == ((file, stored.state.origins.snapshot()),)
    assert stored.state.origins_file == file
    run.handle(StateStored())

    def following(state):
        later = begin(1, writer=5)
        handle(later, BatchBegun(ends(5, 2)), StateLoaded(state), PlanLoaded(None))
        return handle(later, FrontierLoaded(run._log))[-1]

    same = following(run.state)
    assert (same.files, same.state.origins_file, same.state.dropped_lists) == ((), file, ())
    over = Followed(1, {0: MarkerChunk("x", 2, 0, True, 0, 1, ())})
    more = OriginLedger(-1, {**run.state.origins.followed, "x": over})
    other = following(replace(run.state, origins=more))
    assert (other.files, other.state.origins_file) == ((), None)
    assert (other.state.origins, other.state.dropped_lists) == (
        run.state.origins,
        ("lists/000000000000",),
    )


def test_late_changes_leave_what_had_begun_unjudged():
    state = State("bank", "q", watermark_us=20, origins=OriginLedger(-1, {"t": Followed(0)}))
    account = OriginAccount(-1, records=False)
    late, in_time = (
        replace(with_marker()[0].plan, after_us=20, late_rows=rows, news=NO_NEWS) for rows in (1, 0)
    )
    account.begin(state, late)
    assert account.close(state, file="f", own_max=9) == (OriginLedger(20), None, ())
    account.begin(state, in_time)
    assert account.close(state, file="f", own_max=9) == (state.origins, None, ())
