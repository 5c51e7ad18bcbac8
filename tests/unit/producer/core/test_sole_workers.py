"""Workers that an operator starts alone: parked changes are put back, gaps are accepted."""

from dataclasses import replace

import pytest

from tests.unit.producer.core.conftest import (
    DEAD_LETTER,
    SLOTS,
    START_US,
    TOPIC,
    Bench,
    message,
    parked_change,
)
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.sole_workers import GapAcceptingWorker, RedrivingWorker
from tidegate.producer.errors import GapNotAccepted, PositionExpired, RedriveFailed
from tidegate.producer.messages import FORM_MESSAGE, FORM_REDRIVEN, PublishableRecord
from tidegate.schemas.checksums import parked_key
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.progress import (
    ControlState,
    DataTopic,
    PartitionGap,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    StreamControl,
    TableAdded,
)
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

KEYS = (b"k1", b"k2")
REFUSED = on.DeliveryFailure(on.DeliveryFault.TOO_LARGE, "x", 0, TOPIC, "k", 100)
NUMBERS = frozenset(parked_key(TOPIC, key) for key in KEYS)


def order_key(at_us):
    return OrderKey(at_us, "t1", sequence_pair("00000000"), 0).encode()


def good(at_us, key):
    return PublishableRecord(at_us, "t1", "00000000", (message(order_key(at_us), key, TOPIC),))


def poison(at_us, key, token):
    change = parked_change(order_key(at_us), key, TOPIC, token)
    return PublishableRecord(at_us, "t1", "00000000", (), (change,))


class Redrive:
    """What `tidegate-producer redrive` does with a worker, step by step."""

    def __init__(self, log):
        self.bench = Bench(log, name="redrive", kind=RedrivingWorker)
        self.bench.own(*range(SLOTS))
        self.bench.give(on.RootSlotRead((), is_at_end=True))
        parked = [entry.value for entry in log.broker.read(DEAD_LETTER)]
        done = {c.key: c.order_key for c in parked if c.form == FORM_REDRIVEN}
        self.changes = [c for c in parked if c.order_key > done.get(c.key, b"")]
        self.changes.sort(key=lambda change: change.order_key)

    @property
    def events(self):
        """What the core receives, in order."""
        keys = frozenset(parked_key(change.topic, change.key) for change in self.changes)
        markers = {c.key: c._replace(form=FORM_REDRIVEN, content=b"") for c in self.changes}
        messages = [message(c.order_key, c.key, c.topic, c.content) for c in self.changes]
        return [
            on.RedriveBegan(keys),
            *(on.RedriveRead((PublishableRecord(1, "", "0", (message,)),)) for message in messages),
            on.RedriveRead((PublishableRecord(1, "", "0", (), tuple(markers.values())),)),
            on.RedriveEnded(),
        ]

    def run(self, steps=None):
        for event in self.events[:steps]:
            self.bench.give(event)
        return self

    @property
    def error(self):
        (stop,) = self.bench.stopped
        return stop.error


@pytest.fixture
def parked(bench, log):
    """Park three changes of two keys in three stream partitions of several slots; end the worker.

    A fourth key stays parked in one of them.
    """
    bench.open_stream("a", "b", "c")
    bench.later()
    assert len({slot_of(token, SLOTS) for token in "abc"}) > 1
    bench.returns("a", poison(START_US + 10, b"k1", "a"), good(START_US + 11, b"other"))
    bench.returns("b", poison(START_US + 12, b"k2", "b"), poison(START_US + 13, b"k3", "b"))
    bench.returns("a", good(START_US + 14, b"k1"))
    bench.later()
    child = bench.children("d", start_us=START_US + 50, parents=("a", "c"))
    for token in "ac":
        bench.returns(token, child)
        bench.ends(token)
        bench.later()
    bench.later()
    bench.give(on.DrainRequested())
    assert [message.key for message in log.data] == [b"other"]
    return log


