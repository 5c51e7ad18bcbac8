"""The worker's rules, one by one, on a log in memory."""

from __future__ import annotations

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.errors import (
    MessageTooLarge,
    ProgressLost,
    QueryInterrupted,
    QueryRefused,
    SourceOrderBroken,
    StreamChangedError,
)
from tidegate.producer.memory.log import Log
from tidegate.schemas.progress import (
    PartitionAnnounced,
    PartitionFinished,
    SlotProgress,
    SlotWatermark,
    StreamStarted,
)
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

SLOTS = 4
PROGRESS = "bank-progress"
START_US = 1_700_000_000_000_000
TOPIC = "bank.accounts"


def kinds(effects):
    """Name the effects, for a comparison of whole sequences."""
    return [type(effect).__name__ for effect in effects]


class TestOpening:
    """The root slot's owner opens the stream, once."""

    def test_nothing_is_written_before_the_stream_started(self, bench):
        bench.own(*range(SLOTS))
        bench.later()

        assert not bench.bodies(SlotProgress)
        assert bench.queries[ROOT_TOKEN].start_ns == START_US * 1000

    def test_one_transaction_opens_the_epoch_and_announces_every_child(self, bench):
        bench.own(*range(SLOTS))
        bench.returns(ROOT_TOKEN, bench.children("a", "b", start_us=START_US))
        query = bench.queries.pop(ROOT_TOKEN)
        effects = bench.give(on.QueryEnded(ROOT_TOKEN, query.query_id))

        first = effects[: kinds(effects).index("CommitTransaction") + 1]
        assert kinds(first) == [
            "BeginTransaction",
            "PublishProgress",
            "PublishProgress",
            "PublishProgress",
            "AwaitDelivery",
            "PublishProgress",
            "PublishProgress",
            "AwaitDelivery",
            "SendOffsets",
            "CommitTransaction",
        ]
        (started,) = bench.bodies(StreamStarted)
        assert [child.token for child in started.children] == ["a", "b"]
        assert {body.parent for body in bench.bodies(PartitionAnnounced)} == {ROOT_TOKEN}

    def test_a_worker_without_the_root_slot_waits(self, bench):
        others = [slot for slot in range(SLOTS) if slot != slot_of(ROOT_TOKEN, SLOTS)]
        bench.own(*others)
        bench.later()

        assert not bench.queries
        assert not bench.bodies(SlotProgress)

    def test_another_streams_topic_is_refused(self, bench, make_bench, log):
        bench.open_stream("a")
        stranger = make_bench(name="w2")
        stranger.worker._identity = type(stranger.worker._identity)(
            "db/changeStreams/other", "GOOGLE_STANDARD_SQL", "g", SLOTS, "pid", ()
        )
        stranger.own(0)

        (stop,) = stranger.stopped[:1]
        assert isinstance(stop.error, StreamChangedError)
        assert "db/changeStreams/s" in str(stop.error)

    def test_an_initial_query_without_children_is_repeated(self, bench):
        bench.own(*range(SLOTS))
        first = bench.queries[ROOT_TOKEN].query_id
        bench.ends(ROOT_TOKEN)
        bench.later(60_000_000)

        assert bench.queries[ROOT_TOKEN].query_id > first
        assert bench.worker.counters.counts["unproven_finish"] == 1


class TestWatermark:
    """What a snapshot says is never too early."""

    @pytest.mark.parametrize(
        ("items", "watermark_us"),
        [
            ((), START_US - 1),
            (("heartbeat",), START_US + 4),
            (("change",), START_US + 9),
            (("heartbeat", "change"), START_US + 9),
        ],
    )
    def test_of_a_token(self, bench, items, watermark_us):
        bench.open_stream("a")
        made = {
            "heartbeat": bench.heartbeat(START_US + 5),
            "change": bench.change(START_US + 10),
        }
        bench.returns("a", *(made[item] for item in items))
        bench.later(61_000_000)

        (token,) = bench.last_snapshot("a").tokens
        assert token.watermark_us == watermark_us

    def test_the_boundary_names_what_lies_after_it(self, bench):
        bench.open_stream("a")
        bench.returns(
            "a",
            bench.change(START_US + 10, "t1", "00000000"),
            bench.change(START_US + 10, "t1", "00000003"),
            bench.change(START_US + 10, "t2", "00000001"),
        )
        bench.later()

        (token,) = bench.last_snapshot("a").tokens
        assert token.boundary == (("t1", "00000003"), ("t2", "00000001"))


