"""Who has a query and whose bytes are next: the furthest behind first, and everyone in turn."""

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.core import effects as do
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.lifecycle import PartitionChange, PartitionState
from tidegate.producer.core.partition_index import Decision, QueryScheduler, SchedulerLimits
from tidegate.producer.core.queries import Queries
from tidegate.producer.driver.byte_budget import BudgetLine, Request
from tidegate.schemas.errors import InvariantViolation

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


def decided(change, token):
    return Decision(token, change)


ended = partial(decided, PartitionChange.TURN_ENDED)
paused = partial(decided, PartitionChange.PAUSED)
resumed = partial(decided, PartitionChange.RESUMED)
LOOK_US = 100_000  # the drift and turns are looked at that often


class TestStart:
    def test_the_furthest_behind_goes_first(self):
        fleet = Fleet(open_max=2)
        fleet.queue(a=30, b=10, c=20)
        assert fleet.obey() == started("b", "c")

    @pytest.mark.parametrize("is_running", [True, False])
    @pytest.mark.parametrize("state", [PartitionState.FINISHED, PartitionState.SCHEDULED, None])
    def test_one_that_ends_is_forgotten_or_leaves_the_queue_makes_room(self, is_running, state):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10, b=20)
        if is_running:
            fleet.obey()
        if state is None:
            del fleet.known["a"]
            fleet.scheduler.discard("a")
        else:
            fleet.put("a", state, 15)
        assert fleet.obey() == started("b")


class TestTurns:
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

    def test_a_turn_that_brought_nothing_is_not_over(self):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10)
        fleet.obey()
        fleet.queue(b=5)
        assert fleet.obey(later_us=TURN_US) == []
        fleet.reads(a=11)
        assert fleet.obey(later_us=TURN_US) == [ended("a"), *started("b")]


class TestDrift:
    @pytest.fixture
    def fleet(self):
        made = Fleet(open_max=4, drift_us_max=100)
        made.queue(a=10, b=20)
        made.obey()
        return made

    @pytest.fixture
    def apart(self, fleet):
        """The same once `b` is paused, at 200."""
        fleet.reads(b=200)
        assert fleet.obey(later_us=LOOK_US) == [paused("b")]
        return fleet

    def test_beyond_the_limit_it_is_paused_and_does_not_start(self, fleet):
        fleet.reads(b=110)
        assert fleet.obey(later_us=LOOK_US) == []
        fleet.reads(b=111)
        assert fleet.obey(later_us=LOOK_US) == [paused("b")]
        fleet.queue(c=500)
        assert fleet.obey() == [paused("c")]

    def test_the_slowest_of_other_workers_counts_as_well(self, fleet):
        fleet.scheduler.others_us = 5
        fleet.reads(b=106)
        assert fleet.obey(later_us=LOOK_US) == [paused("b")]
        fleet.scheduler.others_us = 300
        assert fleet.obey(later_us=2_000_000) == []
        fleet.reads(a=60)
        assert fleet.obey(later_us=LOOK_US) == [resumed("b"), *started("b")]

    def test_it_goes_on_when_the_slowest_is_within_half_of_the_limit(self, apart):
        apart.reads(a=149)
        assert apart.obey(later_us=2_000_000) == []
        apart.reads(a=150)
        assert apart.obey(later_us=LOOK_US) == [resumed("b"), *started("b")]

    def test_a_pause_lasts_a_second_unless_it_is_the_slowest(self, apart):
        apart.reads(a=199)
        assert apart.obey(later_us=900_000) == []
        apart.reads(a=200)
        assert apart.obey(later_us=99_999) == [], "not looked at yet"
        assert apart.obey(later_us=1) == [resumed("b"), *started("b")]

    @pytest.mark.parametrize(
        "state", [PartitionState.STOPPED, PartitionState.FINISHED, PartitionState.CREATED, None]
    )
    def test_what_this_worker_cannot_move_holds_nobody_up(self, apart, state):
        if state is None:
            del apart.known["a"]
            apart.scheduler.discard("a")
        else:
            apart.put("a", state, 10)
        assert apart.obey(later_us=LOOK_US) == [resumed("b"), *started("b")]


