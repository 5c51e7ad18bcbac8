"""Who has a query: never more than may run, the furthest behind first, and everyone in turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.core.conftest import START_US, Bench, Log
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import PartitionChange, PartitionState
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.query_scheduler import Decision, QueryScheduler, SchedulerLimits
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.topics import slot_of

TURN_US = 5_000_000
AFTER = {
    PartitionChange.QUERY_STARTED: PartitionState.RUNNING,
    PartitionChange.TURN_ENDED: PartitionState.QUEUED,
    PartitionChange.PAUSED: PartitionState.PAUSED,
    PartitionChange.RESUMED: PartitionState.QUEUED,
}


class Fleet:
    """Stream partitions whose scheduler is obeyed, as `Queries` does."""

    def __init__(self, **limits):
        self.limits = SchedulerLimits(turn_us=TURN_US, **limits)
        self.scheduler = QueryScheduler(self.limits)
        self.known = {}
        self.now_us = 0

    def put(self, token, state, read_us):
        self.known[token] = state, read_us
        self.scheduler.put(token, state, read_us)

    def queue(self, **read_us):
        for token, at_us in read_us.items():
            self.put(token, PartitionState.QUEUED, at_us)

    def reads(self, **read_us):
        for token, at_us in read_us.items():
            self.put(token, self.known[token][0], at_us)

    def obey(self, *, later_us=0):
        """Let time pass; return the decisions that follow, once they are carried out."""
        self.now_us += later_us
        found = []
        while (decision := self.scheduler.decide(self.now_us)) is not None:
            found.append(decision)
            self.put(decision.token, AFTER[decision.change], self.known[decision.token][1])
            self.scheduler.check_invariants(self.known)
        return found

    def of(self, state):
        return {token for token, (one, _) in self.known.items() if one is state}


def started(*tokens):
    return [Decision(token, PartitionChange.QUERY_STARTED) for token in tokens]


def ended(token):
    return Decision(token, PartitionChange.TURN_ENDED)


def paused(token):
    return Decision(token, PartitionChange.PAUSED)


def resumed(token):
    return Decision(token, PartitionChange.RESUMED)


class TestStart:
    """A query starts as soon as fewer than the limit run."""

    def test_the_furthest_behind_goes_first(self):
        fleet = Fleet(open_max=2)
        fleet.queue(a=30, b=10, c=20)

        assert fleet.obey() == started("b", "c")

    def test_a_query_that_ends_makes_room(self):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10, b=20)
        fleet.obey()
        fleet.put("a", PartitionState.FINISHED, 15)

        assert fleet.obey() == started("b")

    def test_one_that_is_forgotten_makes_room(self):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10, b=20)
        fleet.obey()
        del fleet.known["a"]
        fleet.scheduler.discard("a")

        assert fleet.obey() == started("b")

    def test_what_left_the_queue_does_not_start(self):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10, b=20)
        fleet.put("a", PartitionState.SCHEDULED, 10)

        assert fleet.obey() == started("b")


class TestTurns:
    """A query makes way for a stream partition that is further behind."""

    def full(self):
        """Return a fleet where `a` and `b` run and `c` waits."""
        fleet = Fleet(open_max=2)
        fleet.queue(a=10, b=11, c=12)
        fleet.obey()
        return fleet

    def test_the_furthest_ahead_goes_when_its_turn_is_over(self):
        fleet = self.full()
        fleet.reads(a=100, b=200)
        assert fleet.obey(later_us=TURN_US - 1) == []

        assert fleet.obey(later_us=100_000) == [ended("b"), *started("c")]

    def test_what_it_read_after_its_turn_counts(self):
        fleet = self.full()
        fleet.reads(a=100, b=50)
        fleet.queue(c=150)
        assert fleet.obey(later_us=TURN_US) == []
        fleet.reads(a=300)
        fleet.reads(b=200)

        assert fleet.obey(later_us=100_000) == [ended("a"), *started("c")]

    def test_nothing_goes_for_one_that_is_further_ahead(self):
        fleet = self.full()
        fleet.queue(c=1_000)
        fleet.reads(a=100, b=200)

        assert fleet.obey(later_us=TURN_US) == []

    def test_a_turn_that_brought_nothing_is_not_over(self):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10)
        fleet.obey()
        fleet.queue(b=5)
        assert fleet.obey(later_us=TURN_US) == []
        fleet.reads(a=11)

        assert fleet.obey(later_us=TURN_US) == [ended("a"), *started("b")]

    def test_nothing_ends_while_nothing_waits(self):
        fleet = Fleet(open_max=2)
        fleet.queue(a=10, b=20)
        fleet.obey()
        fleet.reads(a=1_000, b=2_000)

        assert fleet.obey(later_us=10 * TURN_US) == []


@given(
    open_max=st.integers(1, 4),
    backlogs=st.lists(
        st.tuples(st.integers(20, 1_000), st.integers(0, 60)), min_size=1, max_size=12
    ),
)
def test_everyone_has_a_turn_again_and_again(open_max, backlogs):
    """Queries without an end, each some times faster than the clock, with some seconds to read."""
    fleet = Fleet(open_max=open_max)
    speeds = {f"p{number}": speed for number, (speed, _) in enumerate(backlogs)}
    begin_us = 60_000_000
    fleet.queue(**{f"p{n}": begin_us - s * 1_000_000 for n, (_, s) in enumerate(backlogs)})
    fleet.obey()
    for _ in range(240):
        fleet.obey(later_us=1_000_000)
        for token in fleet.of(PartitionState.RUNNING):
            read_us = fleet.known[token][1] + speeds[token] * 1_000_000
            fleet.reads(**{token: min(read_us, begin_us + fleet.now_us)})
        assert len(fleet.of(PartitionState.RUNNING)) == min(open_max, len(speeds))

    round_us = -(-len(speeds) // open_max) * (TURN_US + 1_000_000)
    slowest_us = min(read_us for _, read_us in fleet.known.values())
    assert slowest_us >= begin_us + fleet.now_us - 2 * round_us


class TestDrift:
    """A stream partition that is far ahead of the slowest one is not read."""

    def running(self, **options):
        """Return a fleet where `a` and `b` run, and may be 100 apart."""
        fleet = Fleet(open_max=4, drift_us_max=100, **options)
        fleet.queue(a=10, b=20)
        fleet.obey()
        return fleet

    def test_beyond_the_limit_it_is_paused(self):
        fleet = self.running()
        fleet.reads(b=110)
        assert fleet.obey(later_us=100_000) == []
        fleet.reads(b=111)

        assert fleet.obey(later_us=100_000) == [paused("b")]

    def test_the_slowest_of_other_workers_counts_as_well(self):
        fleet = self.running()
        fleet.scheduler.others_us = 5
        fleet.reads(b=106)
        assert fleet.obey(later_us=100_000) == [paused("b")]

        fleet.scheduler.others_us = 300
        assert fleet.obey(later_us=2_000_000) == []
        fleet.reads(a=60)
        assert fleet.obey(later_us=100_000) == [resumed("b"), *started("b")]

    def test_the_slowest_of_this_worker_waits_for_those_of_others(self):
        fleet = self.running()
        fleet.scheduler.others_us = -100
        assert fleet.obey(later_us=100_000) == [paused("b"), paused("a")]

        fleet.scheduler.others_us = None
        assert resumed("a") in fleet.obey(later_us=100_000)

    def test_others_alone_compare_nothing(self):
        fleet = Fleet(open_max=1, drift_us_max=100)
        fleet.scheduler.others_us = 5

        assert fleet.obey(later_us=100_000) == []

    def test_without_a_limit_nothing_is_paused(self):
        fleet = Fleet(open_max=4)
        fleet.queue(a=10, b=20)
        fleet.obey()
        fleet.reads(b=10**15)

        assert fleet.obey(later_us=100_000) == []

    def test_it_goes_on_when_the_slowest_is_within_half_of_the_limit(self):
        fleet = self.running()
        fleet.reads(b=200)
        fleet.obey(later_us=100_000)
        fleet.reads(a=149)
        assert fleet.obey(later_us=2_000_000) == []
        fleet.reads(a=150)

        assert fleet.obey(later_us=100_000) == [resumed("b"), *started("b")]

    def test_a_pause_lasts_a_second_unless_it_is_the_slowest(self):
        fleet = self.running()
        fleet.reads(b=200)
        fleet.obey(later_us=100_000)
        fleet.reads(a=199)
        assert fleet.obey(later_us=900_000) == []
        fleet.reads(a=200)

        assert fleet.obey(later_us=99_999) == []  # not looked at yet
        assert fleet.obey(later_us=1) == [resumed("b"), *started("b")]

    def test_one_that_is_too_far_ahead_does_not_start(self):
        fleet = self.running()
        fleet.queue(c=500)

        assert fleet.obey() == [paused("c")]

    @pytest.mark.parametrize(
        "state",
        [
            PartitionState.STOPPED,
            PartitionState.FINISHED,
            PartitionState.CREATED,
        ],
    )
    def test_what_this_worker_cannot_move_holds_nobody_up(self, state):
        fleet = self.running()
        fleet.reads(b=200)
        fleet.obey(later_us=100_000)
        fleet.put("a", state, 10)

        assert fleet.obey(later_us=100_000) == [resumed("b"), *started("b")]

    def test_what_is_gone_holds_nobody_up(self):
        fleet = self.running()
        fleet.reads(b=200)
        fleet.obey(later_us=100_000)
        del fleet.known["a"]
        fleet.scheduler.discard("a")

        assert fleet.obey(later_us=100_000) == [resumed("b"), *started("b")]

    @pytest.mark.parametrize("state", [PartitionState.SCHEDULED, PartitionState.QUEUED])
    def test_one_that_waits_for_its_query_holds_the_others_back(self, state):
        fleet = Fleet(open_max=1, drift_us_max=100)
        fleet.queue(b=20)
        fleet.obey()
        fleet.put("a", state, 10)
        fleet.reads(b=111)

        assert paused("b") in fleet.obey(later_us=100_000)

    @given(st.lists(st.integers(20, 1_000), min_size=2, max_size=8), st.integers(1, 8))
    def test_the_distance_stays_bounded_and_all_arrive(self, speeds, open_max):
        fleet = Fleet(open_max=open_max, drift_us_max=60_000_000)
        tokens = {f"p{number}": speed for number, speed in enumerate(speeds)}
        fleet.queue(**dict.fromkeys(tokens, 0))
        end_us, step_us = 3_600_000_000, 100_000
        fleet.obey()
        for _ in range(100_000):
            for token in fleet.of(PartitionState.RUNNING):
                read_us = fleet.known[token][1] + tokens[token] * step_us
                fleet.reads(**{token: min(read_us, end_us)})
            fleet.obey(later_us=step_us)
            reached = [read_us for _, read_us in fleet.known.values()]
            # What one reads between two looks comes on top.
            assert max(reached) - min(reached) <= 60_000_000 + 2 * max(speeds) * step_us
            if min(reached) == end_us:
                return
        pytest.fail("some have not arrived")


class TestInvariants:
    """What the scheduler believes is compared with what is."""

    @pytest.mark.parametrize("state", [PartitionState.QUEUED, PartitionState.RUNNING])
    def test_it_missed_a_change(self, state):
        fleet = Fleet(open_max=1)
        fleet.known["a"] = state, 10

        with pytest.raises(InvariantViolation, match=f"differs in what is {state.name}"):
            fleet.scheduler.check_invariants(fleet.known)

    @pytest.mark.parametrize(
        ("attribute", "message"),
        [
            ("_movable", "differs in what can move"),
            ("_ahead", "differs in what is ahead"),
            ("_paused_since", "a pause without a beginning"),
        ],
    )
    def test_it_lost_what_the_drift_is_compared_with(self, attribute, message):
        fleet = Fleet(open_max=2, drift_us_max=100)
        fleet.queue(a=10, b=500)
        fleet.obey()
        held = getattr(fleet.scheduler, attribute)
        if isinstance(held, dict):
            held.clear()
        else:
            held.discard("a")

        with pytest.raises(InvariantViolation, match=message):
            fleet.scheduler.check_invariants(fleet.known)

    def test_more_run_than_may(self):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10, b=20)
        fleet.obey()
        fleet.put("b", PartitionState.RUNNING, 20)
        fleet.scheduler._turns.set("b", 0)

        with pytest.raises(InvariantViolation, match="more queries than may run"):
            fleet.scheduler.check_invariants(fleet.known)

    def test_a_query_that_was_not_decided(self):
        fleet = Fleet(open_max=1)
        fleet.put("a", PartitionState.RUNNING, 20)

        with pytest.raises(InvariantViolation, match="without a turn"):
            fleet.scheduler.check_invariants(fleet.known)


class TestWorker:
    """The scheduler in a worker: what waits stays in the snapshots and holds the watermark."""

    @pytest.fixture
    def crowded(self):
        """Return a worker that may run one query and has two stream partitions to read."""
        scheduler = SchedulerLimits(open_max=1, turn_us=TURN_US)
        bench = Bench(Log(), limits=WorkerLimits(queries=QueryLimits(scheduler=scheduler)))
        bench.open_stream("a", "b")
        bench.later()
        return bench

    def test_a_queued_one_holds_the_watermark(self, crowded):
        (running,) = crowded.queries
        (waiting,) = {"a", "b"} - {running}
        crowded.returns(running, crowded.heartbeat(START_US + 2_000_000))
        crowded.later()

        assert crowded.worker.states[PartitionState.QUEUED] == 1
        assert crowded.worker.watermark_us == START_US - 1
        held = {t.token: t.watermark_us for t in crowded.last_snapshot(waiting).tokens}
        assert held[waiting] == START_US - 1

    def test_it_gets_its_turn_where_it_was(self, crowded):
        (first,) = crowded.queries
        (second,) = {"a", "b"} - {first}
        number = crowded.queries[first].query_id
        crowded.returns(first, crowded.heartbeat(START_US + 2_000_000))
        crowded.later(TURN_US)

        assert list(crowded.queries) == [second]
        assert do.StopQuery(first, number) in crowded.effects
        assert crowded.queries[second].start_ns == START_US * 1000
        assert crowded.worker.counters.counts["turn_ended"] == 1

        crowded.returns(second, crowded.heartbeat(START_US + 9_000_000))
        crowded.later(TURN_US)
        assert crowded.queries[first].start_ns == (START_US + 2_000_000 - 1) * 1000
        assert crowded.worker.watermark_us == START_US + 2_000_000 - 1

    def test_what_the_query_still_delivers_is_dropped_with_its_bytes(self, crowded):
        (first,) = crowded.queries
        stopped = crowded.queries[first]
        crowded.returns(first, crowded.heartbeat(START_US + 2_000_000))
        crowded.later(TURN_US)
        late = crowded.change(START_US + 2_500_000)

        effects = crowded.give(on.RecordsRead(first, stopped.query_id, [late], 77))
        assert do.ReleaseBudget(((first, 77),)) in effects

    def test_a_slot_with_a_queued_one_is_released(self, crowded):
        (running,) = crowded.queries
        (waiting,) = {"a", "b"} - {running}
        crowded.give(on.SlotsRevoked((slot_of(waiting, 4),)))
        crowded.later()

        assert slot_of(waiting, 4) not in crowded.worker.slots
        assert crowded.worker.states.get(PartitionState.QUEUED, 0) == 0

    def test_what_waits_is_reported_once_a_minute(self, crowded):
        reports = [e for e in crowded.effects if isinstance(e, do.ReportWaiting)]
        assert reports == [do.ReportWaiting(1, 0, 1)]


class TestPaused:
    """A pause in a worker: no query, nothing dropped, and its slot can leave."""

    @pytest.fixture
    def apart(self):
        """Return a worker whose `b` is paused, because `a` has returned nothing yet."""
        scheduler = SchedulerLimits(turn_us=TURN_US, drift_us_max=10_000_000)
        bench = Bench(Log(), limits=WorkerLimits(queries=QueryLimits(scheduler=scheduler)))
        bench.open_stream("a", "b")
        bench.returns("b", bench.change(START_US + 20_000_000))
        bench.later(100_000)
        return bench

    def test_it_gives_its_query_back_and_publishes_what_it_has_read(self, apart):
        assert list(apart.queries) == ["a"]
        assert apart.worker.states[PartitionState.PAUSED] == 1
        assert apart.worker.counters.counts["paused"] == 1
        apart.later()

        assert len(apart.log.data) == 1
        assert apart.worker.watermark_us == START_US - 1

    def test_it_goes_on_where_it_was(self, apart):
        apart.returns("a", apart.heartbeat(START_US + 16_000_000))
        apart.later(2_000_000)

        assert apart.queries["b"].start_ns == (START_US + 20_000_000 - 1) * 1000
        apart.returns("b", apart.change(START_US + 20_000_000), apart.change(START_US + 20_000_001))
        apart.later()
        assert len(apart.log.data) == 2

    def test_its_slot_is_released(self, apart):
        apart.give(on.SlotsRevoked((slot_of("b", 4),)))
        apart.later()

        assert slot_of("b", 4) not in apart.worker.slots
        assert apart.worker.states.get(PartitionState.PAUSED, 0) == 0