class TestResume:
    """A repeated boundary instant repeats nothing and skips nothing."""

    def test_of_another_owner(self, bench, make_bench, log):
        bench.open_stream("a")
        bench.returns("a", bench.change(START_US + 10, "t1"), bench.change(START_US + 10, "t2"))
        bench.later()
        heir = make_bench(name="w2")
        heir.own(*range(SLOTS))

        assert heir.queries["a"].start_ns == (START_US + 9) * 1000
        heir.returns(
            "a",
            bench.change(START_US + 10, "t1"),
            bench.change(START_US + 10, "t2"),
            bench.change(START_US + 10, "t3"),
            bench.change(START_US + 11, "t4"),
        )
        heir.later()

        assert len(log.data) == 4
        assert len({message.order_key for message in log.data}) == 4

    def test_a_failed_query_goes_on_where_it_broke_off(self, bench, log):
        bench.open_stream("a")
        bench.returns("a", bench.change(START_US + 10), bench.change(START_US + 20))
        failed = bench.queries.pop("a")
        bench.give(on.QueryFailed("a", failed.query_id, QueryInterrupted("gone")))
        bench.later(1_000_000)
        bench.returns("a", bench.change(START_US + 20), bench.change(START_US + 30))
        bench.later()

        assert bench.queries["a"].start_ns == (START_US + 19) * 1000
        assert len(log.data) == 3

    def test_a_source_that_goes_back_stops_its_stream_partition(self, bench, log):
        bench.open_stream("a", "b")
        bench.returns("a", bench.change(START_US + 20), bench.change(START_US + 10))
        bench.later()

        assert isinstance(bench.worker.stopped["a"], SourceOrderBroken)
        assert list(bench.queries) == ["b"]
        assert len(log.data) == 1  # what came before the fault
        assert not bench.stopped

    def test_what_a_stopped_query_still_delivers_is_void(self, bench, log):
        bench.open_stream("a")
        stale = bench.queries["a"].query_id
        bench.give(on.QueryFailed("a", stale, QueryInterrupted("gone")))
        effects = bench.give(on.RecordsRead("a", stale, [bench.change(START_US + 5)], 7))
        bench.later()

        assert do.ReleaseBudget((("a", 7),)) in effects
        assert not log.data

    def test_a_refusal_stops_the_worker(self, bench):
        bench.open_stream("a")
        query = bench.queries["a"].query_id
        bench.give(on.QueryFailed("a", query, QueryRefused("no", code="PERMISSION_DENIED")))

        assert bench.stopped[0].error is not None


class TestLineage:
    """A child starts when all its parents' completion markers are committed."""

    def merge(self, bench, *parents):
        for parent in parents:
            record = bench.children("m", start_us=START_US + 50, parents=("a", "b"))
            bench.returns(parent, bench.change(START_US + 10, f"of-{parent}"), record)
            bench.ends(parent)
            bench.later()

    @pytest.mark.rule("spanner-split-and-merge", "spanner-merged-child", "spanner-child-start")
    def test_a_child_waits_for_its_second_parent(self, bench):
        bench.open_stream("a", "b")
        self.merge(bench, "a")

        assert "m" not in bench.queries
        self.merge(bench, "b")
        assert bench.queries["m"].start_ns == (START_US + 50) * 1000

    def test_a_childs_announcement_counts_for_its_next_owner(self, bench, make_bench):
        bench.open_stream("a", "b")
        self.merge(bench, "a")
        heir = make_bench(name="w2")
        heir.own(*range(SLOTS))
        self.merge(heir, "b")

        assert "m" in heir.queries

    def test_the_marker_carries_totals_and_the_finish_is_in_one_transaction(self, bench, log):
        bench.open_stream("a", "b")
        self.merge(bench, "a")

        (marker,) = bench.bodies(PartitionFinished)
        assert (marker.token, marker.end_ns) == ("a", (START_US + 50) * 1000)
        assert [(t.mods, t.records, t.value_bytes) for t in marker.totals] == [(1, 1, 5)]
        assert "a" not in {t.token for t in bench.last_snapshot("a").tokens}

    def test_the_finishing_snapshots_vector_holds_the_announcement(self, bench):
        bench.open_stream("a", "b")
        self.merge(bench, "a")
        announced = [
            (slot, offset)
            for slot, records in bench.log.slots.items()
            for offset, record in enumerate(records)
            if record is not None
            and isinstance(record.body, PartitionAnnounced)
            and record.body.parent == "a"
        ]

        vector = {
            (o.topic_partition): o.offset
            for o in bench.last_snapshot("a").vector
            if o.topic == "bank-progress"
        }
        for slot, offset in announced:
            assert vector[slot] >= offset

    def test_an_end_without_children_is_no_finish(self, bench):
        bench.open_stream("a")
        bench.ends("a")
        bench.later(60_000_000)

        assert not bench.bodies(PartitionFinished)
        assert "a" in bench.queries

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


