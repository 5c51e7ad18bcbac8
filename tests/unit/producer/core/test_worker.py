"""The worker's rules, one by one, on a log in memory."""

import pytest

from tests.unit.producer.core.conftest import PROGRESS, SLOTS, START_US, TOPIC, kinds
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.errors import (
    MessageTooLarge,
    ProgressLost,
    QueryInterrupted,
    StreamChangedError,
)
from tidegate.producer.memory.broker import Log
from tidegate.schemas.progress import PartitionAnnounced, PartitionFinished, SlotProgress
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

A = slot_of("a", SLOTS)
ROOT = slot_of(ROOT_TOKEN, SLOTS)
GONE = QueryInterrupted("gone", code="UNAVAILABLE")


class TestOpening:
    def test_another_streams_topic_is_refused(self, opened, make_bench):
        stranger = make_bench(name="w2")
        stranger.worker._identity = type(stranger.worker._identity)(
            "db/changeStreams/other", "GOOGLE_STANDARD_SQL", "g", SLOTS, "pid", ()
        )
        stranger.own(0)
        assert isinstance(stranger.stopped[0].error, StreamChangedError)
        assert "db/changeStreams/s" in str(stranger.stopped[0].error)


class TestLineage:
    def merge(self, bench, *parents):
        for parent in parents:
            record = bench.children("m", start_us=START_US + 50, parents=("a", "b"))
            bench.returns(parent, bench.change(START_US + 10, f"of-{parent}"), record)
            bench.ends(parent)
            bench.later()

    @pytest.mark.rule("spanner-split-and-merge", "spanner-merged-child", "spanner-child-start")
    @pytest.mark.parametrize("is_taken_over", [False, True])
    def test_a_child_waits_for_its_second_parent(self, bench, is_taken_over):
        bench.open_stream("a", "b")
        self.merge(bench, "a")
        assert "m" not in bench.queries
        owner = bench.successor() if is_taken_over else bench
        self.merge(owner, "b")
        assert owner.queries["m"].start_ns == (START_US + 50) * 1000

    def test_the_finishing_snapshots_vector_holds_the_announcement(self, bench):
        bench.open_stream("a", "b")
        self.merge(bench, "a")
        (marker,) = bench.bodies(PartitionFinished)
        assert (marker.token, marker.end_ns) == ("a", (START_US + 50) * 1000)
        assert [(t.mods, t.records, t.value_bytes) for t in marker.totals] == [(1, 1, 5)]
        snapshot = bench.last_snapshot("a")
        assert "a" not in {token.token for token in snapshot.tokens}
        announced = [
            (slot, offset)
            for slot, records in bench.log.slots.items()
            for offset, record in enumerate(records)
            if record is not None
            and isinstance(record.body, PartitionAnnounced)
            and record.body.parent == "a"
        ]
        vector = {o.topic_partition: o.offset for o in snapshot.vector if o.topic == PROGRESS}
        assert announced
        assert all(vector[slot] >= offset for slot, offset in announced)

    @pytest.mark.rule("spanner-equal-queries")
    def test_a_bounded_stream_ends_when_something_lies_past_its_end(self, make_bench):
        bench = make_bench(name="w1", end_ns=(START_US + 100) * 1000)
        bench.open_stream("a")
        bench.later(1_000)
        bench.returns("a", bench.change(START_US + 100))
        # The clock is past the end, and a query has nothing left: that proves nothing.
        for _ in range(2):
            bench.ends("a")
            bench.later(60_000_000)
        assert not bench.bodies(PartitionFinished)
        bench.returns("a", bench.heartbeat(START_US + 101))
        assert "a" not in bench.queries
        bench.later()
        (marker,) = bench.bodies(PartitionFinished)
        assert (marker.end_ns, marker.children) == ((START_US + 100) * 1000, ())


@pytest.fixture
def committing(opened):
    """A worker whose transaction with one change waits for the answer to its commit."""
    opened.answers_commits = False
    opened.returns("a", opened.change(START_US + 10))
    opened.later()
    return opened


