"""Leases: a run that lives is left alone, and one that is gone is replaced."""

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.lease import Lease, LeaseSeen, LeaseWatch, seen_lease
from tidegate.spark_consumer.errors import CheckpointMismatch, WriterReplaced

GONE_AFTER_S = 6.0


@pytest.fixture
def store():
    return ObjectStore()


def run(store):
    """Return a run's folder and lease, after it has taken the checkpoint."""
    files = StoreClient(store, "gate", None)
    return files, Lease(files, files.take())


def test_what_was_renewed_is_seen(store):
    files, lease = run(store)
    assert seen_lease(files, 1) == LeaseSeen(1)
    lease.renew()
    lease.renew()
    assert seen_lease(files, 1) == LeaseSeen(1, renewals=2)
    lease.give_back()
    assert seen_lease(files, 1).is_given_back


@pytest.mark.parametrize("error", [UnreachableError, CheckpointMismatch])
def test_a_lease_that_is_read_while_it_is_written_ends_nothing(error):
    class Files:
        def read_json(self, name):
            raise error("the storage rejected a request")

    assert seen_lease(Files(), 1) == LeaseSeen(1)


def test_a_run_that_was_replaced_has_no_lease_any_more(store):
    _, former = run(store)
    former.renew()
    files, lease = run(store)
    lease.renew()
    for write in (former.renew, former.give_back):
        with pytest.raises(WriterReplaced):
            write()
    assert seen_lease(files, 1) == LeaseSeen(1)
    assert seen_lease(files, 2) == LeaseSeen(2, renewals=1)


@pytest.mark.parametrize("seen", [LeaseSeen(0), LeaseSeen(3, 7, is_given_back=True)])
def test_a_free_checkpoint_is_taken_at_once(seen):
    assert LeaseWatch().may_take(seen, now_s=0)


@pytest.mark.parametrize("seen", [LeaseSeen(3), LeaseSeen(3, 7)])
def test_a_run_that_is_silent_is_gone_after_three_renewals_are_missed(seen):
    watch = LeaseWatch()
    assert not watch.may_take(seen, now_s=100)
    assert not watch.may_take(seen, now_s=100 + GONE_AFTER_S)
    assert watch.may_take(seen, now_s=100.1 + GONE_AFTER_S)
    assert not watch.is_renewed


def test_a_run_that_renews_is_never_gone():
    watch = LeaseWatch()
    for number in range(100):
        assert not watch.may_take(LeaseSeen(3, number), now_s=number * GONE_AFTER_S)
    assert watch.is_renewed


def test_another_run_that_has_taken_it_is_waited_for_too():
    watch = LeaseWatch()
    watch.may_take(LeaseSeen(3, 7), now_s=0)
    assert not watch.may_take(LeaseSeen(4), now_s=GONE_AFTER_S + 1)
    assert watch.may_take(LeaseSeen(4), now_s=2 * GONE_AFTER_S + 2)


def test_a_run_that_renews_less_often_is_waited_for_longer():
    watch = LeaseWatch()
    seen = LeaseSeen(3, 7, every_s=20)
    assert not watch.may_take(seen, now_s=0)
    assert not watch.may_take(seen, now_s=60)
    assert watch.may_take(seen, now_s=61)
