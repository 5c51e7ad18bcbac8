"""One transaction from its beginning to its outcome, what Kafka refuses, and what is counted."""

from dataclasses import replace
from itertools import count

import pytest

from tests.unit.producer.core.conftest import START_US, TOPIC, kinds, parked_change
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.events import Now
from tidegate.producer.core.lifecycle import SlotChange, SlotPhase
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.publication import counted
from tidegate.producer.core.slot import US_PER_MINUTE, Slot
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.stream_topics import StreamTopics
from tidegate.producer.core.transaction_cycle import (
    TransactionCycle,
    TransactionPhase,
    WorkerLimits,
)
from tidegate.producer.core.undeliverable import ATTEMPTS_MAX, UndeliverableRecords
from tidegate.producer.errors import DeliveryDenied, DeliveryRefused, MessageTooLarge
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.schemas.checksums import xxhash_64
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TableAdded,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.topics import slot_of

WRITER = ProgressWriter("e", "w", 4)
INTERVAL_US = 250_000
NOW = Now(1_000_000, 5 * US_PER_MINUTE)


def owned_slot(number, index):
    token = next(name for name in map(str, count()) if slot_of(name, WRITER.slots) == number)
    slot = Slot(number, number + 10, changed=index.changed)
    slot.start_recovery(committed_offset=None, end_offset=1)
    announced = PartitionAnnounced(ChildPartition(token, (), 1_000_000), "")
    slot.add_record(0, ProgressRecord("e", "w", announced), epoch=None)
    slot.own("e")
    slot.tokens[token].start_query(1)
    return slot


def read(slot, at_us, *, size_bytes=100, topic="t"):
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
    made = StreamTopics(identity, version=2)
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


def until_commit(cycle, slots, *numbers):
    """Bring a transaction of these slots to its commit; return the last effects."""
    cycle.begin([slots[number] for number in numbers], WRITER)
    cycle.deliver(on.Delivered({n: (TopicOffset("t", 0, 7),) for n in numbers}, {}), WRITER, NOW)
    return cycle.deliver(on.Delivered({}, dict.fromkeys(numbers, 20)), WRITER, NOW)


AFTER_INTERVAL = Now(NOW.monotonic_us + INTERVAL_US, NOW.wall_us)
AFTER_PAUSE = Now(NOW.monotonic_us + 100_000, NOW.wall_us)


class TestDue:
    def test_a_slot_without_changes_is_due_once_a_minute(self, cycle, slots):
        assert cycle.due_slots(NOW) == [slots[1], slots[2]]
        for slot in slots.values():
            slot.minute = NOW.wall_us // US_PER_MINUTE
        assert cycle.due_slots(NOW) == []
        read(slots[2], 2_000_000)
        assert cycle.due_slots(NOW) == [slots[2]]
        cycle.begin([slots[2]], WRITER)
        assert cycle.due_slots(NOW) == [], "one is open"

    def test_a_commit_is_followed_by_the_interval_unless_much_is_pending(self, cycle, slots):
        until_commit(cycle, slots, 1, 2)
        cycle.commit(NOW.monotonic_us)
        read(slots[1], 2_000_000, size_bytes=999)
        assert cycle.due_slots(NOW) == []
        assert cycle.due_slots(AFTER_INTERVAL) == [slots[1]]
        read(slots[1], 3_000_000, size_bytes=1)
        assert cycle.due_slots(NOW) == [slots[1]]


class TestSteps:
    def test_the_order_of_effects(self, cycle, slots):
        read(slots[1], 2_000_000)
        begun = cycle.begin([slots[1]], WRITER)
        assert kinds(begun) == ["BeginTransaction", "PublishRecords", "AwaitDelivery"]
        offsets = {1: (TopicOffset("t", 0, 7),)}
        snapshots = cycle.deliver(on.Delivered(offsets, {}), WRITER, NOW)
        assert kinds(snapshots) == ["PublishProgress", "PublishProgress", "AwaitDelivery"]
        body = snapshots[0].record.body
        assert isinstance(body, SlotProgress)
        assert (body.revision, body.vector) == (1, offsets[1])
        fence = cycle.deliver(on.Delivered(offsets, {1: 20}), WRITER, NOW)
        assert fence == [do.SendOffsets(((1, 1),)), do.CommitTransaction()]

    def test_reports_are_a_bug_during_the_commit_and_ignored_after_an_abort(self, cycle, slots):
        cycle.begin([slots[1]], WRITER)
        cycle.abort_if_lost([1])
        assert cycle.open.is_decided
        assert cycle.deliver(on.Delivered({}, {}), WRITER, NOW) == []
        cycle.abort(NOW.monotonic_us)
        until_commit(cycle, slots, 1)
        assert cycle.open.is_decided
        with pytest.raises(InvariantViolation, match=r"delivery reports \(transaction='committing"):
            cycle.deliver(on.Delivered({}, {}), WRITER, NOW)


