"""What a worker learns of the others: how far their slots are, and which slots nobody owns."""

from types import SimpleNamespace

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.fleet import STALE_AFTER_US, FleetAlignment, FleetProgress
from tidegate.producer.core.group_watch import GroupWatch, WatchLimits
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.partition_index import PartitionIndex, SchedulerLimits
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.errors import ProgressLost
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import ProgressRecord, SlotProgress, TokenSnapshot
from tidegate.schemas.topics import slot_of

LOOK_US = 100_000


class Others:
    """An alignment over own slots, and what the scheduler was given last."""

    def __init__(self):
        self.slots = {0: SimpleNamespace(phase=SlotPhase.OWNED)}
        self.index = PartitionIndex(4, SchedulerLimits(drift_us_max=1))
        self.alignment = FleetAlignment(self.slots, self.index)
        self.now_us = 10**12

    def read(self, lowest_us, *, is_current=True, has_stopped=False):
        read = on.FleetRead(lowest_us, is_current=is_current, has_stopped=has_stopped)
        self.alignment.handle(read, self.now_us)
        return self.look()

    def look(self, later_us=0):
        self.now_us += later_us
        self.alignment.look(self.now_us)
        return self.index._scheduler.others_us


@pytest.fixture
def others():
    return Others()


class TestAlignment:
    def test_the_lowest_of_the_other_slots_counts(self, others):
        assert others.read({1: 30}, is_current=False) is None, "it was never whole"
        assert others.read({0: 5, 1: 30, 2: 20, 3: None}) == 20
        assert others.read({2: 40}) == 30
        assert others.read({1: None}) == 40
        assert others.read({2: None}) is None

    def test_a_view_that_is_not_confirmed_grows_old(self, others):
        others.read({1: 30})
        assert others.look(STALE_AFTER_US) == 30
        assert others.read({1: 35}, is_current=False) == 35
        assert others.look(LOOK_US) is None
        assert others.read({}) == 35

    @pytest.mark.parametrize("with_moves", [False, True])
    def test_others_do_not_count_while_one_may_wait_for_what_is_stopped(self, others, with_moves):
        others.alignment = FleetAlignment(others.slots, others.index, with_moves=with_moves)
        assert others.read({1: 30}) == 30
        assert others.read({}, has_stopped=True) == (None if with_moves else 30)
        assert others.read({}) == 30


def test_what_is_ahead_of_other_workers_is_paused_until_they_follow(make_bench):
    scheduler = SchedulerLimits(drift_us_max=1_000)
    bench = make_bench(limits=WorkerLimits(queries=QueryLimits(scheduler=scheduler)))
    bench.open_stream("a")
    other = next(slot for slot in range(1, SLOTS) if slot != slot_of("a", SLOTS))
    bench.give(on.SlotsLost((other,)))
    bench.give(on.FleetRead({other: START_US}, is_current=True))
    bench.returns("a", bench.heartbeat(START_US + 2_000))
    bench.later(200_000)
    assert "a" not in bench.queries
    bench.give(on.FleetRead({other: START_US + 2_000}, is_current=True))
    bench.later(2_000_000)
    assert "a" in bench.queries


NOW_US = 10**12
LATER_US = NOW_US + 1_000_000  # when the ends are asked for again


def beat(slot, revision, watermark_us):
    tokens = (TokenSnapshot("a", 0, (), ("",), watermark_us, number=0),)
    return ProgressRecord("e", "w", SlotProgress(slot, revision, 0, -1, (), tokens))


@pytest.fixture
def progress():
    """One with a heartbeat in each of two slots, reported at `NOW_US`."""
    progress = FleetProgress(epoch="e", topic="p", slots=2)
    assert progress.wants_ends(NOW_US)
    progress.note_ends({0: 2, 1: 2}, NOW_US)
    for slot in range(2):
        progress.add(slot, 0, beat(slot, 1, 30 + slot))
        progress.reach_end(slot, 2)
    assert progress.report() == on.FleetRead({0: 30, 1: 31}, is_current=True)
    return progress


class TestProgress:
    def test_nothing_is_current_before_each_slot_was_read_to_its_end(self):
        progress = FleetProgress(epoch="e", topic="p", slots=2)
        progress.add(0, 0, beat(0, 1, 30))
        progress.reach_end(0, 1)
        assert progress.report() == on.FleetRead({0: 30, 1: None}, is_current=False)
        assert not progress.is_at_end, "the ends are not known"
        progress.note_ends({0: 1, 1: 2}, NOW_US)
        progress.add(1, 0, beat(1, 1, 40))
        assert progress.report() == on.FleetRead({1: 40}, is_current=False)
        assert not progress.is_at_end
        progress.reach_end(1, 2)
        assert progress.is_at_end
        assert progress.report() == on.FleetRead({}, is_current=True)

    def test_nothing_is_current_while_a_slot_has_no_heartbeat(self):
        progress = FleetProgress(epoch="e", topic="p", slots=2)
        progress.note_ends({0: 0, 1: 0}, NOW_US)
        assert progress.report() == on.FleetRead({0: None, 1: None}, is_current=False)
        assert progress.is_at_end
        assert progress.report() is None
        assert not progress.wants_ends(LATER_US - 1)
        assert progress.wants_ends(LATER_US)

    def test_only_what_has_changed_is_named(self, progress, monkeypatch):
        progress.add(1, 3, beat(1, 2, 50))
        assert progress.report() == on.FleetRead({1: 50}, is_current=False)
        progress.reach_end(1, 4)
        monkeypatch.setattr(progress.view, "lowest_us", pytest.fail)
        assert progress.report() is None, "no slot is looked at"

    def test_a_record_that_removes_another_is_no_news(self, progress):
        progress.note_ends({0: 9, 1: 2}, LATER_US)
        progress.add(0, 7, None)
        assert progress.report() is None
        progress.reach_end(0, 9)
        assert progress.report() == on.FleetRead({}, is_current=True)

    def test_what_is_awaited_is_reported_once_it_is_published(self):
        progress = FleetProgress(epoch="e", topic="p", slots=1, with_moves=True)
        progress.await_sources([("a", 40), ("a", 50)])
        assert progress.report() == on.FleetRead({0: None}, is_current=False)
        for offset, at_us, published in ((0, 30, ()), (1, 40, (("a", 40),))):
            progress.add(0, offset, beat(0, offset + 1, at_us))
            assert progress.report() == on.FleetRead({0: at_us}, False, published=published)
        progress.await_sources([("a", 35)])
        # Nothing was read, and it is answered at once.
        assert progress.report() == on.FleetRead({}, is_current=False, published=(("a", 35),))
        assert progress.report() is None

    def test_reading_a_slot_backwards_is_an_error(self, progress):
        with pytest.raises(ProgressLost, match=r"moved backwards \(slot=1, was=2, now=0\)"):
            progress.add(1, 0, beat(1, 2, 99))
        assert progress.reached(1) == 2


