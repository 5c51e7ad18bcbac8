"""A release is held against its transactions and its markers, which no dead letter satisfies."""

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
from tidegate.spark_consumer.core.batch_effects import CountRelease, DescribeTopics, StoreState
from tidegate.spark_consumer.core.batch_events import (
    BatchBegun,
    ChangesCounted,
    DeadLettersStored,
    FrontierLoaded,
    PlanLoaded,
    ProgressRead,
    ReleaseCounted,
    TopicsDescribed,
)
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.batch_state import State, TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.core.origin_sums import OriginSum, signed_origin
from tidegate.spark_consumer.core.plan import Plan, StoreDeadLetters, WriteRelease
from tidegate.spark_consumer.core.release import Distribution
from tidegate.spark_consumer.core.release_check import ReleaseCheck
from tidegate.spark_consumer.core.row_sums import ReleaseCount
from tidegate.spark_consumer.core.transactions import TransactionCount, TransactionFaults
from tidegate.spark_consumer.errors import (
    ChangesNotConserved,
    StreamPartitionIncomplete,
    TransactionIncomplete,
)

DATA, PROGRESS, PARKED = "bank.a", "bank-progress", "bank-dead-letter"
SUBSCRIPTION = Subscription(TopicNames("bank"))
TOKEN = signed_origin("t")
LACKING = TransactionFaults(1, 0, (TransactionCount(8, "t", 1, 2, 2, (DATA,)),))
ONE_OF_TWO = {(TOKEN, DATA): OriginSum(1, 10, 7)}
BOTH = {(TOKEN, DATA): OriginSum(2, 20, 7)}


def begin(**more):
    return BatchRun(
        batch=0,
        prefix="bank",
        query_id="q",
        subscription=SUBSCRIPTION,
        limits=Limits(),
        code="1",
        sinks=("changelog",),
        writer=1,
        **more,
    )


def progress():
    """A stream partition with two changes that has ended at 15, and what follows it up to 20."""
    first, child = ChildPartition("t", ("",), 0), ChildPartition("u", ("t",), 15_000)
    marker = PartitionFinished(
        "t", ("",), 0, 15_000, (child,), (TopicTotals(DATA, 2, 2, 20, 7),),
        checksums=ChecksumKind.XXHASH_64,
    )  # fmt: skip
    tokens = (TokenSnapshot("u", 15_000, ("t",), ("t",), 20),)
    bodies = (
        StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), (first,)),
        PartitionAnnounced(first, ""),
        PartitionAnnounced(child, "t"),
        marker,
        SlotProgress(0, 4, 0, 3, (TopicOffset(DATA, 0, 1),), tokens),
    )
    return ProgressRead(
        tuple(ProgressRow(0, n, ProgressRecord("e", "w", body)) for n, body in enumerate(bodies))
    )


def decided(*, foreign=0, **more):
    """A batch with two due records, and records without an order key; its effects so far."""
    run = begin(**more)
    run.handle(BatchBegun({PROGRESS: {0: 5}, DATA: {0: 2 + foreign}}))
    run.handle(PlanLoaded(None))
    run.handle(progress())
    stats = BatchStats(
        due=Distribution(2, (8, 8)), topics=(TopicIds(DATA, (1,), (2,)),), dead_letters=foreign
    )
    return run, run.handle(ChangesCounted(stats))


def counted(origins, *, rows=2, dead_letters=0, transactions=None):
    faults = {} if transactions is None else {"transactions": transactions}
    return ReleaseCounted(
        ReleaseCount(rows, rows, origins=origins, dead_letters=dead_letters, **faults)
    )


def test_records_without_an_order_key_come_first_and_are_counted_by_the_state():
    run, effects = decided(foreign=3)
    assert effects[-1] == StoreDeadLetters(3)
    (counting,) = run.handle(DeadLettersStored(3))
    assert isinstance(counting, CountRelease)
    _, stored = run.handle(counted(BOTH))
    assert isinstance(stored, StoreState)
    assert stored.state.dead_letters == 3
    assert State.restore(stored.state.snapshot()).dead_letters == 3
    assert Plan.restore(run.plan.snapshot()).steps == run.plan.steps