class TestLostSlots:
    @pytest.mark.parametrize(
        ("lost", "expected"),
        [([3], []), ([1, 3], [do.AbortTransaction("slots [1] were lost")])],
        ids=["not covered", "covered"],
    )
    def test_before_the_commit(self, cycle, slots, lost, expected):
        cycle.begin(slots.values(), WRITER)
        assert not cycle.open.is_decided
        assert cycle.abort_if_lost(lost) == expected
        assert (cycle.open.phase is TransactionPhase.ABORTING) == bool(expected)

    def test_an_undecided_transaction_of_a_lost_slot_breaks_the_invariants(self, cycle, slots):
        cycle.begin(slots.values(), WRITER)
        cycle.check_invariants()
        del slots[1]
        with pytest.raises(InvariantViolation, match=r"no longer owned \(slot=1\)"):
            cycle.check_invariants()


class TestOutcomes:
    def test_an_abort_keeps_the_records_and_pauses_and_releases_revoked_slots(
        self, cycle, slots, index
    ):
        read(slots[2], 2_000_000)
        slots[1].move(SlotChange.REVOKED)
        cycle.begin(slots.values(), WRITER)
        cycle.abort(NOW.monotonic_us)
        assert cycle.open is None
        assert index.news(2)
        assert cycle.due_slots(NOW) == []
        assert slots[2] in cycle.due_slots(AFTER_PAUSE)
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


LATER = DataTopic("later", "id-later", 1, 8)
ADDED = TableAdded(LATER)


class TestLaterTables:
    @pytest.fixture(autouse=True)
    def found(self, tables, slots):
        """Let the translation find a later table; no slot owes a heartbeat."""
        tables.handle(on.TableFound(LATER), now_us=0)
        for slot in slots.values():
            slot.minute = NOW.wall_us // US_PER_MINUTE

    @staticmethod
    def records(effects):
        return [
            (effect.slot, effect.author_slot, effect.record.body)
            for effect in effects
            if isinstance(effect, do.PublishProgress)
        ]

    def test_the_record_goes_first_and_alone(self, cycle, slots, tables):
        read(slots[1], 2_000_000, topic="t")
        read(slots[1], 3_000_000, topic="later")
        assert not cycle.has_news(1)
        assert cycle.due_slots(NOW) == [slots[1]]
        begun = cycle.begin([slots[1]], WRITER)
        assert kinds(begun) == ["BeginTransaction", "PublishProgress", "AwaitDelivery"]
        assert self.records(begun) == [(0, 1, ADDED)]
        cycle.deliver(on.Delivered({1: (TopicOffset("p", 0, 7),)}, {}), WRITER, NOW)
        cycle.deliver(on.Delivered({}, {1: 20}), WRITER, NOW)
        cycle.commit(NOW.monotonic_us)
        assert cycle.due_slots(AFTER_INTERVAL) == [], "it was not read back"

        tables.handle(on.RootSlotRead((ProgressRecord("e", "w", ADDED),), True), now_us=0)
        assert cycle.due_slots(AFTER_INTERVAL) == [slots[1]]
        begun = cycle.begin([slots[1]], WRITER)
        assert [len(e.records) for e in begun if isinstance(e, do.PublishRecords)] == [2]
        assert self.records(begun) == []

    @pytest.mark.parametrize("topic", ["later", "t"])
    def test_one_transaction_holds_it_once_and_what_is_of_other_tables(self, cycle, slots, topic):
        read(slots[1], 2_000_000, topic="later")
        read(slots[2], 2_000_000, topic=topic)
        begun = cycle.begin(cycle.due_slots(NOW), WRITER)
        assert self.records(begun)[0] == (0, 1, ADDED)
        assert [slot for slot, _, body in self.records(begun) if body == ADDED] == [0]
        published = [e.slot for e in begun if isinstance(e, do.PublishRecords)]
        assert published == ([2] if topic == "t" else [])

    @pytest.mark.parametrize("outcome", ["aborted", "unknown"])
    def test_a_transaction_that_was_not_committed_writes_it_again(self, cycle, slots, outcome):
        read(slots[1], 2_000_000, topic="later")
        if outcome == "aborted":
            cycle.begin([slots[1]], WRITER)
            cycle.abort(NOW.monotonic_us)
            assert cycle.due_slots(AFTER_PAUSE) == [slots[1]]
        else:
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


