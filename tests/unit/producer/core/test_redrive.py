"""Parked changes are put back in one transaction, or not at all; nothing is lost or comes twice."""

from __future__ import annotations

import pytest

from tests.unit.producer.core.conftest import DEAD_LETTER, SLOTS, START_US, TOPIC, Bench
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.redrive import RedrivingWorker
from tidegate.producer.errors import RedriveFailed
from tidegate.producer.messages import (
    FORM_MESSAGE,
    FORM_RECORD,
    FORM_REDRIVEN,
    ChangeMessage,
    ParkedChange,
    PublishableRecord,
)
from tidegate.schemas.checksums import parked_key
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.progress import (
    ControlState,
    DataTopic,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    StreamControl,
    TableAdded,
)
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

KEYS = (b"k1", b"k2")
NUMBERS = frozenset(parked_key(TOPIC, key) for key in KEYS)


def order_key(at_us):
    return OrderKey(at_us, "t1", sequence_pair("00000000"), 0).encode()


def good(at_us, key):
    """Return a record whose only change can be published."""
    message = ChangeMessage(TOPIC, key, b"value", order_key(at_us), b"U", bytes(8))
    return PublishableRecord(at_us, "t1", "00000000", (message,))


def poison(at_us, key, token):
    """Return a record whose only change cannot."""
    change = ParkedChange(
        TOPIC, key, order_key(at_us), b"U", b"{}", FORM_RECORD, "SchemaError", "why", token
    )
    return PublishableRecord(at_us, "t1", "00000000", (), (change,))