class TestTransaction:
    @pytest.mark.parametrize(
        "outcome",
        [on.CommitOutcomeUnknown("silence"), on.ProducerFenced(has_successor=False)],
        ids=["unknown", "fence without a successor"],
    )
    def test_an_unknown_outcome_forgets_everything(self, opened, log, outcome):
        opened.outcome = outcome
        opened.returns("a", opened.change(START_US + 10))
        effects = opened.later()
        assert do.RestartProducer() in effects
        assert min(e.incarnation for e in effects if isinstance(e, do.RecoverSlot)) > SLOTS
        assert opened.queries["a"].start_ns == START_US * 1000
        opened.returns("a", opened.change(START_US + 10))
        opened.later()
        assert len(log.data) == 1
        assert not opened.stopped

    def test_a_fenced_producer_stops_with_a_clear_message(self, opened):
        opened.outcome = on.ProducerFenced()
        opened.returns("a", opened.change(START_US + 10))
        opened.later()
        assert "another process" in str(opened.stopped[0].error)

    def test_an_unanswered_commit_is_asked_for_again_until_patience_ends(self, committing):
        handle, unanswered = committing.worker.handle, on.CommitUnanswered("silence")
        assert kinds(handle(unanswered, now=committing.now)) == ["CommitTransaction"]
        given_up = handle(unanswered, now=committing.at(committing.now_us + 60_000_000))
        assert "RestartProducer" in kinds(given_up)
        assert "CommitTransaction" not in kinds(given_up)

    def test_a_slot_lost_while_the_commit_is_under_way_waits_for_its_outcome(self, committing):
        assert "AbortTransaction" not in kinds(committing.give(on.SlotsLost((A,))))
        committing.give(on.TransactionCommitted())
        assert committing.worker.transaction is None
        released = [e.sizes for e in committing.effects if isinstance(e, do.ReleaseBudget)]
        assert released == [((ROOT_TOKEN, 100),), (("a", 100),)], "the change's once"

    def test_an_abort_after_an_unanswered_commit_proves_nothing(self, committing):
        handle = committing.worker.handle
        handle(on.CommitUnanswered("silence"), now=committing.now)
        effects = handle(on.TransactionAborted("refused"), now=committing.now)
        assert "RestartProducer" in kinds(effects)


class TestUndeliverable:
    @pytest.fixture
    def limited(self, bench, log):
        """A worker whose topic takes 50 bytes at most; a change is larger."""
        bench.open_stream("a", "b")
        bench.later()
        log.broker.topic_bytes_max[TOPIC] = 50
        bench.returns("a", bench.change(START_US + 10))
        return bench

    def test_two_aborts_then_its_slot_is_read_again_and_meets_the_limit(self, limited):
        incarnation = limited.worker.slots[A].incarnation
        limited.later()
        effects = limited.later()
        limited.later()
        assert do.RecoverSlot(A, limited.worker.slots[A].incarnation) in effects
        assert limited.worker.slots[A].incarnation > incarnation
        effects = limited.fails("a", MessageTooLarge.of(TOPIC, key="k"))
        assert "ReportStopped" in kinds(effects)
        assert not limited.stopped
        limited.returns("b", limited.heartbeat(START_US + 20))
        limited.later()
        assert limited.last_snapshot("b").tokens
        assert limited.worker.counters.counts["abort"] == 2


class TestClocks:
    @pytest.mark.parametrize("step_us", [-3_600_000_000, 600_000_000])
    def test_a_wall_clock_that_steps_stops_no_commit_and_dates_it(self, opened, step_us):
        opened.later()
        before = opened.last_snapshot("a").revision
        opened.wall_ahead_us += step_us
        opened.returns("a", opened.change(opened.now_us))
        opened.later()
        snapshot = opened.last_snapshot("a")
        assert snapshot.revision == before + 1
        assert snapshot.minute == opened.now.wall_us // 60_000_000
        assert len(opened.log.data) == 1

    def test_a_wall_clock_that_steps_ahead_makes_no_query_start_early(self, opened):
        opened.fails("a", GONE)
        opened.wall_ahead_us += 3_600_000_000
        opened.give(on.Ticked())
        assert "a" not in opened.queries
        opened.later(100_000)
        assert "a" in opened.queries

    def test_a_stream_from_now_starts_at_the_wall_clocks_time(self, bench):
        bench.worker._opening._start_ns = None
        bench.wall_ahead_us = 5_000_000
        bench.own(*range(SLOTS))
        assert bench.queries[ROOT_TOKEN].start_ns == bench.now.wall_us * 1_000