FAILURE = on.DeliveryFailure(
    on.DeliveryFault.TOO_LARGE, "MSG_SIZE_TOO_LARGE", 3, "bank.accounts", "id-7", 1_100_000,
    commit_timestamp_us=5_000_000, limit_bytes=1_048_588,
)  # fmt: skip
DENIED, INVALID = (
    replace(FAILURE, fault=fault) for fault in (on.DeliveryFault.DENIED, on.DeliveryFault.INVALID)
)

PROGRESS = replace(FAILURE, commit_timestamp_us=None)
LARGE = [replace(FAILURE, commit_timestamp_us=at) for at in range(4)]
ACCOUNTS, OTHERS = {"bank.accounts"}, {"bank.transfers"}


@pytest.fixture
def records():
    return UndeliverableRecords()


class TestUndeliverable:
    @pytest.mark.parametrize(
        ("failure", "kind", "exit_code", "hint"),
        [
            (FAILURE, MessageTooLarge, 1, ""),
            (DENIED, DeliveryDenied, 2, ""),
            (replace(INVALID, reason="INVALID_TIMESTAMP"), DeliveryRefused, 1, "the clock of the"),
            (
                replace(INVALID, reason="UNSUPPORTED_COMPRESSION_TYPE"),
                DeliveryRefused, 1, "compression.type in kafka_options",
            ),
            (replace(INVALID, reason="INVALID_RECORD"), DeliveryRefused, 1, "the broker's log"),
            (replace(FAILURE, commit_timestamp_us=None, limit_bytes=None), MessageTooLarge, 1, ""),
        ],
        ids=["large", "denied", "clock", "compression", "invalid", "a progress record"],
    )  # fmt: skip
    def test_a_lasting_fault_stops_at_the_third_attempt(
        self, records, failure, kind, exit_code, hint
    ):
        assert ATTEMPTS_MAX == 3
        assert not any(records.refused(failure).stops for _ in range(2))
        (stop,) = records.refused(failure).stops
        assert type(stop.error) is kind
        assert stop.error.exit_code == exit_code
        assert stop.error.hint
        assert hint in stop.error.hint
        names = "topic", "key", "reason", "commit_timestamp_us", "size_bytes", "limit_bytes"
        fields = {name: getattr(failure, name) for name in names}
        assert stop.error.fields == {n: value for n, value in fields.items() if value is not None}

    @pytest.mark.parametrize(
        ("steps", "stops"),
        [
            ([None, replace(FAILURE, fault=on.DeliveryFault.TRANSIENT)] * 500, [False] * 1_000),
            ([FAILURE, None, replace(FAILURE, slot=4), FAILURE, FAILURE], [False] * 3 + [True] * 2),
            ([FAILURE, {3: ACCOUNTS}] * 3, [False, False, True]),
            *(
                ([replace(failure, slot=slot) for slot in range(3)], [False, False, True])
                for failure in (DENIED, INVALID)
            ),
            *(
                (
                    [failure, failure, {3: OTHERS, 4: set()}, failure, {4: ACCOUNTS}, failure],
                    [False, False, True, False],
                )
                for failure in (DENIED, INVALID)
            ),
            (
                [LARGE[0], LARGE[1], {4: ACCOUNTS, 3: OTHERS}, LARGE[2], {3: ACCOUNTS}, LARGE[3]],
                [False, False, True, False],
            ),
            ([*(PROGRESS, replace(PROGRESS, fault=DENIED.fault)) * 2, {3: set()}, PROGRESS],
             [False] * 5),
        ],
        ids=[
            "what may pass later", "other aborts between", "commits between", "denied in all slots",
            "invalid in all slots", "denied until the topic takes something", "invalid until then",
            "the largest of a slot until then", "each commit writes to the progress topic",
        ],
    )  # fmt: skip
    def test_attempts_are_counted_by_cause(self, records, steps, stops):
        """A step is a refusal, or what a commit has written, topics by slot."""
        found = []
        for step in steps:
            if isinstance(step, dict):
                records.delivered(step)
            else:
                found.append(bool(records.refused(step).stops))
        assert found == stops

    def test_the_records_that_are_counted_are_bounded(self, records):
        for at in range(3_000):
            records.refused(replace(FAILURE, slot=at, commit_timestamp_us=at))
        assert len(records._too_large) == 1_000

    def test_the_slot_of_a_change_that_is_too_large_is_read_again_once(self, records):
        """What is committed in between shows nothing about it; another change has its own."""
        verdicts = [records.refused(FAILURE) for _ in range(2)]
        records.delivered({3: ACCOUNTS})
        verdicts.append(records.refused(FAILURE))
        assert [verdict.slots_to_read_again for verdict in verdicts] == [(), (3,), ()]
        assert [len(verdict.stops) for verdict in verdicts] == [0, 0, 1]
        records.delivered({3: ACCOUNTS})
        other = replace(FAILURE, commit_timestamp_us=6_000_000)
        assert [records.refused(other).slots_to_read_again for _ in range(2)] == [(), (3,)]

    @pytest.mark.parametrize("failure", [DENIED, INVALID, PROGRESS])
    def test_reading_again_is_for_changes_that_are_too_large(self, records, failure):
        assert not any(records.refused(failure).slots_to_read_again for _ in range(5))


