"""What operators want: a pause loses nothing, a drain ends a process; what a violation shows."""

import gc
import pickle
import weakref
from dataclasses import replace

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US
from tidegate.producer.cli.command_sender import send_commands
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core import inspection as module
from tidegate.producer.core.inspection import Story
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.errors import ProgressLost
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import HeartbeatRecord
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    ChildPartition,
    ControlState,
    PartitionAnnounced,
    ProgressRecord,
    SlotPaused,
    StreamControl,
    WorkerDrain,
)
from tidegate.schemas.topics import slot_of

PAUSED, RUNNING = ControlState.PAUSED, ControlState.RUNNING
ALL = [SlotPaused(slot, 1) for slot in range(SLOTS)]


def control(number, state, epoch="e"):
    return ProgressRecord(epoch, "_control", StreamControl(number, state, "me", 0))


def drain(worker, epoch="e"):
    return ProgressRecord(epoch, "_control", WorkerDrain(worker, "me", 0))


def read(*records, is_at_end=True):
    return on.RootSlotRead(tuple(records), is_at_end=is_at_end)


class TestRecords:
    @pytest.fixture
    def commands(self):
        return OperatorCommands("w1")

    def test_nothing_is_read_before_the_epoch_and_the_end_of_the_slot_are_known(self, commands):
        commands.handle(read(is_at_end=False))
        commands.open("e")
        assert not commands.may_read
        commands.handle(read())
        assert commands.may_read

    def test_the_last_record_of_the_epoch_holds(self, commands):
        commands.handle(read(control(1, PAUSED), control(1, RUNNING, "other")))
        commands.open("e")
        assert (commands.may_read, commands.paused_by) == (False, 1)
        commands.handle(read(control(2, RUNNING)))
        assert (commands.may_read, commands.paused_by) == (True, None)
        commands.handle(read(control(1, PAUSED)))
        assert (commands.may_read, commands.paused_by) == (True, None), "an older one"
        commands.await_control(3)
        assert (commands.may_read, commands.paused_by) == (False, None)
        commands.handle(read(control(4, RUNNING)))
        assert commands.may_read

    def test_a_drain_counts_if_it_comes_after_the_end_and_names_the_worker(self, commands):
        commands.handle(read(drain("w1"), is_at_end=False))
        commands.handle(read(drain("w1")))
        commands.handle(read(drain("w2")))
        assert not commands.is_drained
        commands.handle(read(drain("w1"), is_at_end=False))
        assert commands.is_drained


class TestReadAgain:
    def test_reading_backwards_is_an_error(self):
        commands = OperatorCommands("w1")
        commands.advance(replace(read(), begin=0, end=7))
        commands.advance(replace(read(), begin=7, end=9))
        with pytest.raises(ProgressLost, match=r"moved backwards \(slot=0, was=9, now=8\)"):
            commands.advance(replace(read(), begin=8, end=12))

    def test_a_drain_for_a_predecessor_is_not_obeyed_by_its_successor(self, reading):
        say(reading, drain("w2"), control(1, PAUSED), control(2, RUNNING))
        other = reading.successor(has_read_commands=False)
        other.read_root_slot()
        assert not other.stopped
        other.membership._root_position = 0
        other.read_root_slot()
        assert isinstance(other.error, ProgressLost)
        assert not other.stopped[0].leaves_group
        assert not other.worker.is_paused


def say(bench, *records):
    """Write commands as the program does, of the epoch that is open; let the worker read them."""
    publisher = MemoryPublisher(
        bench.log.broker, transactional_id="_control", progress_topic="bank-progress"
    )
    records = [replace(record, epoch=bench.worker.epoch) for record in records]
    assert send_commands(publisher, lambda: records) == records
    bench.read_root_slot()


@pytest.fixture
def reading(opened):
    """A worker that has read all commands and reads `a`."""
    opened.read_root_slot()
    opened.later()
    assert list(opened.queries) == ["a"]
    return opened


@pytest.fixture
def paused(reading):
    """The same, paused; a change that it had read is published."""
    reading.returns("a", reading.change(START_US + 5), reading.heartbeat(START_US + 9))
    say(reading, control(1, PAUSED))
    assert (reading.queries, reading.worker.states[PartitionState.RUNNING]) == ({}, 0)
    reading.later()
    return reading


class TestPause:
    def test_what_was_read_is_published_and_the_pause_is_said_with_each_heartbeat(self, paused):
        assert len(paused.log.data) == 1
        assert paused.bodies(SlotPaused) == ALL
        assert paused.worker.is_paused
        assert not paused.later(5_000_000)
        for _ in range(30):
            paused.later()
        assert paused.worker.counters.counts["stalled"] == 0
        (partition,) = [p for slot in paused.worker.slots.values() for p in slot.tokens.values()]
        assert (partition.state, partition.attempts) == (PartitionState.SCHEDULED, 0)
        paused.later(61_000_000)
        said = sorted(paused.bodies(SlotPaused), key=lambda one: one.slot)
        assert said == sorted(ALL * 2, key=lambda one: one.slot)

    def test_who_takes_a_paused_slot_over_waits_for_the_pause(self, paused):
        """Its reading of the root's slot may be behind."""
        other = paused.successor()
        other.later()
        assert other.queries == {}
        other.read_root_slot()
        assert other.worker.is_paused