class TestInvariants:
    @pytest.mark.parametrize("state", [PartitionState.QUEUED, PartitionState.RUNNING])
    def test_it_missed_a_change(self, state):
        fleet = Fleet(open_max=1)
        fleet.known["a"] = state, 10
        with pytest.raises(InvariantViolation, match=f"differs in what is {state.name}"):
            fleet.scheduler.check_invariants(fleet.known)

    @pytest.mark.parametrize(
        ("attribute", "message"),
        [("_movable", "what can move"), ("_ahead", "what is ahead"),
         ("_paused_since", "a pause without a beginning")],
    )  # fmt: skip
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

    def test_a_query_that_was_not_decided_or_is_one_too_many(self):
        fleet = Fleet(open_max=1)
        fleet.queue(a=10, b=20)
        fleet.obey()
        fleet.put("b", PartitionState.RUNNING, 20)
        with pytest.raises(InvariantViolation, match="without a turn"):
            fleet.scheduler.check_invariants(fleet.known)
        fleet.scheduler._turns.set("b", 0)
        with pytest.raises(InvariantViolation, match="more queries than may run"):
            fleet.scheduler.check_invariants(fleet.known)


MINUTE_US = 60_000_000
WAITING = {PartitionState.QUEUED: 3, PartitionState.PAUSED: 1, PartitionState.RUNNING: 2}
NOTHING = {PartitionState.RUNNING: 5}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(0, NOTHING)], []),
        (
            [(0, WAITING), (MINUTE_US - 1, WAITING), (MINUTE_US, WAITING)],
            [do.ReportWaiting(3, 1, 2)] * 2,
        ),
        (
            [(0, WAITING), (1, NOTHING), (MINUTE_US, NOTHING), (5 * MINUTE_US, NOTHING)],
            [do.ReportWaiting(3, 1, 2), do.ReportWaiting(0, 0, 5)],
        ),
        ([(0, {PartitionState.PAUSED: 1})], [do.ReportWaiting(0, 1, 0)]),
    ],
    ids=["nothing waits", "once a minute", "the end once", "a pause waits too"],
)
def test_what_waits_is_reported(seen, expected):
    queries = Queries(Counters())
    reports = [queries.report(states, at_us) for at_us, states in seen]
    assert [effect for effects in reports for effect in effects] == expected


def admit_all(line):
    admitted = []
    while (request := line.admit()) is not None:
        admitted.append(request)
    return admitted


def ask(line, token, size, *, carried=0):
    request = Request(token, size, carried)
    line.ask(request)
    return request


def hold(line, token, size):
    """Let a reader take and deliver bytes at once."""
    request = ask(line, token, size)
    assert admit_all(line) == [request]


class TestBudgetLine:
    @pytest.fixture
    def line(self):
        return BudgetLine(100)

    def test_first_come_first_served_within_the_shares(self, line):
        hold(line, "busy", 100)
        first, second, gone = ask(line, "a", 60), ask(line, "b", 1), ask(line, "c", 5)
        line.withdraw(gone)
        line.release([("busy", 50)])
        assert admit_all(line) == [], "the small one does not overtake"
        line.release([("busy", 50)])
        assert admit_all(line) == [first, second]
        assert line.delivered("c") == 0

    def test_who_has_more_than_a_share_lets_those_pass_that_have_less(self, line):
        hold(line, "busy", 90)
        hold(line, "c", 10)
        more, other = ask(line, "busy", 20), ask(line, "b", 15)
        line.release([("busy", 20)])
        assert admit_all(line) == [other]
        line.release([("busy", 40)])
        assert admit_all(line) == [more], "what it holds is its share now"

    def test_what_a_waiting_reader_holds_counts_for_no_share(self, line):
        hold(line, "part", 80)
        hold(line, "c", 20)
        rest, other = ask(line, "part", 10, carried=80), ask(line, "b", 10)
        line.release([("c", 20)])
        assert admit_all(line) == [rest, other]

    def test_more_released_than_taken_is_a_bug_even_if_others_hold_it(self, line):
        hold(line, "a", 10)
        hold(line, "b", 10)
        with pytest.raises(InvariantViolation):
            line.release([("a", 11)])


TOKENS = ("a", "b", "c", "d")
SIZES = st.integers(1, 60) | st.integers(90, 300)


@given(st.lists(st.tuples(st.sampled_from(TOKENS), st.none() | SIZES), max_size=60))
def test_whatever_happens_the_bytes_add_up_and_shares_are_kept(events):
    """(token, size) asks, (token, None) commits."""
    line, held, waits = BudgetLine(100), Counter(), []
    for token, size in events:
        if size is None:
            line.release([(token, held.pop(token, 0))])
        else:
            waits.append(ask(line, token, size))
        before, share = line.waiting, line.share
        while (request := line.admit()) is not None:
            within = [one for one in before if held[one.token] <= share]
            assert request is (within or before)[0]
            assert line.taken <= 100 or sum(held.values()) == 0
            held[request.token] += request.size
            waits.remove(request)
            before, share = line.waiting, line.share
        assert list(line.waiting) == waits
        assert line.taken == sum(held.values())
        assert {token: line.delivered(token) for token in TOKENS} == {t: held[t] for t in TOKENS}
        assert held.total() or not waits  # somebody is served as soon as nothing is held