def values_by_key(log):
    keys = {message.key for message in log.data}
    return {key: [message.order_key for message in log.data if message.key == key] for key in keys}


def assert_done(log):
    """Check that every change is there once, each key's in order, and flows from now on."""
    assert values_by_key(log) == {
        b"other": [order_key(START_US + 11)],
        b"k1": [order_key(START_US + 10), order_key(START_US + 14)],
        b"k2": [order_key(START_US + 12)],
        b"k3": [order_key(START_US + 13)],
    }
    worker = Bench(log, name="w2")
    worker.own(*range(SLOTS))
    worker.later()
    worker.returns("d", good(START_US + 60, b"k1"))
    worker.returns("b", good(START_US + 61, b"k3"))
    worker.later()
    assert values_by_key(log)[b"k1"][-1] == order_key(START_US + 60)
    assert values_by_key(log)[b"k3"][-1] == order_key(START_US + 61)


def assert_nothing_has_changed(log):
    assert values_by_key(log) == {b"other": [order_key(START_US + 11)]}
    assert not [e for e in log.broker.read(DEAD_LETTER) if e.value.form == FORM_REDRIVEN]


def wrote(log, before):
    """Return the slots that have more records than before, and the last heartbeat of each."""
    beats = (SlotProgress, SlotChanges, SlotPaused)
    newest = {}
    for slot, records in log.slots.items():
        bodies = [r.body for r in records[before[slot] :] if r is not None]
        if bodies := [body for body in bodies if isinstance(body, beats)]:
            newest[slot] = bodies[-1]
    return newest


class TestDone:
    LATER = DataTopic("bank.later", "id-9", 1, 9)

    def test_every_key_flows_again_and_its_changes_stand_in_order(self, parked):
        assert Redrive(parked).run().error is None
        assert Redrive(parked).changes == [], "a second one finds nothing"
        end = parked.broker.logs[TOPIC, 0].end
        chain = Bench(parked, name="w3")
        chain.own(*range(SLOTS))
        offset = chain.worker.slots[slot_of(ROOT_TOKEN, SLOTS)].vector[TOPIC, 0]
        assert max(e.offset for e in parked.broker.read(TOPIC)) == offset < end
        assert_done(parked)

    def test_in_a_pause_the_slots_that_it_writes_stay_paused(self, parked):
        """Each heartbeat may be where the next owner begins to read the slot."""
        redrive = Redrive(parked)
        pause = StreamControl(1, ControlState.PAUSED, "me", 0)
        record = ProgressRecord(redrive.bench.worker.epoch, "_control", pause)
        redrive.bench.give(on.RootSlotRead((record,), is_at_end=True))
        before = parked.sizes
        assert redrive.run().error is None
        ends = wrote(parked, before)
        assert len(ends) > 1
        assert ends == {slot: SlotPaused(slot, 1) for slot in ends}

    def test_a_later_table_that_no_worker_found_is_recorded_with_its_first_change(self, parked):
        """Every change of it was parked, since the registry refused its schema."""
        parked.broker.create_topic(self.LATER.topic, 1)
        redrive = Redrive(parked)
        redrive.bench.give(on.TableFound(self.LATER))
        record = PublishableRecord(1, "", "0", (message(b"o", topic=self.LATER.topic),))
        begin, *rest = redrive.events
        for event in (begin, *2 * [on.RedriveRead((record,))], *rest):
            redrive.bench.give(event)
        assert redrive.error is None
        assert redrive.bench.bodies(TableAdded) == [TableAdded(self.LATER)]

    def test_a_key_that_is_not_chosen_stays_parked(self, parked):
        redrive = Redrive(parked)
        redrive.changes = [change for change in redrive.changes if change.key in KEYS]
        assert redrive.run().error is None
        worker = redrive.bench.successor()
        worker.later()
        worker.returns("b", good(START_US + 61, b"k3"), good(START_US + 62, b"k2"))
        worker.later()
        last = list(parked.broker.read(DEAD_LETTER))[-1].value
        assert (last.key, last.form) == (b"k3", FORM_MESSAGE)
        assert values_by_key(parked)[b"k2"] == [order_key(START_US + n) for n in (12, 62)]
        keys = {key for token in worker.last_snapshot("b").tokens for key in token.parked_keys}
        assert keys & NUMBERS == set()
        assert parked_key(TOPIC, b"k3") in keys

    def test_a_slot_that_is_lost_and_a_commit_that_is_sent_again_change_nothing(self, parked):
        redrive = Redrive(parked)
        redrive.bench.answers_commits = False
        redrive.run()
        assert do.CommitTransaction() in redrive.bench.give(on.CommitUnanswered("silence"))
        redrive.bench.give(on.SlotsLost((1,)))
        redrive.bench.give(on.TransactionCommitted())
        assert redrive.error is None
        assert_done(parked)


