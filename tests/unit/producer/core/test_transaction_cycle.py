"""One transaction from its beginning to each of its outcomes, without a worker around it."""

from itertools import count

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.added_tables import AddedTables
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.lifecycle import SlotChange, SlotPhase
from tidegate.producer.core.now import Now
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.slot import US_PER_MINUTE, Slot
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction import TransactionPhase
from tidegate.producer.core.transaction_cycle import TransactionCycle, WorkerLimits
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TableAdded,
    TopicOffset,
)
from tidegate.schemas.topics import slot_of

WRITER = ProgressWriter("e", "w", 4)
INTERVAL_US = 250_000
NOW = Now(1_000_000, 5 * US_PER_MINUTE)


def owned_slot(number, index):
    """Return a slot whose only token runs a query."""
    token = next(name for name in map(str, count()) if slot_of(name, WRITER.slots) == number)
    slot = Slot(number, number + 10, changed=index.changed)
    slot.start_recovery(committed_offset=None, end_offset=1)
    announced = PartitionAnnounced(ChildPartition(token, (), 1_000_000), "")
    slot.add_record(0, ProgressRecord("e", "w", announced), epoch=None)
    slot.own("e")
    slot.tokens[token].start_query(1)
    return slot


def read(slot, at_us, *, size_bytes=100, topic="t"):
    """Let a slot's token read one change."""
    ((_, partition),) = slot.tokens.items()
    message = ChangeMessage(topic, b"k", b"v", b"order", b"I", bytes(8))
    partition.add_items([PublishableRecord(at_us, "tx", "0", (message,))], size_bytes)


@pytest.fixture
def index():
    return PartitionIndex(WRITER.slots)


@pytest.fixture
def slots(index):
    return {number: owned_slot(number, index) for number in (1, 2)}


@pytest.fixture
def tables():
    """A stream with the table t, whose slot of the root was read to its end."""
    identity = StreamIdentity("s", "d", "g", WRITER.slots, "id", (DataTopic("t", "id-t", 1, 7),))
    made = AddedTables(identity, version=2)
    made.open(ProgressRecord("e", "w", identity.started(start_ns=1, end_ns=None, children=())))
    made.handle(on.RootSlotRead((), is_at_end=True), now_us=0)
    return made


@pytest.fixture
def cycle(slots, index, tables):
    limits = WorkerLimits(commit_interval_us=INTERVAL_US, commit_bytes_max=1_000)
    return TransactionCycle(
        slots, index,
        tables=tables, commands=OperatorCommands("w1"), limits=limits, counters=Counters(),
    )  # fmt: skip


def kinds(effects):
    return [type(effect).__name__ for effect in effects]


def until_commit(cycle, slots, *numbers):
    """Bring a transaction of these slots to its commit; return the last effects."""
    cycle.begin([slots[number] for number in numbers], WRITER)
    cycle.deliver(on.Delivered({n: (TopicOffset("t", 0, 7),) for n in numbers}, {}), WRITER, NOW)
    return cycle.deliver(on.Delivered({}, dict.fromkeys(numbers, 20)), WRITER, NOW)


class TestDue:
    """When a transaction begins, and for which slots."""

    def test_a_slot_without_changes_is_due_once_a_minute(self, cycle, slots):
        assert cycle.due_slots(NOW) == [slots[1], slots[2]]
        for slot in slots.values():
            slot.minute = NOW.wall_us // US_PER_MINUTE

        assert cycle.due_slots(NOW) == []
        read(slots[2], 2_000_000)
        assert cycle.due_slots(NOW) == [slots[2]]

    def test_a_commit_is_followed_by_the_interval_unless_much_is_pending(self, cycle, slots):
        until_commit(cycle, slots, 1, 2)
        cycle.commit(NOW.monotonic_us)
        read(slots[1], 2_000_000, size_bytes=999)

        assert cycle.due_slots(NOW) == []
        later = Now(NOW.monotonic_us + INTERVAL_US, NOW.wall_us)
        assert cycle.due_slots(later) == [slots[1]]
        read(slots[1], 3_000_000, size_bytes=1)
        assert cycle.due_slots(NOW) == [slots[1]]

    def test_nothing_is_due_while_one_is_open(self, cycle, slots):
        cycle.begin(slots.values(), WRITER)

        assert cycle.due_slots(NOW) == []


