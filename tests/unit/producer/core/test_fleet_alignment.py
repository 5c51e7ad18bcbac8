"""What the drift is compared with: the slots of others, as long as the view is fresh."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.events import FleetRead
from tidegate.producer.core.fleet_alignment import STALE_AFTER_US, FleetAlignment
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.query_scheduler import SchedulerLimits
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.errors import TokenRefused
from tidegate.schemas.progress import SlotChanges
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
        read = FleetRead(lowest_us, is_current=is_current, has_stopped=has_stopped)
        self.alignment.handle(read, self.now_us)
        return self.look()

    def look(self, later_us=0):
        self.now_us += later_us
        self.alignment.look(self.now_us)
        return self.index._scheduler.others_us


@pytest.fixture
def others():
    return Others()


def test_the_lowest_of_the_other_slots_counts(others):
    assert others.read({0: 5, 1: 30, 2: 20, 3: None}) == 20
    assert others.read({2: 40}) == 30
    assert others.read({1: None}) == 40
    assert others.read({2: None}) is None


def test_a_slot_counts_as_soon_as_it_is_not_owned(others):
    others.read({0: 5, 1: 30})
    assert others.look(LOOK_US - 1) == 30
    others.slots[0].phase = SlotPhase.REVOKING
    assert others.look(1) == 5
    others.slots.clear()
    assert others.look(LOOK_US) == 5


def test_a_view_that_was_never_whole_counts_for_nothing(others):
    assert others.read({1: 30}, is_current=False) is None


def test_a_view_that_is_not_confirmed_grows_old(others):
    others.read({1: 30})
    assert others.look(STALE_AFTER_US) == 30
    assert others.read({1: 35}, is_current=False) == 35
    assert others.look(LOOK_US) is None
    assert others.read({}) == 35


@pytest.mark.parametrize("with_moves", [False, True])
def test_others_count_for_nothing_while_one_may_wait_for_what_is_stopped(others, with_moves):
    others.alignment = FleetAlignment(others.slots, others.index, with_moves=with_moves)
    assert others.read({1: 30}) == 30
    assert others.read({}, has_stopped=True) == (None if with_moves else 30)
    assert others.read({}) == 30


@pytest.mark.parametrize("drift_us_max", [0, 1])
def test_the_fleet_is_followed_only_for_a_limit_of_the_drift(drift_us_max):
    index = PartitionIndex(4, SchedulerLimits(drift_us_max=drift_us_max))

    effects = FleetAlignment({}, index).follow("e")
    assert effects == ([do.FollowFleet("e")] if drift_us_max else [])


class TestWorker:
    """The same through a worker's core."""

    @pytest.mark.parametrize("drift_us_max", [0, 1_000])
    def test_it_is_followed_once_the_epoch_is_known(self, make_bench, drift_us_max):
        bench = make_bench(limits=_drift_limits(drift_us_max))
        bench.open_stream("a")

        followed = [one.epoch for one in bench.effects if isinstance(one, do.FollowFleet)]
        assert followed == ([bench.worker.epoch] if drift_us_max else [])

    def test_what_is_ahead_of_other_workers_is_paused_until_they_follow(self, make_bench):
        bench = make_bench(limits=_drift_limits(1_000))
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

    def test_a_stop_is_said_at_once_since_the_others_wait_until_then(self, bench):
        bench.open_stream("a")
        bench.returns("a", bench.heartbeat(START_US + 2_000))
        bench.later()
        written = len(bench.bodies(SlotChanges))
        query = bench.queries.pop("a")
        bench.give(on.QueryFailed("a", query.query_id, TokenRefused("no", token="a")))
        bench.later()

        (last,) = bench.bodies(SlotChanges)[written:]
        assert [one.stopped is not None for one in last.added] == [True]
        bench.later()
        assert len(bench.bodies(SlotChanges)) == written + 1


def _drift_limits(drift_us_max):
    return WorkerLimits(queries=QueryLimits(scheduler=SchedulerLimits(drift_us_max=drift_us_max)))