class TestNotDone:
    @pytest.mark.parametrize(
        "outcome",
        [
            on.TransactionAborted("refused"),
            on.CommitOutcomeUnknown("who knows"),
            on.ProducerFenced(),
            on.TransactionAborted("too large", REFUSED),
        ],
        ids=["aborted", "unknown", "fenced", "refused"],
    )
    def test_a_commit_that_fails(self, parked, outcome):
        redrive = Redrive(parked)
        redrive.bench.outcome = outcome
        assert isinstance(redrive.run().error, RedriveFailed)
        assert_nothing_has_changed(parked)
        Redrive(parked).run()
        assert_done(parked)

    @pytest.mark.parametrize("steps", range(8))
    def test_killed_at_each_step(self, parked, steps):
        """Its transaction ends with the next process of its name."""
        redrive = Redrive(parked)
        assert len(redrive.events) == 7
        redrive.bench.answers_commits = False
        redrive.bench.outcome = on.TransactionAborted("killed before the commit")
        redrive.run(steps)
        assert_nothing_has_changed(parked)
        Redrive(parked).run()
        assert_done(parked)

    def test_what_is_still_read_after_an_abort_goes_nowhere(self, parked):
        redrive = Redrive(parked).run(1)
        handle, now = redrive.bench.worker.handle, redrive.bench.now
        handle(on.SlotsLost((2,)), now=now)
        assert all(handle(event, now=now) == [] for event in redrive.events[1:])

    def test_a_slot_that_is_missing_before_it_begins(self, parked):
        redrive = Redrive(parked)
        redrive.bench.give(on.SlotsLost((1,)))
        assert isinstance(redrive.run(1).error, RedriveFailed)
        assert_nothing_has_changed(parked)


@pytest.mark.parametrize("kind", [GapAcceptingWorker, RedrivingWorker])
class TestSole:
    def test_it_is_ready_with_all_slots_and_writes_nothing_by_itself(self, opened, log, kind):
        opened.later()
        opened.give(on.DrainRequested())
        before = log.sizes
        bench = Bench(log, name="sole", kind=kind)
        bench.own(*range(SLOTS - 1))
        bench.give(on.RootSlotRead((), is_at_end=True))
        assert not bench.worker.is_ready
        bench.own(SLOTS - 1)
        assert bench.worker.is_ready
        for _ in range(100):
            bench.later(7_000_000)
        assert not bench.queries
        assert not bench.stopped
        assert log.sizes == before
        bench.give(on.SlotsLost((0,)))
        assert not bench.worker.is_ready
        bench.give(on.DrainRequested())
        assert bench.stopped == [do.Stop(None)]

    def test_it_opens_no_stream(self, bench, kind):
        assert isinstance(bench.successor(kind=kind).error, ConfigError)
        assert bench.bodies(SlotProgress) == []


