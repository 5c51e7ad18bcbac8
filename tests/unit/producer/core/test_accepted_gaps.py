"""A gap is written in the transaction that passes it, or not at all; nothing else is skipped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US, Bench
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.accepted_gaps import GapAcceptingWorker
from tidegate.producer.errors import GapNotAccepted, PositionExpired
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import PartitionGap
from tidegate.schemas.topics import slot_of

READ_US = START_US + 10
"""The commit time of what was read before the outage: its instant may have more."""
UNTIL_US = START_US + 9_000_000
GAP = PartitionGap("a", READ_US, UNTIL_US, "ops", 7)


@pytest.fixture
def stopped(bench, log):
    """Two stream partitions; one is stopped by an expired position and has published a change."""
    bench.open_stream("a", "b")
    bench.later()
    bench.returns("a", bench.change(READ_US))
    bench.later()
    query = bench.queries.pop("a")
    error = PositionExpired("too old", code="OUT_OF_RANGE", lost_from="x", lost_until="y")
    bench.give(on.QueryFailed("a", query.query_id, error))
    bench.later()
    assert "lost_from" in bench.last_snapshot("a").tokens[0].stopped
    bench.give(on.DrainRequested())
    return log


def acceptor(log):
    one = Bench(log, name="accept-gap", kind=GapAcceptingWorker)
    one.own(*range(SLOTS))
    one.give(on.RootSlotRead((), is_at_end=True))
    assert one.worker.is_ready
    return one


def records(log):
    return [
        [type(record.body).__name__ for record in found if record is not None]
        for found in log.slots.values()
    ]


def token_of(bench):
    (found,) = [one for one in bench.last_snapshot("a").tokens if one.token == "a"]
    return found


def test_the_record_stands_before_the_heartbeat_that_passes_it(stopped):
    one = acceptor(stopped)
    before = records(stopped)
    one.give(on.GapsAccepted((GAP,)))
    assert one.stopped == [do.Stop(None)]
    number = slot_of("a", SLOTS)
    assert records(stopped)[number][len(before[number]) :][0] == "PartitionGap"
    assert one.bodies(PartitionGap) == [GAP]
    found = token_of(one)
    assert (found.watermark_us, found.boundary, found.stopped) == (UNTIL_US - 1, (), None)
    assert [(t.topic, t.mods) for t in found.totals] == [("bank.accounts", 1)]
    others = [n for n in range(SLOTS) if n != number]
    assert [records(stopped)[n] for n in others] == [before[n] for n in others]


def test_a_worker_reads_on_where_the_gap_ends(stopped):
    acceptor(stopped).give(on.GapsAccepted((GAP,)))
    worker = Bench(stopped, name="w2")
    worker.own(*range(SLOTS))
    worker.later()
    assert worker.queries["a"].start_ns == (UNTIL_US - 1) * 1000
    worker.returns("a", worker.change(UNTIL_US - 1), worker.change(UNTIL_US))
    worker.later()
    times = [message.order_key[:8] for message in stopped.data]
    assert [int.from_bytes(time, "big") for time in times] == [READ_US, UNTIL_US]


@pytest.mark.parametrize(
    "gap",
    [
        replace(GAP, from_us=READ_US + 1),
        replace(GAP, token="nobody"),
        replace(GAP, token="b"),
    ],
    ids=["moved", "no token", "another one"],
)
def test_a_position_that_is_not_the_gaps_is_refused_and_with_it_all_others(stopped, gap):
    before = records(stopped)
    one = acceptor(stopped)
    one.give(on.GapsAccepted((GAP, gap)))
    assert isinstance(one.stopped[0].error, GapNotAccepted)
    assert "has moved" in str(one.stopped[0].error)
    assert records(stopped) == before


def test_a_second_acceptance_of_the_same_gap_is_refused(stopped):
    acceptor(stopped).give(on.GapsAccepted((GAP,)))
    again = acceptor(stopped)
    again.give(on.GapsAccepted((GAP,)))
    assert isinstance(again.stopped[0].error, GapNotAccepted)
    assert again.bodies(PartitionGap) == [GAP]


@pytest.mark.parametrize(
    "outcome",
    [on.TransactionAborted("refused"), on.CommitOutcomeUnknown("silence"), on.ProducerFenced()],
    ids=lambda outcome: type(outcome).__name__,
)
def test_whatever_ends_it_before_the_commit_changes_nothing(stopped, outcome):
    before = records(stopped)
    one = acceptor(stopped)
    one.outcome = outcome
    one.give(on.GapsAccepted((GAP,)))
    assert isinstance(one.stopped[0].error, GapNotAccepted)
    assert records(stopped) == before
    again = acceptor(stopped)
    again.give(on.GapsAccepted((GAP,)))
    assert records(stopped) != before
    assert token_of(again).watermark_us >= UNTIL_US - 1


def test_a_slot_that_is_taken_away_ends_it(stopped):
    one = acceptor(stopped)
    one.give(on.SlotsLost((slot_of("b", SLOTS),)))
    one.give(on.GapsAccepted((GAP,)))
    assert isinstance(one.stopped[0].error, GapNotAccepted)
    assert one.bodies(PartitionGap) == []


def test_several_gaps_of_several_slots_are_one_transaction(stopped):
    one = acceptor(stopped)
    found = one.worker.slots[slot_of("b", SLOTS)].tokens["b"].published.watermark_us
    gaps = (GAP, PartitionGap("b", found + 1, UNTIL_US, "ops", 7))
    one.give(on.GapsAccepted(gaps))
    assert one.stopped == [do.Stop(None)]
    assert sorted(one.bodies(PartitionGap), key=lambda gap: gap.token) == list(gaps)
    assert sum(isinstance(effect, do.CommitTransaction) for effect in one.effects) == 1


def test_another_worker_takes_no_gaps(bench):
    bench.open_stream("a")
    with pytest.raises(InvariantViolation):
        bench.worker.handle(on.GapsAccepted((GAP,)), now=bench.now)