def test_a_plan_and_a_state_without_them_are_as_before():
    run, _ = decided()
    _, stored = run.handle(counted(BOTH))
    assert "dead_letters" not in run.plan.snapshot()
    assert "dead_letters" not in stored.state.snapshot()


def test_records_of_a_release_are_stored_before_it_is_written():
    run, _ = decided(records_mismatches=True)
    (storing,) = run.handle(counted(ONE_OF_TWO, rows=1, dead_letters=1))
    assert storing == StoreDeadLetters(1, 0)
    written, stored = run.handle(DeadLettersStored(1))
    assert isinstance(written, WriteRelease)
    # What they would have been is missing, which the manifest and the state say.
    assert (written.mismatches, stored.state.mismatches, stored.state.dead_letters) == (1, 1, 1)


@pytest.mark.parametrize("of_release", [False, True])
def test_what_the_table_lacks_ends_the_batch_before_the_release_is_written(of_release):
    run, _ = decided(foreign=0 if of_release else 2)
    if of_release:
        run.handle(counted(ONE_OF_TWO, rows=1, dead_letters=1))
    with pytest.raises(ChangesNotConserved, match="dead letters does not hold") as caught:
        run.handle(DeadLettersStored(0))
    assert caught.value.fields["stored"] == 0


def test_records_that_are_neither_released_nor_set_aside_end_the_batch():
    run, _ = decided()
    with pytest.raises(ChangesNotConserved, match="read=2, released=1"):
        run.handle(counted(ONE_OF_TWO, rows=1))


def test_a_change_among_the_dead_letters_is_missing_at_its_marker_and_the_error_says_so():
    run, _ = decided()
    run.handle(counted(ONE_OF_TWO, rows=1, dead_letters=1))
    with pytest.raises(StreamPartitionIncomplete, match="changes are missing") as caught:
        run.handle(DeadLettersStored(1))
    assert "dead_letters has 1 records" in caught.value.hint


def test_a_transaction_that_lacks_a_dead_letter_is_not_whole_and_the_error_says_where_to_look():
    run, _ = decided(foreign=1)
    run.handle(DeadLettersStored(1))
    run.handle(counted(ONE_OF_TWO, rows=1, dead_letters=1, transactions=LACKING))
    (asked,) = run.handle(DeadLettersStored(1))
    assert asked == DescribeTopics((PARKED,))
    with pytest.raises(TransactionIncomplete) as caught:
        run.handle(TopicsDescribed({PARKED: None}))
    assert "dead_letters has 2 records" in caught.value.hint


def test_what_may_be_parked_excuses_the_transaction_and_not_the_marker():
    run, _ = decided()
    run.handle(counted(ONE_OF_TWO, rows=1, dead_letters=1, transactions=LACKING))
    run.handle(DeadLettersStored(1))
    with pytest.raises(StreamPartitionIncomplete):
        run.handle(TopicsDescribed({PARKED: "id"}))


def test_a_replay_sets_aside_what_its_plan_says():
    first, _ = decided(foreign=3)
    again = begin()
    again.handle(BatchBegun({PROGRESS: {0: 5}, DATA: {0: 5}}))
    stored = Plan.restore(first.plan.snapshot())
    again.handle(PlanLoaded(stored))
    log = FrontierLog(Frontier(SUBSCRIPTION))
    assert again.handle(FrontierLoaded(log))[-1] == StoreDeadLetters(3)


def test_what_is_recorded_is_counted_of_both_kinds():
    check = ReleaseCheck(-1, records=True)
    run, _ = decided()
    check.begin(State(prefix="bank", query_id="q"), run.plan)
    assert check.take(counted(ONE_OF_TWO, transactions=LACKING))
    step = next(one for one in run.plan.steps if isinstance(one, WriteRelease))
    settled = check.settle(step, run.plan, may_be_parked=False)
    assert (settled.mismatches, check.recorded) == (2, 2)
    assert replace(settled, transactions=step.transactions, origins=step.origins) == step