@pytest.mark.parametrize("event", [on.GapsAccepted(()), on.RedriveBegan(frozenset())])
def test_another_worker_takes_no_gaps_and_puts_nothing_back(opened, event):
    with pytest.raises(InvariantViolation):
        opened.worker.handle(event, now=opened.now)


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
    bench.fails("a", PositionExpired("x", code="OUT_OF_RANGE", lost_from="x", lost_until="y"))
    bench.later()
    assert "lost_from" in bench.last_snapshot("a").tokens[0].stopped
    bench.give(on.DrainRequested())
    return log


def acceptor(log):
    bench = Bench(log, name="accept-gap", kind=GapAcceptingWorker)
    bench.own(*range(SLOTS))
    bench.give(on.RootSlotRead((), is_at_end=True))
    assert bench.worker.is_ready
    return bench


def records(log):
    return [
        [type(record.body).__name__ for record in slot if record is not None]
        for slot in log.slots.values()
    ]


def token_of(bench):
    (snapshot,) = [token for token in bench.last_snapshot("a").tokens if token.token == "a"]
    return snapshot


class TestGaps:
    def test_the_record_stands_before_the_heartbeat_that_passes_it(self, stopped):
        bench, before, number = acceptor(stopped), records(stopped), slot_of("a", SLOTS)
        bench.give(on.GapsAccepted((GAP,)))
        assert bench.stopped == [do.Stop(None)]
        assert records(stopped)[number][len(before[number]) :][0] == "PartitionGap"
        assert bench.bodies(PartitionGap) == [GAP]
        snapshot = token_of(bench)
        assert (snapshot.watermark_us, snapshot.boundary, snapshot.stopped) == (
            UNTIL_US - 1,
            (),
            None,
        )
        assert [(t.topic, t.mods) for t in snapshot.totals] == [("bank.accounts", 1)]
        others = [n for n in range(SLOTS) if n != number]
        assert [records(stopped)[n] for n in others] == [before[n] for n in others]

        worker = bench.successor()
        worker.later()
        assert worker.queries["a"].start_ns == (UNTIL_US - 1) * 1000
        worker.returns("a", worker.change(UNTIL_US - 1), worker.change(UNTIL_US))
        worker.later()
        times = [int.from_bytes(message.order_key[:8], "big") for message in stopped.data]
        assert times == [READ_US, UNTIL_US]

    @pytest.mark.parametrize(
        "gap",
        [replace(GAP, from_us=READ_US + 1), replace(GAP, token="nobody"), replace(GAP, token="b")],
        ids=["moved", "no token", "another one"],
    )
    def test_a_position_that_is_not_the_gaps_is_refused_and_with_it_all_others(self, stopped, gap):
        before = records(stopped)
        bench = acceptor(stopped)
        bench.give(on.GapsAccepted((GAP, gap)))
        assert isinstance(bench.stopped[0].error, GapNotAccepted)
        assert "has moved" in str(bench.stopped[0].error)
        assert records(stopped) == before

    @pytest.mark.parametrize(
        "outcome",
        [on.TransactionAborted("refused"), on.CommitOutcomeUnknown("silence"), on.ProducerFenced()],
        ids=lambda outcome: type(outcome).__name__,
    )
    def test_whatever_ends_it_before_the_commit_changes_nothing(self, stopped, outcome):
        before = records(stopped)
        bench = acceptor(stopped)
        bench.outcome = outcome
        bench.give(on.GapsAccepted((GAP,)))
        assert isinstance(bench.stopped[0].error, GapNotAccepted)
        assert records(stopped) == before
        again = acceptor(stopped)
        again.give(on.GapsAccepted((GAP,)))
        assert records(stopped) != before
        assert token_of(again).watermark_us >= UNTIL_US - 1

    def test_a_slot_that_is_taken_away_ends_it(self, stopped):
        bench = acceptor(stopped)
        bench.give(on.SlotsLost((slot_of("b", SLOTS),)))
        bench.give(on.GapsAccepted((GAP,)))
        assert isinstance(bench.stopped[0].error, GapNotAccepted)
        assert bench.bodies(PartitionGap) == []
