"""Leases: a run that lives is left alone, one that is gone is replaced, and another stands by."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.program.status_server import Health
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.writers import Lease, LeaseSeen, LeaseWatch, seen_lease
from tidegate.spark_consumer.errors import CheckpointMismatch, WriterReplaced
from tidegate.spark_consumer.spark.standby import LeaseKeeper, require_turn, wait_for_turn

GONE_AFTER_S = 6.0


@pytest.fixture
def store():
    return ObjectStore()


def run(store):
    """Return a run's folder and lease, after it has taken the checkpoint."""
    files = StoreClient(store, "gate", None)
    return files, Lease(files, files.take())


@pytest.mark.parametrize("error", [UnreachableError, CheckpointMismatch])
def test_a_lease_that_is_read_while_it_is_written_ends_nothing(error):
    class Files:
        def read_json(self, name):
            raise error("the storage rejected a request")

    assert seen_lease(Files(), 1) == LeaseSeen(1)


def lease_of(**content):
    return seen_lease(SimpleNamespace(read_json=lambda _name: content), 1)


def test_a_lease_of_a_newer_version_is_read_and_a_damaged_one_named():
    newer = {"renewals": 7, "every_s": 4.0, "is_given_back": False, "host": "b"}
    assert lease_of(**newer) == LeaseSeen(1, renewals=7, every_s=4.0)
    for wrong in ({"renewals": "7"}, {"renewals": True}, {"every_s": "4"}, {"is_given_back": 1}):
        with pytest.raises(CheckpointMismatch, match="leases/000000000001"):
            lease_of(**{**newer, **wrong})
    with pytest.raises(CheckpointMismatch, match="leases/000000000001"):
        seen_lease(SimpleNamespace(read_json=lambda _name: [1]), 1)


def test_a_run_that_was_replaced_has_no_lease_any_more(store):
    former_files, former = run(store)
    assert seen_lease(former_files, 1) == LeaseSeen(1)
    for _ in range(2):
        former.renew()
    assert seen_lease(former_files, 1) == LeaseSeen(1, renewals=2)
    files, lease = run(store)
    lease.renew()
    for write in (former.renew, former.give_back):
        with pytest.raises(WriterReplaced):
            write()
    assert seen_lease(files, 1) == LeaseSeen(1)
    assert seen_lease(files, 2) == LeaseSeen(2, renewals=1)
    lease.give_back()
    assert seen_lease(files, 2).is_given_back


def test_a_free_checkpoint_is_taken_at_once_and_a_silent_run_is_waited_for():
    for seen in (LeaseSeen(0), LeaseSeen(3, 7, is_given_back=True)):
        assert LeaseWatch().may_take(seen, now_s=0)
    for seen, wait_s in (
        (LeaseSeen(3), 6),
        (LeaseSeen(3, 7), 6),
        (LeaseSeen(3, 7, every_s=20), 60),
    ):
        watch = LeaseWatch()
        found = [watch.may_take(seen, now_s=100 + s) for s in (0, wait_s, wait_s + 0.1)]
        assert found == [False, False, True]
        assert not watch.is_renewed
    watch = LeaseWatch()
    for number in range(100):
        assert not watch.may_take(LeaseSeen(3, number), now_s=number * GONE_AFTER_S)
    assert watch.is_renewed
    # Another run that has taken it is waited for, too.
    watch = LeaseWatch()
    watch.may_take(LeaseSeen(3, 7), now_s=0)
    assert not watch.may_take(LeaseSeen(4), now_s=GONE_AFTER_S + 1)
    assert watch.may_take(LeaseSeen(4), now_s=2 * GONE_AFTER_S + 2)


# ---------------------------------------------------------------- standing by
class Clock:
    """Passes a second whenever it is read, and lets `deed` happen then."""

    def __init__(self, deed=lambda: None):
        self.now_s = 0.0
        self.deed = deed

    def __call__(self):
        self.now_s += 1
        self.deed()
        return self.now_s