class TestInitialQuery:
    """The initial query's memory and failures."""

    def opened_halfway(self, bench):
        bench.own(*range(SLOTS))
        bench.returns(ROOT_TOKEN, bench.children("a", start_us=START_US))

    def released(self, bench):
        return sum(
            size for e in bench.effects if isinstance(e, do.ReleaseBudget) for _, size in e.sizes
        )

    def test_what_the_initial_query_took_is_given_back(self, bench):
        self.opened_halfway(bench)
        bench.ends(ROOT_TOKEN)

        assert self.released(bench) == 100

    def test_the_worker_that_loses_the_roots_slot_ends_the_initial_query(self, bench):
        self.opened_halfway(bench)
        bench.give(on.SlotsLost((slot_of(ROOT_TOKEN, SLOTS),)))

        assert ROOT_TOKEN not in bench.queries
        assert self.released(bench) == 100

    def test_an_abort_is_not_followed_by_the_next_attempt_at_once(self, bench):
        # Without membership every attempt fails at once, and only a poll in between says why.
        self.opened_halfway(bench)
        query = bench.queries.pop(ROOT_TOKEN)
        bench.worker.handle(on.QueryEnded(ROOT_TOKEN, query.query_id), now=bench.now)
        effects = bench.worker.handle(on.TransactionAborted("no member"), now=bench.now)

        assert "BeginTransaction" not in kinds(effects)
        effects = bench.worker.handle(on.Ticked(), now=bench.at(bench.now_us + 1_000_000))
        assert "BeginTransaction" in kinds(effects)