@pytest.mark.parametrize("reason", ["INVALID_TIMESTAMP", "POLICY_VIOLATION"])
def test_what_the_topic_refuses_is_published_once_its_settings_are_changed(opened, log, reason):
    opened.later()
    change = opened.change(START_US + 10)
    failure = on.DeliveryFailure(on.DeliveryFault.INVALID, reason, 0, TOPIC, "key", 100)
    opened.returns("a", change)
    for _ in range(10):
        opened.outcome = None if opened.stopped else on.TransactionAborted("no", failure)
        opened.later()
    assert type(opened.error) is DeliveryRefused
    assert log.data == []

    successor = opened.successor()
    successor.later()
    successor.returns("a", change)
    successor.later()
    assert log.data == list(change.messages)


def test_counters_add_what_a_transaction_added():
    def totals(mods):
        return {"bank.t": TopicTotals("bank.t", mods, mods, 10 * mods, 7)}

    counters = Counters()
    partition = StreamPartition(ChildPartition("p", (), 0), totals=tuple(totals(2).values()))
    partition.start_query(1)
    for at_us in (1, 2):
        change = parked_change(b"%d" % at_us, topic="bank.t")
        partition.add_items([PublishableRecord(at_us, "tx", "0", (), (change,))], 1)
    parked = partition.publication()
    finish = (1, ())
    counters.add({"p": partition}, {"p": replace(parked, totals=totals(5), finish=None)})
    assert counters.published == {"bank.t": TopicTotals("bank.t", 3, 3, 30, 0)}
    assert counters.parked == {("bank.t", "SchemaError"): 2}
    assert counters.counts["finished"] == 0
    assert list(counters.first_commits_us) == [1]
    counters.add({"p": partition}, {"p": replace(parked, records=(), finish=finish)})
    assert counters.counts["finished"] == 1
    assert list(counters.first_commits_us) == [1]


def test_totals_are_those_of_each_message_added_to_the_ones_before():
    def made(topic, value, order_key):
        return ChangeMessage(topic, b"k", value, order_key, b"U", bytes(8))

    first = made("a", b"12", b"1"), made("b", b"3", b"2"), made("a", b"456", b"3")
    batches = first, (made("a", b"", b"4"),), ()
    records = [PublishableRecord(at, "t", "0", batch) for at, batch in enumerate(batches)]
    parked = PublishableRecord(9, "t", "0", (), (parked_change(b"o", topic="a"),))
    before = {topic: TopicTotals(topic, 5, 7, 9, 2**64 - 1) for topic in "ad"}
    sums = {"a": sum(map(xxhash_64, (b"1", b"3", b"4"))), "b": xxhash_64(b"2")}
    assert counted([*records, parked], before, ChecksumKind.XXHASH_64) == {
        "a": TopicTotals("a", 7, 10, 14, (2**64 - 1 + sums["a"]) % 2**64),
        "b": TopicTotals("b", 1, 1, 1, sums["b"]),
    }
