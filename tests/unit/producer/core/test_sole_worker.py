"""A worker that is alone owns everything or does nothing, and reads nothing."""

from __future__ import annotations

import pytest

from tests.unit.producer.core.conftest import SLOTS, Bench
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.accepted_gaps import GapAcceptingWorker
from tidegate.producer.core.redrive import RedrivingWorker
from tidegate.schemas.errors import ConfigError

KINDS = pytest.mark.parametrize("kind", [GapAcceptingWorker, RedrivingWorker])


@pytest.fixture
def published(bench, log):
    bench.open_stream("a", "b")
    bench.later()
    bench.give(on.DrainRequested())
    return log


@KINDS
def test_it_is_ready_or_is_not_ready(published, kind):
    one = Bench(published, name="sole", kind=kind)
    one.give(on.RootSlotRead((), is_at_end=True))
    one.own(*range(SLOTS - 1))
    assert not one.worker.is_ready
    one.own(SLOTS - 1)
    assert one.worker.is_ready
    one.give(on.SlotsLost((0,)))
    assert not one.worker.is_ready


@KINDS
def test_it_reads_nothing_and_writes_nothing_by_itself(published, kind):
    before = {slot: len(records) for slot, records in published.slots.items()}
    one = Bench(published, name="sole", kind=kind)
    one.own(*range(SLOTS))
    for _ in range(20):
        one.later(7_000_000)
    assert not one.queries
    assert not one.stopped
    assert {slot: len(records) for slot, records in published.slots.items()} == before
    one.give(on.DrainRequested())
    assert one.stopped == [do.Stop(None)]


@KINDS
def test_it_opens_no_stream(log, kind):
    one = Bench(log, name="sole", kind=kind)
    one.own(*range(SLOTS))
    assert isinstance(one.stopped[0].error, ConfigError)