class TestTransaction:
    """Each outcome has its own consequence."""

    def test_the_order_of_a_cycle(self, bench):
        bench.open_stream("a")
        bench.later()
        bench.returns("a", bench.change(START_US + 10))
        effects = [e for e in bench.later() if isinstance(e, do.TransactionEffect)]

        assert kinds(effects) == [
            "BeginTransaction",
            "PublishRecords",
            "AwaitDelivery",
            "PublishProgress",
            "AwaitDelivery",
            "SendOffsets",
            "CommitTransaction",
        ]

    def test_a_slot_lost_while_the_commit_is_under_way_waits_for_its_outcome(self, bench):
        bench.open_stream("a")
        bench.returns("a", bench.change(START_US + 10))
        bench.answers_commits = False
        bench.later()
        effects = bench.give(on.SlotsLost((slot_of("a", SLOTS),)))
        assert "AbortTransaction" not in kinds(effects)
        bench.give(on.TransactionCommitted())

        released = [e.sizes for e in bench.effects if isinstance(e, do.ReleaseBudget)]
        assert bench.worker.transaction is None
        assert released == [((ROOT_TOKEN, 100),), (("a", 100),)]  # the change's once

    def test_an_abort_is_followed_by_a_pause_however_much_waits(self, bench):
        # Once removed from the group, every attempt fails at once, and only a poll says why.
        bench.open_stream("a")
        query = bench.queries["a"]
        records = on.RecordsRead("a", query.query_id, [bench.change(START_US + 10)], 9 << 20)
        effects = bench.worker.handle(records, now=bench.now)
        assert "BeginTransaction" in kinds(effects)
        effects = bench.worker.handle(on.TransactionAborted("no member"), now=bench.now)

        assert "BeginTransaction" not in kinds(effects)

    def test_every_fence_has_an_offset(self, bench):
        bench.open_stream("a", "b", "c")
        bench.returns("a", bench.change(START_US + 10))
        bench.later(61_000_000)

        fences = [e.offsets for e in bench.effects if isinstance(e, do.SendOffsets)]
        assert fences
        assert all(offsets and all(o >= 0 for _, o in offsets) for offsets in fences)

    def test_the_fence_points_at_the_last_snapshot_or_before(self, bench, log):
        bench.open_stream("a")
        bench.returns("a", bench.change(START_US + 10))
        bench.later()

        slot = slot_of("a", SLOTS)
        last = max(
            offset
            for offset, record in enumerate(log.slots[slot])
            if record is not None and isinstance(record.body, SlotProgress)
        )
        assert log.fence[slot] <= last

    def test_an_abort_publishes_again(self, bench, log):
        bench.open_stream("a")
        bench.outcome = on.TransactionAborted("generation")
        bench.returns("a", bench.change(START_US + 10))
        bench.later()
        assert not log.data
        bench.later()

        assert len(log.data) == 1

    def test_an_unknown_outcome_forgets_everything(self, bench, log):
        bench.open_stream("a")
        bench.outcome = on.CommitOutcomeUnknown("silence")
        bench.returns("a", bench.change(START_US + 10))
        effects = bench.later()
        recovered = [e.incarnation for e in effects if isinstance(e, do.RecoverSlot)]

        assert do.RestartProducer() in effects
        assert min(recovered) > SLOTS
        assert bench.queries["a"].start_ns == START_US * 1000
        bench.returns("a", bench.change(START_US + 10))
        bench.later()
        assert len(log.data) == 1

    def test_an_unknown_outcome_that_was_a_commit_is_not_published_again(self, bench, log):
        bench.open_stream("a")
        bench.returns("a", bench.change(START_US + 10))
        bench.outcome = on.CommitOutcomeUnknown("silence")
        bench.commits_in_silence = True
        bench.later()
        bench.returns("a", bench.change(START_US + 10), bench.change(START_US + 12))
        bench.later()

        assert len(log.data) == len({m.order_key for m in log.data}) == 2

    def test_a_fenced_producer_stops_with_a_clear_message(self, bench):
        bench.open_stream("a")
        bench.outcome = on.ProducerFenced()
        bench.returns("a", bench.change(START_US + 10))
        bench.later()

        assert "another process" in str(bench.stopped[0].error)

    def test_a_fence_without_a_successor_is_an_unknown_outcome(self, bench):
        bench.open_stream("a")
        bench.outcome = on.ProducerFenced(has_successor=False)
        bench.returns("a", bench.change(START_US + 10))
        effects = bench.later()

        assert "RestartProducer" in kinds(effects)
        assert not bench.stopped

    def test_an_unanswered_commit_is_asked_for_again_until_patience_ends(self, bench):
        bench.open_stream("a")
        bench.answers_commits = False
        bench.returns("a", bench.change(START_US + 10))
        bench.later()
        asked = bench.worker.handle(on.CommitUnanswered("silence"), now=bench.now)
        assert kinds(asked) == ["CommitTransaction"]
        given_up = bench.worker.handle(
            on.CommitUnanswered("silence"), now=bench.at(bench.now_us + 60_000_000)
        )

        assert "RestartProducer" in kinds(given_up)
        assert "CommitTransaction" not in kinds(given_up)

    def test_an_abort_after_an_unanswered_commit_proves_nothing(self, bench):
        bench.open_stream("a")
        bench.answers_commits = False
        bench.returns("a", bench.change(START_US + 10))
        bench.later()
        bench.worker.handle(on.CommitUnanswered("silence"), now=bench.now)
        effects = bench.worker.handle(on.TransactionAborted("refused"), now=bench.now)

        assert "RestartProducer" in kinds(effects)

    def test_a_lost_slot_aborts_the_whole_transaction(self, bench, log):
        bench.open_stream("a", "b")
        bench.returns("a", bench.change(START_US + 10))
        bench.now_us += 1_000_000
        worker = bench.worker
        begun = worker.handle(on.Ticked(), now=bench.now)
        effects = worker.handle(on.SlotsLost((slot_of("a", SLOTS),)), now=bench.now)

        assert "BeginTransaction" in kinds(begun)
        number = slot_of("a", SLOTS)
        assert do.AbortTransaction(f"slots [{number}] were lost") in effects
        later = worker.handle(on.Delivered({}, {}), now=bench.now)
        assert "CommitTransaction" not in kinds(later)