class TestSteps:
    """Data before snapshots before the fence, each after the delivery of what came before."""

    def test_the_order_of_effects(self, cycle, slots):
        read(slots[1], 2_000_000)
        begun = cycle.begin([slots[1]], WRITER)
        assert kinds(begun) == ["BeginTransaction", "PublishRecords", "AwaitDelivery"]

        offsets = {1: (TopicOffset("t", 0, 7),)}
        snapshots = cycle.deliver(on.Delivered(offsets, {}), WRITER, NOW)
        assert kinds(snapshots) == ["PublishProgress", "PublishProgress", "AwaitDelivery"]
        body = snapshots[0].record.body
        assert isinstance(body, SlotProgress)
        assert body.vector == offsets[1]

        fence = cycle.deliver(on.Delivered(offsets, {1: 20}), WRITER, NOW)
        assert fence == [do.SendOffsets(((1, 1),)), do.CommitTransaction()]

    def test_reports_during_the_commit_are_a_bug(self, cycle, slots):
        until_commit(cycle, slots, 1)

        with pytest.raises(InvariantViolation, match=r"delivery reports \(transaction='committing"):
            cycle.deliver(on.Delivered({}, {}), WRITER, NOW)

    def test_reports_after_an_abort_are_ignored(self, cycle, slots):
        cycle.begin([slots[1]], WRITER)
        cycle.abort_if_lost([1])

        assert cycle.deliver(on.Delivered({}, {}), WRITER, NOW) == []


class TestLostSlots:
    """A lost slot aborts what covers it, until the commit was requested."""

    @pytest.mark.parametrize(
        ("lost", "expected"),
        [([3], []), ([1, 3], [do.AbortTransaction("slots [1] were lost")])],
        ids=["not covered", "covered"],
    )
    def test_before_the_commit(self, cycle, slots, lost, expected):
        cycle.begin(slots.values(), WRITER)

        assert cycle.abort_if_lost(lost) == expected
        assert (cycle.open.phase is TransactionPhase.ABORTING) == bool(expected)

    def test_after_the_commit_the_outcome_skips_them(self, cycle, slots):
        read(slots[1], 2_000_000)
        read(slots[2], 2_000_000)
        until_commit(cycle, slots, 1, 2)
        assert cycle.abort_if_lost([1]) == []
        lost = slots.pop(1)
        (token,) = slots[2].tokens
        effects, started = cycle.commit(NOW.monotonic_us)

        assert started is None
        assert effects == [do.ReleaseBudget(((token, 100),))]
        assert (lost.revision, slots[2].revision) == (0, 1)

    def test_an_undecided_transaction_of_a_lost_slot_breaks_the_invariants(self, cycle, slots):
        cycle.begin(slots.values(), WRITER)
        cycle.check_invariants()
        del slots[1]

        with pytest.raises(InvariantViolation, match=r"no longer owned \(slot=1\)"):
            cycle.check_invariants()


class TestOutcomes:
    """What each outcome leaves behind."""

    def test_an_abort_keeps_the_records_and_pauses(self, cycle, slots, index):
        read(slots[1], 2_000_000)
        cycle.begin([slots[1]], WRITER)
        cycle.abort(NOW.monotonic_us)

        assert cycle.open is None
        assert index.news(1)
        assert cycle.due_slots(NOW) == []
        assert cycle.due_slots(Now(NOW.monotonic_us + 100_000, NOW.wall_us)) == [slots[1], slots[2]]

    def test_an_abort_ends_the_publishing_of_revoked_slots(self, cycle, slots):
        slots[1].move(SlotChange.REVOKED)
        cycle.begin(slots.values(), WRITER)
        cycle.abort(NOW.monotonic_us)

        assert (slots[1].phase, slots[2].phase) == (SlotPhase.RELEASING, SlotPhase.OWNED)

    def test_a_commit_without_an_answer_is_retried_for_a_minute(self, cycle, slots):
        until_commit(cycle, slots, 1)
        assert not cycle.is_commit_unanswered

        assert cycle.retry_commit(NOW.monotonic_us + 59_999_999) == [do.CommitTransaction()]
        assert cycle.is_commit_unanswered
        assert cycle.retry_commit(NOW.monotonic_us + 60_000_000) == []

    @pytest.mark.parametrize("outcome", ["commit", "retry_commit"])
    def test_an_outcome_without_a_commit_is_a_bug(self, cycle, slots, outcome):
        cycle.begin(slots.values(), WRITER)

        with pytest.raises(InvariantViolation, match="no commit was in progress"):
            getattr(cycle, outcome)(NOW.monotonic_us)

    def test_a_dropped_transaction_is_counted(self, cycle, slots):
        until_commit(cycle, slots, 1)
        cycle.drop()

        assert cycle.open is None
        assert cycle._counters.counts["unknown_outcome"] == 1