class TestDrain:
    def test_what_was_read_is_committed_then_it_leaves(self, reading):
        reading.returns("a", reading.change(START_US + 5))
        say(reading, drain("w2"))
        assert reading.stopped == [], "another worker's"
        say(reading, drain("w1"))
        names = [type(effect) for effect in reading.effects]
        last_commit = max(at for at, kind in enumerate(names) if kind is do.CommitTransaction)
        assert names.index(do.ReleaseSlots) > last_commit
        assert len(reading.log.data) == 1
        assert reading.stopped == [do.Stop(None, leaves_group=True)]
        assert reading.runner.leaves_group


HOME = slot_of("a", SLOTS)
OTHER = (HOME + 1) % SLOTS
ELSEWHERE = next(token for token in "bcdefgh" if slot_of(token, SLOTS) not in (HOME, OTHER))


@pytest.fixture
def story():
    """A story with lines about two tokens, two slots and a transaction."""
    made = Story(SLOTS)
    announced = PartitionAnnounced(ChildPartition("a", (), 1), "")
    for second, entry in enumerate(
        (
            on.SlotsAssigned((HOME,)),
            on.SlotsAssigned((OTHER,)),
            on.ProgressRead(HOME, 1, 7, ProgressRecord("e", "w", announced)),
            do.StartQuery("a", 1, 5),
            do.StartQuery(ELSEWHERE, 2, 5),
            on.Ticked(),
            on.RecordsRead("a", 1, [HeartbeatRecord(1)], 64),
            do.BeginTransaction(),
            do.PublishRecords(HOME, "a", ()),
            on.Delivered({HOME: ()}, {}),
            on.TransactionAborted("slot lost"),
        )
    ):
        made.add(entry, now_us=second * 1_000_000)
    return made


def seconds(lines):
    return [int(float(line.split()[0])) for line in lines]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"token": "a"}, [0, 2, 3, 6, 8, 9]),
        ({"token": ELSEWHERE}, [4]),
        ({"slot": OTHER}, [1]),
        ({"slot": HOME, "place": ("t", 0)}, [0, 2, 8, 9]),
        ({"transaction": "publishing"}, [7, 8, 9, 10]),
        ({}, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]),
    ],
    ids=["token", "another token", "slot", "slot and more", "transaction", "everything"],
)
def test_the_lines_are_those_of_the_subject(story, fields, expected):
    assert seconds(story.about(fields)) == expected


def test_lines_show_time_and_details_and_are_bounded(story, monkeypatch):
    lines = story.about({"token": "a"})
    assert lines[1] == f"2.000000 ProgressRead(token a, slot {HOME}, PartitionAnnounced, offset 7)"
    assert lines[3] == "6.000000 RecordsRead(token a, query 1, 1 items, 64 bytes)"
    monkeypatch.setattr(module, "_LINES_MAX", 50)
    made = Story(SLOTS)
    for number in range(100):
        made.add(on.SlotsLost((0,)), now_us=number * 1_000_000)
    assert len(made._lines) == 50
    assert seconds(made.about({})) == list(range(100 - module._LINES_SHOWN_MAX, 100))


@pytest.mark.parametrize(
    "entry_of",
    [
        lambda held: on.RecordsRead("a", 1, held, 64),
        on.RedriveRead,
        lambda held: do.PublishRecords(HOME, "a", held),
        lambda held: do.StartQuery("a", 1, 5, None, held),
    ],
    ids=["read", "put back", "published", "files that are read again"],
)
def test_it_keeps_no_records_alive(entry_of):
    class Held(list):
        """A list that can be watched."""

    items = Held([PublishableRecord(1, "t", "0", ())])
    watched = weakref.ref(items)
    made = Story(SLOTS)
    made.add(entry_of(items), now_us=0)
    del items
    gc.collect()
    assert watched() is None


def test_a_violation_ends_with_the_last_events_of_its_slot(opened):
    with pytest.raises(InvariantViolation) as raised:
        opened.worker.handle(on.SlotsAssigned((HOME,)), now=opened.now)
    violation = pickle.loads(pickle.dumps(raised.value))
    assert violation.fields == {"slot": HOME}
    assert "SlotsAssigned" in violation.story[-1]
    assert any("SlotRecoveryStarted" in line for line in violation.story)
    assert str(violation).splitlines()[0] == f"slot assigned twice (slot={HOME})"
    assert str(violation).endswith(violation.story[-1])


def test_a_failed_check_carries_the_story_too(opened):
    opened.worker.slots[HOME].tokens["a"].pending_bytes = -1
    with pytest.raises(InvariantViolation, match="pending bytes are negative") as raised:
        opened.worker.check_invariants()
    assert any("StartQuery" in line for line in raised.value.story)