class TestUndeliverable:
    """A message that its topic does not take."""

    @staticmethod
    def rounds(bench, count=10):
        for _ in range(count):
            if bench.stopped:
                return
            bench.later()

    def test_two_aborts_then_its_slot_is_read_again_and_meets_the_limit(self, bench, log):
        bench.open_stream("a", "b")
        bench.later()
        log.broker.topic_bytes_max[TOPIC] = 50
        bench.returns("a", bench.change(START_US + 10))
        incarnation = bench.worker.slots[slot_of("a", SLOTS)].incarnation
        bench.later()
        effects = bench.later()
        bench.later()

        number = slot_of("a", SLOTS)
        assert do.RecoverSlot(number, bench.worker.slots[number].incarnation) in effects
        assert bench.worker.slots[number].incarnation > incarnation
        query = bench.queries["a"]
        refused = MessageTooLarge.of(TOPIC, key="k")
        effects = bench.give(on.QueryFailed("a", query.query_id, refused))
        assert "ReportStopped" in kinds(effects)
        assert not bench.stopped
        bench.returns("b", bench.heartbeat(START_US + 20))
        bench.later()
        assert bench.last_snapshot("b").tokens
        assert bench.worker.counters.counts["abort"] == 2

    def test_where_that_does_not_help_an_error_names_it(self, bench, log):
        bench.open_stream("a", "b")
        bench.later()
        log.broker.topic_bytes_max[TOPIC] = 50
        for _ in range(2):
            bench.returns("a", bench.change(START_US + 10))
            self.rounds(bench, 4)

        (stop,) = bench.stopped
        assert isinstance(stop.error, MessageTooLarge)
        assert bench.worker.counters.counts["abort"] == 3
        assert stop.error.fields["topic"] == TOPIC
        assert stop.error.fields["commit_timestamp_us"] == START_US + 10
        assert stop.error.fields["size_bytes"] > stop.error.fields["limit_bytes"] == 50
        assert log.data == []

    def test_a_limit_that_is_raised_in_time_lets_it_pass(self, bench, log):
        bench.open_stream("a")
        bench.later()
        log.broker.topic_bytes_max[TOPIC] = 50
        bench.returns("a", bench.change(START_US + 10))
        bench.later()
        del log.broker.topic_bytes_max[TOPIC]
        self.rounds(bench)

        assert len(log.data) == 1
        assert not bench.stopped
        assert not bench.worker._undeliverable._failed

    def test_the_next_owner_publishes_it_once_the_limit_is_raised(self, bench, make_bench, log):
        bench.open_stream("a")
        bench.later()
        log.broker.topic_bytes_max[TOPIC] = 50
        change = bench.change(START_US + 10)
        for _ in range(2):
            bench.returns("a", change)
            self.rounds(bench, 4)
        assert bench.stopped
        del log.broker.topic_bytes_max[TOPIC]
        successor = make_bench(name="w2")
        successor.own(*range(SLOTS))
        successor.later()
        assert successor.queries["a"].start_ns <= (START_US + 10) * 1000
        successor.returns("a", change)
        successor.later()

        assert log.data == list(change.messages)

    def test_an_unknown_outcome_counts_as_an_attempt(self, bench):
        """The client cannot abort what the broker refused to add to the transaction."""
        failure = on.DeliveryFailure(on.DeliveryFault.DENIED, "x", 0, TOPIC, "k", 100)
        bench.open_stream("a")
        given = [bench.give(on.CommitOutcomeUnknown("denied", failure)) for _ in range(3)]

        assert ["Stop" in kinds(effects) for effects in given] == [False, False, True]
        assert "RestartProducer" not in kinds(given[-1])