PATIENCE, PAUSE = 30, 60
LIMITS = WatchLimits(patience_us=PATIENCE, pause_us=PAUSE)
GROUP_SLOTS = 4


def described(is_stable=True, is_member=True, **slots):
    assignments = {name: frozenset(assigned) for name, assigned in slots.items()}
    return on.GroupDescribed(is_stable, is_member, assignments)


UNASSIGNED = described(a={0, 1}, b={2}, c=set())
REBALANCING = described(False, a={0, 1}, b={2}, c=set())
COMPLETE = described(a={0, 1}, b={2}, c={3})


def watch(worker="c"):
    return GroupWatch(worker=worker, slots=GROUP_SLOTS, limits=LIMITS)


def run(one, seen):
    """Handle (time, description) pairs; return when it acted."""
    return [at for at, group in seen if one.handle(group, now_us=at) is not None]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(5, UNASSIGNED), (PATIENCE + 5, UNASSIGNED)], [PATIENCE + 5]),
        ([(5, UNASSIGNED), (PATIENCE + 4, UNASSIGNED)], []),
        ([(PATIENCE, UNASSIGNED)], []),
        ([(0, COMPLETE), (PATIENCE, COMPLETE), (2 * PATIENCE, COMPLETE)], []),
        ([(0, UNASSIGNED), (1, COMPLETE), (PATIENCE, UNASSIGNED)], []),
        ([(0, UNASSIGNED), (1, REBALANCING), (PATIENCE, UNASSIGNED)], []),
        ([(0, UNASSIGNED), (10, described(a={0}, b={2}, c=())), (PATIENCE, UNASSIGNED)], []),
        ([(0, described(False, a={0})), (PATIENCE, described(False, a={0}))], []),
        ([(0, described(a={0})), (10 * PATIENCE, described(a={0}))], []),
    ],
    ids=[
        "long enough", "too short", "one description", "all assigned", "assigned meanwhile",
        "rebalance meanwhile", "other assignment meanwhile", "rebalance all the time",
        "without this worker's name",
    ],
)  # fmt: skip
def test_when_the_first_in_turn_acts(seen, expected):
    assert run(watch(), seen) == expected


OUT = described(is_member=False, a={0, 1, 2, 3})


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(5, OUT), (PATIENCE + 5, OUT)], [PATIENCE + 5]),
        ([(5, OUT), (PATIENCE + 4, OUT)], []),
        ([(PATIENCE, OUT)], []),
        ([(0, OUT), (1, COMPLETE), (PATIENCE, OUT), (PATIENCE + 1, OUT)], []),
        ([(0, OUT), (PATIENCE, OUT), (PATIENCE + 1, OUT), (2 * PATIENCE + 1, OUT)], [30, 61]),
        ([(0, described(True, False)), (PATIENCE, described(False, False))], [PATIENCE]),
        # A static member that took its predecessor's place is described with that one's client.
        ([(0, described(is_member=False, c=())), (PATIENCE, described(is_member=False, c=()))], []),
    ],
    ids=[
        "long enough", "too short", "one description", "a member meanwhile", "twice",
        "an empty group", "under another client's name",
    ],
)  # fmt: skip
def test_a_worker_that_is_not_in_its_group_gets_a_new_client(seen, expected):
    one = watch()
    done = [(at, one.handle(group, now_us=at)) for at, group in seen]
    assert [at for at, what in done if what == do.ReplaceGroupClient()] == expected
    assert not [what for _, what in done if isinstance(what, do.RejoinGroup)]


def test_it_names_the_unassigned_slots_and_pauses_before_it_acts_again():
    one = watch()
    found = [(at, one.handle(UNASSIGNED, now_us=at)) for at in range(0, 2 * PAUSE, 5)]
    acted = [(at, what) for at, what in found if what is not None]
    assert acted == [(at, do.RejoinGroup((3,))) for at in (PATIENCE, PATIENCE + PAUSE)]


@pytest.mark.parametrize(("worker", "turn"), [("c", 0), ("b", 1), ("a", 2)])
def test_the_member_with_fewest_slots_acts_first_and_the_next_after_a_pause(worker, turn):
    seen = [(at, UNASSIGNED) for at in range(0, 4 * PAUSE, 5)]
    assert run(watch(worker), seen)[0] == PATIENCE + turn * PAUSE


def test_waiting_without_unassigned_slots_breaks_the_invariant():
    one = watch()
    one._last = COMPLETE
    with pytest.raises(InvariantViolation):
        one.check_invariants()
