"""A pause stops all reading and loses nothing; a drain is for the process that runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.driver.command_sender import send_commands
from tidegate.producer.errors import ProgressLost
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.schemas.progress import (
    ControlState,
    PartitionFinished,
    ProgressRecord,
    SlotPaused,
    StreamControl,
    WorkerDrain,
)

PAUSED, RUNNING = ControlState.PAUSED, ControlState.RUNNING
ALL = [SlotPaused(slot, 1) for slot in range(SLOTS)]


def control(number, state, epoch="e"):
    return ProgressRecord(epoch, "_control", StreamControl(number, state, "me", 0))


def drain(worker, epoch="e"):
    return ProgressRecord(epoch, "_control", WorkerDrain(worker, "me", 0))


def read(*records, is_at_end=True):
    return on.RootSlotRead(tuple(records), is_at_end=is_at_end)


class TestRecords:
    def test_nothing_is_read_before_the_epoch_and_the_end_of_the_slot_are_known(self):
        commands = OperatorCommands("w1")
        commands.handle(read(is_at_end=False))
        commands.open("e")
        assert not commands.may_read
        commands.handle(read())
        assert commands.may_read

    def test_the_last_record_of_the_epoch_holds(self):
        commands = OperatorCommands("w1")
        commands.handle(read(control(1, PAUSED), control(1, RUNNING, "other")))
        commands.open("e")
        assert (commands.may_read, commands.paused_by) == (False, 1)
        commands.handle(read(control(2, RUNNING)))
        assert (commands.may_read, commands.paused_by) == (True, None)

    def test_a_control_that_somebody_obeys_is_waited_for_or_a_later_one(self):
        commands = OperatorCommands("w1")
        commands.open("e")
        commands.handle(read())
        commands.await_control(1)
        assert (commands.may_read, commands.paused_by) == (False, None)
        commands.handle(read(control(2, RUNNING)))
        assert commands.may_read

    def test_a_drain_counts_if_it_comes_after_the_end_and_names_the_worker(self):
        commands = OperatorCommands("w1")
        commands.handle(read(drain("w1"), is_at_end=False))
        commands.handle(read(drain("w1")))
        commands.handle(read(drain("w2")))
        assert not commands.is_drained
        commands.handle(read(drain("w1"), is_at_end=False))
        assert commands.is_drained


class TestReadAgain:
    """A part of the slot that is read a second time changes nothing, and stops the worker."""

    def test_an_older_control_does_not_hold_again(self):
        commands = OperatorCommands("w1")
        commands.open("e")
        commands.handle(read(control(1, PAUSED), control(2, RUNNING)))
        commands.handle(read(control(1, PAUSED)))
        assert (commands.may_read, commands.paused_by) == (True, None)

    def test_reading_backwards_is_an_error(self):
        commands = OperatorCommands("w1")
        commands.advance(replace(read(), begin=0, end=7))
        commands.advance(replace(read(), begin=7, end=9))
        with pytest.raises(ProgressLost, match=r"moved backwards \(slot=0, was=9, now=8\)"):
            commands.advance(replace(read(), begin=8, end=12))

    def test_a_drain_for_a_predecessor_is_not_obeyed_by_its_successor(self, bench, make_bench):
        reading(bench, "a")
        say(bench, drain("w2"), control(1, PAUSED), control(2, RUNNING))
        other = make_bench(name="w2", has_read_commands=False)
        other.own(*range(SLOTS))
        other.read_root_slot()
        assert not other.stopped
        other.membership._root_position = 0
        other.read_root_slot()
        (stop,) = other.stopped
        assert isinstance(stop.error, ProgressLost)
        assert not stop.leaves_group
        assert not other.worker.is_paused


def say(bench, *records):
    """Write commands as the program does, of the epoch that is open; let the worker read them."""
    publisher = MemoryPublisher(
        bench.log.broker, transactional_id="_control", progress_topic="bank-progress"
    )
    records = [replace(record, epoch=bench.worker.epoch) for record in records]
    assert send_commands(publisher, lambda: records) == records
    bench.read_root_slot()


def reading(bench, *tokens):
    bench.open_stream(*tokens)
    bench.read_root_slot()
    bench.later()
    assert sorted(bench.queries) == sorted(tokens)


class TestPause:
    def test_all_queries_stop_and_what_was_read_is_published_and_said(self, bench):
        reading(bench, "a", "b")
        bench.returns("a", bench.change(START_US + 5))
        say(bench, control(1, PAUSED))
        assert bench.queries == {}
        bench.later()
        assert len(bench.log.data) == 1
        assert bench.bodies(SlotPaused) == ALL
        assert bench.worker.is_paused
        assert not bench.later(5_000_000)

    def test_each_heartbeat_repeats_it_for_the_next_owner(self, bench):
        reading(bench, "a")
        say(bench, control(1, PAUSED))
        bench.later()
        bench.later(61_000_000)
        assert sorted(bench.bodies(SlotPaused), key=lambda one: one.slot) == sorted(
            ALL * 2, key=lambda one: one.slot
        )

    def test_no_query_counts_as_silent_or_failed(self, bench):
        reading(bench, "a")
        say(bench, control(1, PAUSED))
        for _ in range(30):
            bench.later()
        assert bench.worker.counters.counts["stalled"] == 0
        (partition,) = [p for slot in bench.worker.slots.values() for p in slot.tokens.values()]
        assert (partition.state, partition.attempts) == (PartitionState.SCHEDULED, 0)

    def test_children_wait_until_it_is_resumed(self, bench):
        reading(bench, "p")
        bench.returns("p", bench.children("x", "y", start_us=START_US + 10, parents=("p",)))
        bench.ends("p")
        say(bench, control(1, PAUSED))
        bench.later()
        assert [one.token for one in bench.bodies(PartitionFinished)] == ["p"]
        bench.later()
        assert bench.queries == {}
        say(bench, control(2, RUNNING))
        assert sorted(bench.queries) == ["x", "y"]

    def test_a_resumed_query_starts_where_the_reading_ended(self, bench):
        reading(bench, "a")
        bench.returns("a", bench.change(START_US + 5), bench.heartbeat(START_US + 9))
        say(bench, control(1, PAUSED))
        bench.later()
        say(bench, control(2, RUNNING))
        assert bench.queries["a"].start_ns == (START_US + 8) * 1000
        bench.later(61_000_000)
        assert bench.bodies(SlotPaused) == ALL

    def test_a_worker_that_starts_on_a_paused_stream_starts_no_query(self, bench, make_bench):
        reading(bench, "a")
        say(bench, control(1, PAUSED))
        bench.later()
        other = make_bench(name="w2", has_read_commands=False)
        other.own(*range(SLOTS))
        assert other.worker.epoch == bench.worker.epoch
        other.later()
        assert other.queries == {}
        other.read_root_slot()
        other.later()
        assert other.queries == {}
        say(other, control(2, RUNNING))
        assert list(other.queries) == ["a"]

    def test_a_pause_that_was_read_before_the_epoch_was_known_is_reported(self, bench, make_bench):
        """Every worker that starts reads slot 0 before it knows its epoch."""
        reading(bench, "a")
        say(bench, control(1, PAUSED))
        other = make_bench(name="w2", has_read_commands=False)
        other.read_root_slot()
        assert not other.worker.is_paused
        other.own(*range(SLOTS))
        assert other.worker.is_paused
        assert [one for one in other.effects if isinstance(one, do.ReportPause)] == [
            do.ReportPause(is_paused=True)
        ]

    def test_who_takes_a_paused_slot_over_waits_for_the_pause(self, bench, make_bench):
        """Its reading of the root's slot may be behind."""
        reading(bench, "a")
        other = make_bench(name="w2")
        say(bench, control(1, PAUSED))
        bench.later()
        other.own(*range(SLOTS))
        other.later()
        assert other.queries == {}
        other.read_root_slot()
        assert other.worker.is_paused