class TestBudget:
    """Bytes that no commit will release are released at once."""

    def test_repeats_alone_hold_no_bytes(self, bench):
        bench.open_stream("a")
        record = bench.change(START_US + 10)
        bench.returns("a", record)
        bench.later()
        query = bench.queries.pop("a")
        bench.give(on.QueryFailed("a", query.query_id, QueryInterrupted("gone")))
        bench.later()
        query = bench.queries["a"]

        effects = bench.give(on.RecordsRead("a", query.query_id, [record], 77))
        assert effects == [do.ReleaseBudget((("a", 77),))]

    def test_repeats_before_news_are_released_with_them(self, bench):
        bench.open_stream("a")
        record = bench.change(START_US + 10)
        bench.returns("a", record)
        bench.later()
        query = bench.queries.pop("a")
        bench.give(on.QueryFailed("a", query.query_id, QueryInterrupted("gone")))
        bench.later()
        query = bench.queries["a"]

        items = [record, bench.change(START_US + 20, "t2")]
        effects = bench.give(on.RecordsRead("a", query.query_id, items, 77))
        effects += bench.later()
        assert [e for e in effects if isinstance(e, do.ReleaseBudget)] == [
            do.ReleaseBudget((("a", 77),))
        ]


class TestClocks:
    """Intervals follow the monotonic clock, timestamps the wall clock."""

    def test_a_wall_clock_that_steps_back_an_hour_stops_no_commit(self, bench):
        bench.open_stream("a")
        bench.later()
        before = bench.last_snapshot("a").revision
        bench.wall_ahead_us -= 3_600_000_000
        bench.returns("a", bench.change(bench.now_us))
        bench.later()

        assert bench.last_snapshot("a").revision == before + 1
        assert len(bench.log.data) == 1

    def test_a_wall_clock_that_steps_ahead_makes_no_query_start_early(self, bench):
        bench.open_stream("a")
        query = bench.queries.pop("a")
        bench.give(
            on.QueryFailed("a", query.query_id, QueryInterrupted("away", code="UNAVAILABLE"))
        )
        bench.wall_ahead_us += 3_600_000_000
        bench.give(on.Ticked())
        assert "a" not in bench.queries

        bench.later(100_000)
        assert "a" in bench.queries

    def test_a_snapshot_carries_the_minute_of_the_wall_clock(self, bench):
        bench.open_stream("a")
        bench.wall_ahead_us += 600_000_000
        bench.later()

        assert bench.last_snapshot("a").minute == bench.now.wall_us // 60_000_000

    def test_a_stream_from_now_starts_at_the_wall_clocks_time(self, make_bench):
        bench = make_bench()
        bench.worker._opening._start_ns = None
        bench.wall_ahead_us = 5_000_000
        bench.own(*range(SLOTS))

        assert bench.queries[ROOT_TOKEN].start_ns == bench.now.wall_us * 1_000