class Redrive:
    """What `tidegate-producer redrive` does with a worker, step by step."""

    def __init__(self, log):
        self.bench = Bench(log, name="redrive", kind=RedrivingWorker)
        self.bench.own(*range(SLOTS))
        self.bench.give(on.RootSlotRead((), is_at_end=True))
        parked = [entry.value for entry in log.broker.read(DEAD_LETTER)]
        done = {c.key: c.order_key for c in parked if c.form == FORM_REDRIVEN}
        waiting = [
            change
            for change in parked
            if change.form != FORM_REDRIVEN and change.order_key > done.get(change.key, b"")
        ]
        self.changes = sorted(waiting, key=lambda change: change.order_key)

    @property
    def keys(self):
        return frozenset(parked_key(change.topic, change.key) for change in self.changes)

    @property
    def events(self):
        """What the core receives, in order."""
        markers = {
            change.key: ParkedChange(
                TOPIC, change.key, change.order_key, b"U", b"", FORM_REDRIVEN, "", "", ""
            )
            for change in self.changes
        }
        messages = [
            ChangeMessage(c.topic, c.key, c.content, c.order_key, c.mod, bytes(8))
            for c in self.changes
        ]
        return [
            on.RedriveBegan(self.keys),
            *(on.RedriveRead((PublishableRecord(1, "", "0", (one,)),)) for one in messages),
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
    found = {}
    for message in log.data:
        found.setdefault(message.key, []).append(message.order_key)
    return found


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


class TestDone:
    """All of it is committed."""

    def test_every_key_flows_again_and_its_changes_stand_in_order(self, parked):
        redrive = Redrive(parked).run()

        assert redrive.error is None
        assert_done(parked)

    def test_in_a_pause_the_slots_that_it_writes_stay_paused(self, parked):
        """Each heartbeat may be where the next owner begins to read the slot."""
        redrive = Redrive(parked)
        pause = StreamControl(1, ControlState.PAUSED, "me", 0)
        record = ProgressRecord(redrive.bench.worker.epoch, "_control", pause)
        redrive.bench.give(on.RootSlotRead((record,), is_at_end=True))
        before = {slot: len(records) for slot, records in parked.slots.items()}
        redrive.run()

        assert redrive.error is None
        written = {slot: records[before[slot] :] for slot, records in parked.slots.items()}
        beats = (SlotProgress, SlotChanges, SlotPaused)
        ends = {
            slot: [r.body for r in records if r is not None and isinstance(r.body, beats)][-1]
            for slot, records in written.items()
            if any(r is not None and isinstance(r.body, beats) for r in records)
        }
        assert len(ends) > 1
        assert ends == {slot: SlotPaused(slot, 1) for slot in ends}

    def test_a_later_table_that_no_worker_could_find_is_recorded_with_its_first_change(
        self, parked
    ):
        """Every change of it was parked, since the registry refused its schema."""
        later = DataTopic("bank.later", "id-9", 1, 9)
        parked.broker.create_topic(later.topic, 1)
        redrive = Redrive(parked)
        redrive.bench.give(on.TableFound(later))
        message = good(START_US + 10, b"k")
        message = message._replace(messages=(message.messages[0]._replace(topic=later.topic),))
        begin, *rest = redrive.events
        for event in (begin, *2 * [on.RedriveRead((message,))], *rest):
            redrive.bench.give(event)

        assert redrive.error is None
        assert redrive.bench.bodies(TableAdded) == [TableAdded(later)]

    def test_a_table_that_another_worker_has_recorded_is_not_recorded_again(self, parked):
        later = DataTopic("bank.later", "id-9", 1, 9)
        redrive = Redrive(parked)
        core = redrive.bench.worker
        record = ProgressRecord("epoch-of-w1", "w1", TableAdded(later))
        for event in (on.TableFound(later), on.RootSlotRead((record,), is_at_end=True)):
            redrive.bench.give(event)
        message = good(START_US + 10, b"k").messages[0]._replace(topic=later.topic)
        core.handle(redrive.events[0], now=redrive.bench.now)
        effects = core.handle(
            on.RedriveRead((PublishableRecord(1, "", "0", (message,)),)), now=redrive.bench.now
        )
        assert [type(effect) for effect in effects] == [do.PublishRecords]

    def test_it_is_not_ready_before_the_recorded_tables_were_read(self, parked):
        bench = Bench(parked, name="redrive", kind=RedrivingWorker)
        bench.own(*range(SLOTS))
        assert not bench.worker.is_ready
        bench.give(on.RootSlotRead((), is_at_end=True))
        assert bench.worker.is_ready

    def test_a_second_one_finds_nothing(self, parked):
        Redrive(parked).run()

        assert Redrive(parked).changes == []

    def test_a_key_that_is_not_chosen_stays_parked(self, parked):
        redrive = Redrive(parked)
        redrive.changes = [change for change in redrive.changes if change.key in KEYS]
        redrive.run()
        assert redrive.error is None

        worker = Bench(parked, name="w2")
        worker.own(*range(SLOTS))
        worker.later()
        worker.returns("b", good(START_US + 61, b"k3"), good(START_US + 62, b"k2"))
        worker.later()
        last = list(parked.broker.read(DEAD_LETTER))[-1].value
        assert (last.key, last.form) == (b"k3", FORM_MESSAGE)
        assert values_by_key(parked)[b"k2"] == [order_key(START_US + n) for n in (12, 62)]
        tokens = worker.last_snapshot("b").tokens
        keys = {key for token in tokens for key in token.parked_keys}
        assert keys & NUMBERS == set()
        assert parked_key(TOPIC, b"k3") in keys

    def test_the_offsets_belong_to_the_roots_slot(self, parked):
        Redrive(parked).run()

        chain = Bench(parked, name="w2")
        chain.own(*range(SLOTS))
        end = parked.broker.logs[TOPIC, 0].end
        offset = chain.worker.slots[slot_of(ROOT_TOKEN, SLOTS)].vector[TOPIC, 0]
        assert max(e.offset for e in parked.broker.read(TOPIC)) == offset < end

    def test_a_slot_that_is_lost_once_the_commit_was_sent_changes_nothing(self, parked):
        redrive = Redrive(parked)
        redrive.bench.answers_commits = False
        redrive.run()
        redrive.bench.give(on.SlotsLost((1,)))
        redrive.bench.give(on.TransactionCommitted())

        assert redrive.error is None
        assert_done(parked)

    def test_a_commit_without_an_answer_is_sent_again(self, parked):
        redrive = Redrive(parked)
        redrive.bench.answers_commits = False
        redrive.run()
        effects = redrive.bench.give(on.CommitUnanswered("silence"))
        assert do.CommitTransaction() in effects
        redrive.bench.give(on.TransactionCommitted())

        assert redrive.error is None


class TestNotDone:
    """Nothing is half done, and another run does it."""

    @pytest.mark.parametrize(
        "outcome",
        [
            on.TransactionAborted("refused"),
            on.CommitOutcomeUnknown("who knows"),
            on.ProducerFenced(),
            on.TransactionAborted(
                "too large",
                on.DeliveryFailure(on.DeliveryFault.TOO_LARGE, "x", 0, TOPIC, "k", 100),
            ),
        ],
        ids=["aborted", "unknown", "fenced", "refused"],
    )
    def test_a_commit_that_fails(self, parked, outcome):
        redrive = Redrive(parked)
        redrive.bench.outcome = outcome
        redrive.run()

        assert isinstance(redrive.error, RedriveFailed)
        assert_nothing_has_changed(parked)
        Redrive(parked).run()
        assert_done(parked)

    def test_an_unknown_outcome_that_was_a_commit(self, parked):
        redrive = Redrive(parked)
        redrive.bench.outcome = on.CommitOutcomeUnknown("who knows")
        redrive.bench.commits_in_silence = True
        redrive.run()

        assert isinstance(redrive.error, RedriveFailed)
        assert Redrive(parked).changes == []
        assert_done(parked)

    def test_a_commit_that_is_never_answered(self, parked):
        redrive = Redrive(parked)
        redrive.bench.answers_commits = False
        redrive.run()
        for _ in range(3):
            redrive.bench.now_us += 40_000_000
            redrive.bench.give(on.CommitUnanswered("silence"))

        assert isinstance(redrive.bench.stopped[0].error, RedriveFailed)

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

    @pytest.mark.parametrize("steps", range(1, 7))
    @pytest.mark.parametrize(
        "event", [on.SlotsLost((2,)), on.SlotsRevoked((1, 2)), on.DrainRequested()], ids=repr
    )
    def test_a_slot_that_is_taken_away_at_each_step(self, parked, steps, event):
        redrive = Redrive(parked).run(steps)
        redrive.bench.give(event)

        assert isinstance(redrive.error, RedriveFailed)
        assert_nothing_has_changed(parked)
        Redrive(parked).run()
        assert_done(parked)

    def test_what_is_still_read_after_an_abort_goes_nowhere(self, parked):
        redrive = Redrive(parked).run(1)
        worker = redrive.bench.worker
        worker.handle(on.SlotsLost((2,)), now=redrive.bench.now)

        for event in redrive.events[1:]:
            assert worker.handle(event, now=redrive.bench.now) == []

    def test_a_slot_that_is_missing_before_it_begins(self, parked):
        redrive = Redrive(parked)
        assert redrive.bench.worker.is_ready
        redrive.bench.give(on.SlotsLost((1,)))

        assert not redrive.bench.worker.is_ready
        redrive.run(1)
        assert isinstance(redrive.error, RedriveFailed)
        assert_nothing_has_changed(parked)

    def test_a_topic_that_was_re_created_meanwhile(self, parked):
        redrive = Redrive(parked).run(1)
        slot = redrive.bench.worker.slots[slot_of(ROOT_TOKEN, SLOTS)]
        slot.vector[TOPIC, 0] = 1_000
        for event in redrive.events[1:]:
            redrive.bench.give(event)

        assert "re-created" in str(redrive.error)
        assert_nothing_has_changed(parked)


class TestOnlyThat:
    """It reads nothing, opens nothing, and writes nothing of its own."""

    def test_it_starts_no_query_and_writes_no_heartbeat(self, parked):
        redrive = Redrive(parked)
        before = {slot: len(records) for slot, records in parked.slots.items()}
        for _ in range(100):
            redrive.bench.later(7_000_000)

        assert redrive.bench.queries == {}
        assert {slot: len(records) for slot, records in parked.slots.items()} == before
        assert not redrive.bench.stopped

    def test_it_releases_what_is_revoked_before_it_begins(self, parked):
        redrive = Redrive(parked)

        assert do.ReleaseSlots((1,)) in redrive.bench.give(on.SlotsRevoked((1,)))

    def test_it_ends_when_it_is_drained_before_it_begins(self, parked):
        redrive = Redrive(parked)
        redrive.bench.give(on.DrainRequested())

        assert redrive.error is None

    def test_it_opens_no_stream(self, log):
        redrive = Bench(log, name="redrive", kind=RedrivingWorker)
        redrive.own(*range(SLOTS))

        (stop,) = redrive.stopped
        assert isinstance(stop.error, ConfigError)
        assert redrive.bodies(SlotProgress) == []

    def test_another_worker_does_not_put_back(self, bench):
        bench.open_stream("a")

        with pytest.raises(InvariantViolation):
            bench.worker.handle(on.RedriveBegan(frozenset()), now=bench.now)