LATER = DataTopic("later", "id-later", 1, 8)
ADDED = TableAdded(LATER)
MINUTE = NOW.wall_us // US_PER_MINUTE


class TestLaterTables:
    """What a slot has read of a later table is published after the table's record was read back."""

    @pytest.fixture(autouse=True)
    def found(self, tables, slots):
        """Let the translation find a later table; no slot owes a heartbeat."""
        tables.handle(on.TableFound(LATER), now_us=0)
        for slot in slots.values():
            slot.minute = MINUTE

    @staticmethod
    def records(effects):
        return [
            (effect.slot, effect.author_slot, effect.record.body)
            for effect in effects
            if isinstance(effect, do.PublishProgress)
        ]

    @staticmethod
    def commit(cycle, *numbers):
        delivered = {number: (TopicOffset("p", 0, 7),) for number in numbers}
        cycle.deliver(on.Delivered(delivered, {}), WRITER, NOW)
        cycle.deliver(on.Delivered({}, dict.fromkeys(numbers, 20)), WRITER, NOW)
        cycle.commit(NOW.monotonic_us)

    def test_the_record_goes_first_and_alone(self, cycle, slots, tables):
        read(slots[1], 2_000_000, topic="t")
        read(slots[1], 3_000_000, topic="later")
        assert not cycle.has_news(1)
        assert cycle.due_slots(NOW) == [slots[1]]
        begun = cycle.begin([slots[1]], WRITER)
        assert kinds(begun) == ["BeginTransaction", "PublishProgress", "AwaitDelivery"]
        assert self.records(begun) == [(0, 1, ADDED)]
        self.commit(cycle, 1)
        later = Now(NOW.monotonic_us + INTERVAL_US, NOW.wall_us)
        assert cycle.due_slots(later) == [], "it was not read back"

        tables.handle(on.RootSlotRead((ProgressRecord("e", "w", ADDED),), True), now_us=0)
        assert cycle.due_slots(later) == [slots[1]]
        begun = cycle.begin([slots[1]], WRITER)
        assert [len(e.records) for e in begun if isinstance(e, do.PublishRecords)] == [2]
        assert self.records(begun) == []

    def test_one_transaction_holds_it_once(self, cycle, slots):
        read(slots[1], 2_000_000, topic="later")
        read(slots[2], 2_000_000, topic="later")

        assert self.records(cycle.begin(cycle.due_slots(NOW), WRITER)) == [(0, 1, ADDED)]

    def test_what_is_of_other_tables_is_published_meanwhile(self, cycle, slots):
        read(slots[1], 2_000_000, topic="later")
        read(slots[2], 2_000_000, topic="t")
        begun = cycle.begin(cycle.due_slots(NOW), WRITER)

        assert [e.slot for e in begun if isinstance(e, do.PublishRecords)] == [2]

    def test_an_abort_writes_it_again(self, cycle, slots):
        read(slots[1], 2_000_000, topic="later")
        cycle.begin([slots[1]], WRITER)
        cycle.abort(NOW.monotonic_us)
        after_pause = Now(NOW.monotonic_us + 100_000, NOW.wall_us)
        assert cycle.due_slots(after_pause) == [slots[1]]

        assert self.records(cycle.begin([slots[1]], WRITER)) == [(0, 1, ADDED)]

    def test_an_unknown_outcome_writes_it_again(self, cycle, slots):
        read(slots[1], 2_000_000, topic="later")
        until_commit(cycle, slots, 1)
        cycle.drop()

        assert self.records(cycle.begin([slots[1]], WRITER)) == [(0, 1, ADDED)]

    def test_waiting_bytes_are_no_reason_to_hurry(self, cycle, slots):
        until_commit(cycle, slots, 1)
        cycle.commit(NOW.monotonic_us)
        read(slots[1], 2_000_000, size_bytes=5_000, topic="later")
        assert cycle.due_slots(NOW) == []
        read(slots[2], 2_000_000, size_bytes=1_000, topic="t")

        assert cycle.due_slots(NOW) == [slots[1], slots[2]]