class TestOwnership:
    """Slots come and go."""

    def test_a_revoked_slot_is_committed_before_it_goes(self, bench, log):
        bench.open_stream("a")
        bench.returns("a", bench.change(START_US + 10))
        effects = bench.give(on.SlotsRevoked((slot_of("a", SLOTS),)))

        assert len(log.data) == 1
        assert kinds(effects)[-1] == "ReleaseSlots"
        assert kinds(effects)[0] == "StopQuery"

    def test_a_revoked_slot_goes_also_when_its_last_commit_is_refused(self, bench, log):
        bench.open_stream("a")
        bench.outcome = on.TransactionAborted("illegal generation")
        bench.returns("a", bench.change(START_US + 10))
        effects = bench.give(on.SlotsRevoked((slot_of("a", SLOTS),)))

        assert not log.data
        assert kinds(effects)[-1] == "ReleaseSlots"

    def test_a_new_owner_waits_for_the_uncommitted_end(self, bench, make_bench, log):
        bench.open_stream("a")
        heir = make_bench(name="w2")
        slot = slot_of("a", SLOTS)
        heir.worker.handle(on.SlotsAssigned((slot,)), now=heir.now)
        incarnation = heir.worker.slots[slot].incarnation
        started = next(
            r
            for r in log.slots[slot_of(ROOT_TOKEN, SLOTS)]
            if r is not None and isinstance(r.body, StreamStarted)
        )
        heir.give(on.StreamStartFound(started))
        end = len(log.slots[slot])
        heir.give(
            on.SlotRecoveryStarted(slot, incarnation, committed_offset=None, end_offset=end + 1)
        )
        for offset, record in enumerate(log.slots[slot]):
            if record is not None:
                heir.give(on.ProgressRead(slot, incarnation, offset, record))

        assert not heir.queries
        heir.give(on.SlotPositionAdvanced(slot, incarnation, end + 1))
        assert "a" in heir.queries

    def test_what_was_read_for_an_old_incarnation_does_not_move_the_new_one(self, bench, log):
        # A poll returns several records; an unknown outcome amid them restarts every slot.
        bench.open_stream("a")
        slot = slot_of("a", SLOTS)
        former = bench.worker.slots[slot].incarnation
        bench.give(on.CommitOutcomeUnknown("no answer"))
        bench.give(on.SlotPositionAdvanced(slot, former, len(log.slots[slot])))

        assert not bench.worker.slots[slot].has_caught_up

    def test_nothing_begins_with_the_passing_of_an_own_record(self, bench, log):
        bench.open_stream("a")
        slot = slot_of("a", SLOTS)
        incarnation, end = bench.worker.slots[slot].incarnation, len(log.slots[slot])
        later = bench.at(bench.now_us + 60_000_000)
        passed = on.SlotPositionAdvanced(slot, incarnation, end)

        assert bench.worker.handle(passed, now=later) == []
        assert bench.worker.slots[slot].position == end
        assert "BeginTransaction" in kinds(bench.worker.handle(on.Ticked(), now=later))

    def test_an_announcement_that_is_read_again_stops_the_worker(self, bench, log):
        bench.open_stream("a")
        slot = slot_of("a", SLOTS)
        offset, announced = next(
            (offset, record)
            for offset, record in enumerate(log.slots[slot])
            if record is not None and isinstance(record.body, PartitionAnnounced)
        )
        bench.returns("a", bench.children("b", start_us=START_US + 9, parents=("a",)))
        bench.ends("a")
        bench.later()
        assert "a" not in bench.worker.slots[slot].tokens
        incarnation = bench.worker.slots[slot].incarnation
        bench.give(on.ProgressRead(slot, incarnation, offset, announced))

        assert [type(stop.error) for stop in bench.stopped] == [ProgressLost]
        assert "a" not in bench.worker.slots[slot].tokens
        assert "a" not in bench.queries

    def test_a_slot_that_was_emptied_stops_its_next_owner(self, bench, make_bench, log):
        bench.open_stream("a")
        bench.later()
        slot = slot_of("a", SLOTS)
        log.broker.logs[PROGRESS, slot] = Log((PROGRESS, slot))
        heir = make_bench(name="w2")
        heir.own(slot)

        assert [type(stop.error) for stop in heir.stopped] == [ProgressLost]
        assert not heir.queries

    @pytest.mark.parametrize("is_owned", [True, False])
    def test_a_slot_that_was_truncated_stops_its_owner(self, bench, make_bench, log, is_owned):
        bench.open_stream("a")
        bench.later()
        slot = slot_of("a", SLOTS)
        owner = bench if is_owned else make_bench(name="w2")
        if not is_owned:
            log.broker.logs[PROGRESS, slot].expire(1_000)
            owner.own(slot)
        else:
            incarnation = owner.worker.slots[slot].incarnation
            owner.give(on.SlotOutOfRange(slot, incarnation, "offset out of range"))

        assert [type(stop.error) for stop in owner.stopped] == [ProgressLost]

    def test_a_failure_to_read_for_an_old_incarnation_is_void(self, bench):
        bench.open_stream("a")
        slot = slot_of("a", SLOTS)
        bench.give(on.SlotOutOfRange(slot, -1, "offset out of range"))

        assert not bench.stopped

    def test_a_missing_stream_start_stops_who_sees_snapshots(self, bench, make_bench, log):
        bench.open_stream("a")
        bench.later()
        root = slot_of(ROOT_TOKEN, SLOTS)
        log.broker.logs[PROGRESS, root] = Log((PROGRESS, root))
        slot = next(slot for slot in range(SLOTS) if slot != root)
        heir = make_bench(name="w2")
        heir.own(slot)
        heir.later(5_000_000)
        assert not heir.stopped
        for _ in range(12):
            heir.later(5_000_000)

        assert "holds no StreamStarted" in str(heir.stopped[0].error)
        assert isinstance(heir.stopped[0].error, ProgressLost)

    def test_a_search_that_ended_before_the_stream_started_proves_nothing(self, make_bench):
        opener, heir = make_bench(name="w1"), make_bench(name="w2")
        heir.own(SLOTS - 1)
        opener.open_stream("a")
        opener.later()
        events = heir.membership.read_slot(SLOTS - 1, count=1_000)
        heir.now_us += 60_000_000
        for event in [*events, on.Ticked(), on.StreamStartAbsent(1)]:
            heir.runner.process(event)
        assert not heir.stopped
        heir.later()

        assert heir.worker.stream == opener.worker.stream

    def test_nobody_opens_a_stream_in_a_slot_that_holds_records(self, bench, make_bench, log):
        bench.open_stream("a")
        bench.later()
        root = slot_of(ROOT_TOKEN, SLOTS)
        kept = [r for r in log.slots[root] if r is not None and isinstance(r.body, SlotProgress)]
        log.broker.logs[PROGRESS, root] = Log((PROGRESS, root))
        log.broker.offsets.clear()
        for record in kept:
            log.broker.logs[PROGRESS, root].append(b"k", record, None)
        heir = make_bench(name="w2")
        heir.own(root)
        for _ in range(12):
            heir.later(5_000_000)

        assert ROOT_TOKEN not in heir.queries
        assert isinstance(heir.stopped[0].error, ProgressLost)

    def test_an_old_incarnations_recovery_is_void(self, bench):
        bench.own(0)
        bench.give(on.SlotsLost((0,)))
        bench.worker.handle(on.SlotsAssigned((0,)), now=bench.now)
        bench.give(on.SlotRecoveryStarted(0, 1, committed_offset=None, end_offset=0))

        assert not bench.worker.slots[0].has_caught_up

    def test_every_slot_has_a_snapshot_each_minute(self, bench):
        bench.open_stream("a")
        before = len(bench.bodies(SlotWatermark))
        bench.later(61_000_000)

        assert len(bench.bodies(SlotWatermark)) - before == SLOTS

    def test_a_drain_commits_releases_the_slots_and_stops(self, bench, log):
        bench.open_stream("a")
        bench.returns("a", bench.change(START_US + 10))
        bench.give(on.DrainRequested())

        assert len(log.data) == 1
        assert bench.stopped[0] == do.Stop(None)
        assert not bench.worker.slots

    def test_a_drain_without_slots_stops_at_once(self, bench):
        bench.give(on.DrainRequested())

        assert bench.stopped