class TestOwnership:
    @pytest.mark.parametrize("outcome", [None, on.TransactionAborted("illegal generation")])
    def test_a_revoked_slot_is_committed_or_goes_all_the_same(self, opened, log, outcome):
        opened.outcome = outcome
        opened.returns("a", opened.change(START_US + 10))
        effects = opened.give(on.SlotsRevoked((A,)))
        assert len(log.data) == (outcome is None)
        assert (kinds(effects)[0], kinds(effects)[-1]) == ("StopQuery", "ReleaseSlots")

    def test_what_was_read_for_an_old_incarnation_does_not_count(self, opened, log):
        # A poll returns several records; an unknown outcome amid them restarts every slot.
        former = opened.worker.slots[A].incarnation
        opened.give(on.CommitOutcomeUnknown("no answer"))
        opened.give(on.SlotPositionAdvanced(A, former, len(log.slots[A])))
        opened.give(on.SlotRecoveryStarted(A, former, committed_offset=None, end_offset=0))
        opened.give(on.SlotOutOfRange(A, former, "offset out of range"))
        assert not opened.worker.slots[A].has_caught_up
        assert not opened.stopped

    def test_nothing_begins_with_the_passing_of_an_own_record(self, opened, log):
        incarnation, end = opened.worker.slots[A].incarnation, len(log.slots[A])
        later = opened.at(opened.now_us + 60_000_000)
        passed = on.SlotPositionAdvanced(A, incarnation, end)
        assert opened.worker.handle(passed, now=later) == []
        assert opened.worker.slots[A].position == end
        assert "BeginTransaction" in kinds(opened.worker.handle(on.Ticked(), now=later))

    def test_an_announcement_that_is_read_again_stops_the_worker(self, opened, log):
        offset, announced = next(
            (offset, record)
            for offset, record in enumerate(log.slots[A])
            if record is not None and isinstance(record.body, PartitionAnnounced)
        )
        opened.returns("a", opened.children("b", start_us=START_US + 9, parents=("a",)))
        opened.ends("a")
        opened.later()
        slot = opened.worker.slots[A]
        assert "a" not in slot.tokens
        opened.give(on.ProgressRead(A, slot.incarnation, offset, announced))
        assert isinstance(opened.error, ProgressLost)
        assert "a" not in opened.worker.slots[A].tokens
        assert "a" not in opened.queries

    @pytest.mark.parametrize("loss", ["emptied", "truncated", "truncated while it is owned"])
    def test_a_slot_that_lost_records_stops_its_owner(self, opened, log, loss):
        opened.later()
        if loss == "truncated while it is owned":
            owner, incarnation = opened, opened.worker.slots[A].incarnation
            owner.give(on.SlotOutOfRange(A, incarnation, "offset out of range"))
        elif loss == "truncated":
            log.broker.logs[PROGRESS, A].expire(1_000)
            owner = opened.successor(slots=[A])
        else:
            log.broker.logs[PROGRESS, A] = Log((PROGRESS, A))
            owner = opened.successor(slots=[A])
            assert not owner.queries
        assert isinstance(owner.error, ProgressLost)

    def test_a_missing_stream_start_stops_who_sees_snapshots(self, opened, log):
        opened.later()
        log.broker.logs[PROGRESS, ROOT] = Log((PROGRESS, ROOT))
        heir = opened.successor(slots=[next(slot for slot in range(SLOTS) if slot != ROOT)])
        heir.later(5_000_000)
        assert not heir.stopped
        for _ in range(12):
            heir.later(5_000_000)
        assert "holds no StreamStarted" in str(heir.stopped[0].error)
        assert isinstance(heir.stopped[0].error, ProgressLost)

    def test_nobody_opens_a_stream_in_a_slot_that_holds_records(self, opened, log):
        opened.later()
        kept = [r for r in log.slots[ROOT] if r is not None and isinstance(r.body, SlotProgress)]
        log.broker.logs[PROGRESS, ROOT] = Log((PROGRESS, ROOT))
        log.broker.offsets.clear()
        for record in kept:
            log.broker.logs[PROGRESS, ROOT].append(b"k", record, None)
        heir = opened.successor(slots=[ROOT])
        for _ in range(12):
            heir.later(5_000_000)
        assert ROOT_TOKEN not in heir.queries
        assert isinstance(heir.stopped[0].error, ProgressLost)


def test_a_worker_goes_on_in_another_object(bench, make_bench):
    bench.open_stream("a", "b")
    bench.returns("a", bench.change(START_US + 10))
    snapshot = bench.worker.snapshot()
    heir = make_bench(name="w1")
    heir.worker.restore(snapshot)
    at = bench.at(bench.now_us + 1_000_000)
    for event in (on.Ticked(), on.SlotsLost((A,)), on.Ticked()):
        assert heir.worker.handle(event, now=at) == bench.worker.handle(event, now=at)
    assert heir.worker.slots.keys() == bench.worker.slots.keys()
    assert len(snapshot["slots"]) == SLOTS, "what happens later is not in it"


def test_a_new_client_and_a_rejoin_are_counted_apart(bench):
    bench.own(0, 1)
    held = {bench.worker.name: frozenset({0, 1})}
    absent = on.GroupDescribed(is_stable=True, is_member=False, assignments={})
    orphaned = on.GroupDescribed(is_stable=True, is_member=True, assignments=held)
    found = []
    for description in (absent, absent, orphaned, orphaned):
        found += bench.give(description)
        bench.later(31_000_000)
    group = [one for one in found if isinstance(one, do.ReplaceGroupClient | do.RejoinGroup)]
    assert group == [do.ReplaceGroupClient(), do.RejoinGroup((2, 3))]
    counts = bench.worker.counters.counts
    assert (counts["client_replaced"], counts["rejoin"]) == (1, 1)
