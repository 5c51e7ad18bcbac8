"""The loop: rounds, rebalances, both clocks, and how a run ends."""

from __future__ import annotations

import threading
from unittest import mock

import pytest
from structlog.testing import capture_logs

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.driver.loop import FleetWorker
from tidegate.schemas.errors import InvariantViolation, ProducerError
from tidegate.schemas.progress import DataTopic, ProgressRecord


class ScriptedCore:
    """Answers each event by name with scripted effects; remembers the events."""

    def __init__(self, **answers):
        self.answers = answers
        self.events = []
        self.times = []

    def handle(self, event, *, now):
        self.events.append(event)
        self.times.append(now)
        answer = self.answers.get(type(event).__name__, [])
        if isinstance(answer, Exception):
            raise answer
        return answer.pop(0) if answer and isinstance(answer[0], list) else list(answer)


class FakePublisher:
    """Says yes to everything but what `failures` names."""

    def __init__(self, **failures):
        self.failures = failures
        self.calls = []

    def _call(self, name, fine=None):
        self.calls.append(name)
        return self.failures.get(name, fine)

    def start(self):
        self.calls.append("start")

    def begin(self, metadata):
        self.calls.append(("metadata", metadata))
        return self._call("begin")

    def publish_records(self, effect):
        return self._call("publish_records")

    def publish_progress(self, effect):
        return self._call("publish_progress")

    def await_delivery(self):
        return self._call("await_delivery", on.Delivered({}, {}))

    def send_offsets(self, offsets):
        return self._call("send_offsets")

    def commit(self):
        return self._call("commit", on.TransactionCommitted())

    def abort(self, reason):
        return self._call("abort", on.TransactionAborted(reason))

    def close(self):
        self.closed = True


class FakeSlots:
    """A group that does what the test says at its next poll."""

    def __init__(self, *polls, successor=False):
        self.polls = list(polls)
        self.closed = False
        self.successor = successor
        self.watched = []

    def start(self):
        """Join."""

    def close(self, *, leaves_group=False):
        self.closed, self.has_left = True, leaves_group

    def poll(self, timeout_s):
        return self.polls.pop(0)() if self.polls else []

    def metadata(self):
        return b"generation 7"

    def has_successor(self):
        return self.successor

    def watch(self, topic):
        self.watched.append(topic)

    def recover(self, slot, incarnation):
        return on.SlotRecoveryStarted(slot, incarnation, committed_offset=None, end_offset=0)


class FakeReader:
    """Remembers whether it runs."""

    def __init__(self):
        self.started = self.stopped = False

    def start(self):
        self.started = True

    def stop(self):
        self.stopped = True