class TestSnapshot:
    """A worker can go on in another object."""

    def test_it_holds_all_that_decides(self, bench, make_bench, log):
        bench.open_stream("a", "b")
        bench.returns("a", bench.change(START_US + 10))
        snapshot = bench.worker.snapshot()
        heir = make_bench(name="w1")
        heir.worker.restore(snapshot)
        heir.now_us = bench.now_us

        events = [on.Ticked(), on.SlotsLost((slot_of("a", SLOTS),)), on.Ticked()]
        for event in events:
            at_us = bench.now_us + 1_000_000
            assert heir.worker.handle(event, now=bench.at(at_us)) == bench.worker.handle(
                event, now=bench.at(at_us)
            )
        assert heir.worker.slots.keys() == bench.worker.slots.keys()

    def test_what_happens_later_is_not_in_it(self, bench):
        bench.open_stream("a")
        snapshot = bench.worker.snapshot()
        bench.give(on.SlotsLost(tuple(bench.worker.slots)))

        assert len(snapshot["slots"]) == SLOTS


class TestGroup:
    """What the worker does about its place in the group is counted by what it is."""

    def test_a_new_client_and_a_rejoin_are_counted_apart(self, bench):
        bench.own(0, 1)
        name = bench.worker.name
        held = {name: frozenset({0, 1})}
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