class TestDrain:
    def test_what_was_read_is_committed_then_it_leaves(self, bench):
        reading(bench, "a")
        bench.returns("a", bench.change(START_US + 5))
        say(bench, drain("w1"))
        names = [type(effect) for effect in bench.effects]
        assert names.index(do.ReleaseSlots) > max(
            at for at, kind in enumerate(names) if kind is do.CommitTransaction
        )
        assert len(bench.log.data) == 1
        assert bench.stopped == [do.Stop(None, leaves_group=True)]
        assert bench.runner.leaves_group

    def test_another_workers_drain_is_nothing_to_it(self, bench):
        reading(bench, "a")
        say(bench, drain("w2"))
        assert bench.stopped == []

    def test_a_worker_that_is_stopped_otherwise_keeps_its_place_unless_it_is_set(self, make_bench):
        for leaves in (False, True):
            bench = make_bench(name=f"w{leaves}")
            bench.give(on.DrainRequested(leaves_group=leaves))
            assert bench.stopped == [do.Stop(None, leaves_group=leaves)]

    def test_a_drain_may_follow_a_stop_that_waits(self, bench):
        reading(bench, "a")
        bench.returns("a", bench.change(START_US + 5))
        bench.answers_commits = False
        bench.give(on.DrainRequested())
        say(bench, drain("w1"))
        bench.give(on.TransactionCommitted())
        assert bench.stopped == [do.Stop(None, leaves_group=True)]