class FakeFinder:
    """Answers its polls in turn."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.closed = False

    def poll(self):
        return self.answers.pop(0)

    def close(self):
        self.closed = True


class SteppingClock:
    """A millisecond passes at each look, and the wall clock goes back by a minute each time."""

    def __init__(self):
        self.elapsed_us = self.set_back_us = 0

    def monotonic_us(self):
        self.elapsed_us += 1_000
        return self.elapsed_us

    def wall_us(self):
        self.set_back_us += 60_000_000
        return 10**15 - self.set_back_us

    def sleep(self, seconds):
        self.elapsed_us += round(seconds * 1_000_000)


def loop(core, *, slots=None, publisher=None, reader=None, released=None, finder=None, **options):
    """Wire a loop around fakes."""
    worker = FleetWorker(
        core,
        publisher=publisher or FakePublisher(),
        open_reader=lambda _query, _deliver: reader or FakeReader(),
        open_stream_start=lambda: finder,
        release_budget=(released if released is not None else []).append,
        **options,
    )
    worker.attach(slots or FakeSlots())
    return worker


STOP = [do.Stop(None)]
FENCED = [do.BeginTransaction(), do.SendOffsets(((0, 0),)), do.CommitTransaction()]


class TestEffects:
    """Carried out in order; outcomes are the next events."""

    def test_a_transaction_keeps_the_metadata_of_its_begin(self):
        core = ScriptedCore(Ticked=FENCED, TransactionCommitted=STOP)
        publisher = FakePublisher()
        loop(core, publisher=publisher).run()

        assert publisher.calls == [
            "start", ("metadata", b"generation 7"), "begin", "send_offsets", "commit",
        ]  # fmt: skip

    def test_after_a_failure_the_rest_of_the_transaction_is_dropped(self):
        core = ScriptedCore(Ticked=FENCED, TransactionAborted=STOP)
        publisher = FakePublisher(send_offsets=on.TransactionAborted("illegal generation"))
        loop(core, publisher=publisher).run()

        assert "commit" not in publisher.calls
        assert core.events[-1] == on.TransactionAborted("illegal generation")

    def test_what_is_no_part_of_the_transaction_happens_all_the_same(self):
        released = []
        core = ScriptedCore(
            Ticked=[do.BeginTransaction(), do.ReleaseBudget((("a", 7),))], TransactionAborted=STOP
        )
        publisher = FakePublisher(begin=on.TransactionAborted("no member"))
        loop(core, publisher=publisher, released=released).run()

        assert released == [(("a", 7),)]

    def test_an_unknown_outcome_reaches_the_core(self):
        core = ScriptedCore(Ticked=FENCED, CommitOutcomeUnknown=STOP)
        loop(core, publisher=FakePublisher(commit=on.CommitOutcomeUnknown("silence"))).run()

        assert isinstance(core.events[-1], on.CommitOutcomeUnknown)

    @pytest.mark.parametrize(
        "failing", ["begin", "await_delivery", "send_offsets", "commit", "abort"]
    )
    def test_a_fence_reaches_the_core_with_what_the_group_knows(self, failing):
        effects = [
            do.BeginTransaction(),
            do.AwaitDelivery(),
            *FENCED[1:],
            do.AbortTransaction("lost"),
        ]
        core = ScriptedCore(Ticked=effects, ProducerFenced=STOP)
        loop(core, publisher=FakePublisher(**{failing: on.ProducerFenced()})).run()

        assert core.events[-1] == on.ProducerFenced(has_successor=False)

    def test_a_fence_by_a_successor_reaches_the_core(self):
        core = ScriptedCore(Ticked=FENCED, ProducerFenced=STOP)
        publisher = FakePublisher(commit=on.ProducerFenced())
        loop(core, publisher=publisher, slots=FakeSlots(successor=True)).run()

        assert core.events[-1] == on.ProducerFenced()

    def test_a_readers_output_reaches_the_core_and_its_end_forgets_it(self):
        reader = FakeReader()
        core = ScriptedCore(
            Ticked=[[do.StartQuery("t", 1, 0)], []],
            QueryEnded=[do.StopQuery("t", 1), do.Stop(None)],
        )
        worker = FleetWorker(
            core,
            publisher=FakePublisher(),
            open_reader=lambda query, deliver: (
                threading.Timer(0.01, deliver, [on.QueryEnded("t", query.query_id)]).start()
                or reader
            ),
            open_stream_start=lambda: None,
            release_budget=lambda _sizes: None,
        )
        worker.attach(FakeSlots())
        worker.run()

        assert reader.started
        assert not reader.stopped


class TestGroup:
    """Slots come and go inside a poll."""

    def test_a_revocation_returns_when_the_slots_are_released(self):
        core = ScriptedCore(
            SlotsAssigned=[],
            SlotsRevoked=[],
            Ticked=[[], [], [do.ReleaseSlots((3,))], STOP],
        )
        slots = FakeSlots()
        worker = loop(core, slots=slots)
        slots.polls = [
            lambda: worker.slots_assigned((3,)) or [],
            lambda: worker.slots_revoked((3,)) or [],
        ]
        worker.run()
        names = [type(event).__name__ for event in core.events]

        assert names == [
            "SlotsAssigned", "Ticked", "SlotsRevoked", "Ticked", "Ticked", "Ticked",
        ]  # fmt: skip

    def test_rebalances_of_slots_that_it_does_not_hold_do_not_reach_the_core(self):
        core = ScriptedCore(Ticked=STOP)
        slots = FakeSlots()
        worker = loop(core, slots=slots)
        slots.polls = [lambda: worker.slots_revoked((1,)) or worker.slots_lost((2,)) or []]
        worker.run()

        assert [type(event).__name__ for event in core.events] == ["Ticked"]


class TestTime:
    """Intervals and timestamps come from two clocks."""

    def test_the_core_gets_both_clocks(self):
        core = ScriptedCore(Ticked=[[], [], STOP])
        loop(core, clock=SteppingClock()).run()
        first, second, third = core.times

        assert first.monotonic_us < second.monotonic_us < third.monotonic_us
        assert first.wall_us > second.wall_us > third.wall_us

    def test_a_wall_clock_that_steps_back_does_not_prolong_a_revocation(self):
        """Slots that are never released count as lost when patience ends."""
        core = ScriptedCore(SlotsAssigned=[], SlotsRevoked=[], SlotsLost=STOP, Ticked=[])
        slots = FakeSlots()
        worker = loop(core, slots=slots, clock=SteppingClock(), revoke_patience_s=0.05)
        slots.polls = [
            lambda: worker.slots_assigned((3,)) or [],
            lambda: worker.slots_revoked((3,)) or [],
        ]
        worker.run()

        assert core.events[-1] == on.SlotsLost((3,))


class TestSteps:
    """A program with a loop of its own calls `start`, `step` and `close`."""

    def test_a_step_is_one_round(self):
        slots = FakeSlots()
        core = ScriptedCore(Ticked=[[], STOP])
        worker = loop(core, slots=slots)
        worker.start()

        assert worker.step()
        assert [type(event).__name__ for event in core.events] == ["Ticked"]
        assert not worker.step()
        worker.close()
        assert slots.closed

    def test_after_a_stop_nothing_reaches_the_core(self):
        core = ScriptedCore(DrainRequested=STOP)
        worker = loop(core)
        worker.start()
        worker.request_drain()
        assert not worker.step()
        assert not worker.step()

        assert core.events == [on.DrainRequested()]

    @pytest.mark.parametrize("leaves", [False, True])
    def test_the_core_says_whether_the_worker_leaves_its_group(self, leaves):
        slots = FakeSlots()
        core = ScriptedCore(DrainRequested=[do.Stop(None, leaves_group=leaves)])
        worker = loop(core, slots=slots)
        worker.request_drain(leaves_group=leaves)
        worker.run()

        assert core.events == [on.DrainRequested(leaves_group=leaves)]
        assert slots.has_left is leaves

    def test_the_stream_start_is_looked_for_until_it_is_found(self):
        record = ProgressRecord("e", "w", None)
        finder = FakeFinder((None, False), (None, True), (record, False))
        core = ScriptedCore(Ticked=[[do.FindStreamStart(1)], [], [], []], StreamStartFound=STOP)
        loop(core, finder=finder).run()

        assert core.events[-1] == on.StreamStartFound(record)
        assert finder.closed

    def test_the_end_of_a_search_is_reported_once(self):
        finder = FakeFinder((None, True), (None, True), (None, True))
        core = ScriptedCore(Ticked=[[do.FindStreamStart(1)], [], [do.FindStreamStart(2)], STOP])
        loop(core, finder=finder).run()

        absent = [event for event in core.events if isinstance(event, on.StreamStartAbsent)]
        assert absent == [on.StreamStartAbsent(1), on.StreamStartAbsent(2)]


class TestEnding:
    """How `run` ends."""

    def test_it_raises_what_stopped_it_and_releases_what_it_held(self):
        slots, reader, publisher = FakeSlots(), FakeReader(), FakePublisher()
        core = ScriptedCore(
            Ticked=[[do.StartQuery("t", 1, 0)], [do.Stop(ProducerError("refused"))]]
        )

        with pytest.raises(ProducerError, match="refused"):
            loop(core, slots=slots, reader=reader, publisher=publisher).run()
        assert slots.closed
        assert reader.stopped
        assert publisher.closed

    def test_a_broken_invariant_ends_it(self):
        core = ScriptedCore(Ticked=InvariantViolation("a vector went back"))

        with pytest.raises(InvariantViolation):
            loop(core).run()

    def test_a_group_that_does_not_close_leaves_nothing_else_open(self):
        slots, reader, publisher = FakeSlots(), FakeReader(), FakePublisher()
        slots.close = mock.Mock(side_effect=RuntimeError("the client is broken"))
        core = ScriptedCore(Ticked=[[do.StartQuery("t", 1, 0)], STOP])

        with pytest.raises(RuntimeError, match="broken"):
            loop(core, slots=slots, reader=reader, publisher=publisher).run()
        assert reader.stopped
        assert publisher.closed

    def test_a_drain_is_asked_of_the_core(self):
        core = ScriptedCore(DrainRequested=STOP)
        worker = loop(core)
        worker.request_drain()
        worker.run()

        assert core.events == [on.DrainRequested()]


def test_a_later_table_reaches_the_core_ahead_of_its_records():
    topic = DataTopic("t", "id", 1, 7)
    read = on.RecordsRead("a", 1, [], 0)
    core = ScriptedCore()
    made = loop(core)
    made.add_table(topic)
    made._inbox.put(read)
    made.step()

    assert core.events[:2] == [on.TableFound(topic), read]


def test_a_table_that_is_found_after_the_end_is_dropped():
    released = []
    made = loop(ScriptedCore(), released=released)
    made.close()
    made.add_table(DataTopic("t", "id", 1, 7))

    assert released == []


def test_interruptions_are_logged_once_for_each_resource_until_reading_goes_on():
    """Two clients that fail in turn must not fill the log."""
    made, read = loop(ScriptedCore()), on.ProgressRead(0, 1, 7, ProgressRecord("e", "w", None))
    first, second = (on.ReadInterrupted(name, "broker down") for name in ("slot 0", "all slots"))
    with capture_logs() as lines:
        for event in (first, second, first, second, read, first):
            made._note_interruption(event)

    named = [line["resource"] for line in lines if line["event"] == "reading interrupted"]
    assert named == ["slot 0", "all slots", "slot 0"]