def wait(store, clock, *, stop=None):
    health = Health()
    may_take = wait_for_turn(
        StoreClient(store, "gate", None),
        stop=stop or threading.Event(), health=health, clock=clock, wait_s=0,
    )  # fmt: skip
    return may_take, health.not_ready


def test_an_empty_checkpoint_is_taken_at_once_and_one_of_a_killed_run_after_its_lease(store):
    clock = Clock()
    assert wait(store, clock) == (True, "starting")
    assert clock.now_s == turn(store, Clock()) == 1
    run(store)[1].renew()
    clock = Clock()
    assert wait(store, clock) == (True, "starting")
    assert 6 < clock.now_s < 10
    assert 6 < turn(store, Clock()) < 10
    _, lease = run(store)
    lease.renew()
    lease.give_back()
    assert turn(store, Clock()) == 1


@pytest.mark.parametrize("is_stopped", [False, True])
def test_it_stands_by_until_the_other_run_has_ended_or_it_is_stopped(store, is_stopped):
    _, lease = run(store)
    stop = threading.Event()

    def live():
        if clock.now_s < 60:
            lease.renew()
        elif clock.now_s == 60:
            stop.set() if is_stopped else lease.give_back()

    clock = Clock(live)
    waits = "stands by: run 1 works on this checkpoint"
    assert wait(store, clock, stop=stop) == (not is_stopped, waits)
    assert 60 <= clock.now_s < 64


def turn(store, clock):
    require_turn(StoreClient(store, "gate", None), clock=clock, wait=lambda _: None)
    return clock.now_s


def test_a_checkpoint_of_a_run_that_lives_is_refused(store):
    _, lease = run(store)
    with pytest.raises(ConfigError, match=r"another run works .*run=1.*take_over"):
        turn(store, Clock(lease.renew))


# ---------------------------------------------------------------- keeping a lease
def test_a_lease_is_kept_while_the_query_runs_and_given_back(store):
    files, lease = run(store)
    renewed, queries = threading.Event(), iter([True, True, True])

    def is_running():
        more = next(queries, None)
        if more is None:
            renewed.set()
        return more is not None

    keeper = LeaseKeeper(lease, is_running=is_running, every_s=0.001)
    assert renewed.wait(30)
    assert seen_lease(files, 1).renewals == 4
    keeper.stop()
    keeper.stop()
    assert seen_lease(files, 1).is_given_back
    assert keeper.failure is None


def test_a_second_stop_returns_when_the_lease_is_given_back(store):
    _, lease = run(store)
    asked, returned, order = threading.Event(), threading.Event(), []

    class Slow:
        renew = staticmethod(lease.renew)

        def give_back(self):
            asked.set()
            returned.wait(0.5)
            order.append("given back")

    keeper = LeaseKeeper(Slow(), is_running=lambda: True)
    watching = threading.Thread(target=keeper.stop)
    watching.start()
    assert asked.wait(30)
    keeper.stop()
    order.append("returned")
    returned.set()
    watching.join(30)
    assert order == ["given back", "returned"]


def test_a_run_that_was_replaced_finds_out_without_a_batch(store):
    _, lease = run(store)
    keeper = LeaseKeeper(lease, is_running=lambda: True, every_s=0.001)
    files, other = run(store)
    other.renew()
    keeper._thread.join(30)
    assert isinstance(keeper.failure, WriterReplaced)
    keeper.stop()
    assert not seen_lease(files, 2).is_given_back


def test_a_storage_that_fails_for_a_while_ends_nothing(store):
    class Failing:
        def __init__(self, lease):
            self.lease = lease
            self.calls = 0
            self.renewed = threading.Event()

        def renew(self):
            self.calls += 1
            if self.calls in (2, 3):
                raise UnreachableError("the storage rejected a request")
            self.lease.renew()
            if self.calls > 4:
                self.renewed.set()

        def give_back(self):
            self.lease.give_back()

    files, lease = run(store)
    failing = Failing(lease)
    keeper = LeaseKeeper(failing, is_running=lambda: True, every_s=0.001)
    assert failing.renewed.wait(30)
    keeper.stop()
    assert keeper.failure is None
    assert seen_lease(files, 1).is_given_back
