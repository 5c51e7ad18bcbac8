"""The loop: effects in order, the rest of a failed transaction dropped, revocation waited for."""

from __future__ import annotations

import threading

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.driver.fleet_worker import FleetWorker
from tidegate.schemas.errors import InvariantViolation, ProducerError


class ScriptedCore:
    """Answers each event by name with scripted effects; remembers what it was told."""

    def __init__(self, **answers):
        self.answers = answers
        self.told = []

    def handle(self, event, *, now_us):
        assert now_us > 0
        self.told.append(event)
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


class FakeSlots:
    """A group that does what the test says at its next poll."""

    def __init__(self, *polls, successor=False):
        self.polls = list(polls)
        self.closed = False
        self.successor = successor

    def start(self):
        """Join."""

    def close(self):
        self.closed = True

    def poll(self, timeout_s):
        return self.polls.pop(0)() if self.polls else []

    def metadata(self):
        return b"generation 7"

    def has_successor(self):
        return self.successor

    def recover(self, slot, incarnation):
        return on.SlotRecoveryBegun(slot, incarnation, from_beginning=True, end_offset=0)


class FakeReader:
    """Remembers whether it runs."""

    def __init__(self):
        self.started = self.stopped = False

    def start(self):
        self.started = True

    def stop(self):
        self.stopped = True


def loop(core, *, slots=None, publisher=None, reader=None, released=None):
    """Wire a loop around fakes."""
    worker = FleetWorker(
        core,
        publisher=publisher or FakePublisher(),
        open_reader=lambda _query, _deliver: reader or FakeReader(),
        open_stream_start=lambda: None,
        release_budget=(released if released is not None else []).append,
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
        assert core.told[-1] == on.TransactionAborted("illegal generation")

    def test_what_is_no_part_of_the_transaction_happens_all_the_same(self):
        released = []
        core = ScriptedCore(
            Ticked=[do.BeginTransaction(), do.ReleaseBudget(7)], TransactionAborted=STOP
        )
        publisher = FakePublisher(begin=on.TransactionAborted("no member"))
        loop(core, publisher=publisher, released=released).run()

        assert released == [7]

    def test_an_unknown_outcome_reaches_the_core(self):
        core = ScriptedCore(Ticked=FENCED, CommitOutcomeUnknown=STOP)
        loop(core, publisher=FakePublisher(commit=on.CommitOutcomeUnknown("silence"))).run()

        assert isinstance(core.told[-1], on.CommitOutcomeUnknown)

    @pytest.mark.parametrize(
        "failing", ["begin", "await_delivery", "send_offsets", "commit", "abort"]
    )
    def test_a_fence_is_told_with_what_the_group_knows(self, failing):
        effects = [do.BeginTransaction(), do.AwaitDelivery(), *FENCED[1:], do.AbortTransaction()]
        core = ScriptedCore(Ticked=effects, ProducerFenced=STOP)
        loop(core, publisher=FakePublisher(**{failing: on.ProducerFenced()})).run()

        assert core.told[-1] == on.ProducerFenced(has_successor=False)

    def test_a_fence_by_a_successor_reaches_the_core(self):
        core = ScriptedCore(Ticked=FENCED, ProducerFenced=STOP)
        publisher = FakePublisher(commit=on.ProducerFenced())
        loop(core, publisher=publisher, slots=FakeSlots(successor=True)).run()

        assert core.told[-1] == on.ProducerFenced()

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
            release_budget=lambda _size: None,
        )
        worker.attach(FakeSlots())
        worker.run()

        assert reader.started
        assert not reader.stopped


class TestGroup:
    """Slots come and go inside a poll."""

    def test_a_revocation_returns_when_the_slots_are_let_go(self):
        core = ScriptedCore(
            SlotsAssigned=[],
            SlotsRevoked=[],
            Ticked=[[], [], [do.LetGoSlots((3,))], STOP],
        )
        slots = FakeSlots()
        worker = loop(core, slots=slots)
        slots.polls = [
            lambda: worker.slots_assigned((3,)) or [],
            lambda: worker.slots_revoked((3,)) or [],
        ]
        worker.run()
        names = [type(event).__name__ for event in core.told]

        assert names == [
            "SlotsAssigned", "Ticked", "SlotsRevoked", "Ticked", "Ticked", "Ticked",
        ]  # fmt: skip

    def test_slots_that_it_does_not_hold_are_not_told(self):
        core = ScriptedCore(Ticked=STOP)
        slots = FakeSlots()
        worker = loop(core, slots=slots)
        slots.polls = [lambda: worker.slots_revoked((1,)) or worker.slots_lost((2,)) or []]
        worker.run()

        assert [type(event).__name__ for event in core.told] == ["Ticked"]


class TestEnding:
    """How `run` ends."""

    def test_it_raises_what_stopped_it_and_leaves_the_group(self):
        slots, reader = FakeSlots(), FakeReader()
        core = ScriptedCore(
            Ticked=[[do.StartQuery("t", 1, 0)], [do.Stop(ProducerError("refused"))]]
        )

        with pytest.raises(ProducerError, match="refused"):
            loop(core, slots=slots, reader=reader).run()
        assert slots.closed
        assert reader.stopped

    def test_a_broken_invariant_ends_it(self):
        core = ScriptedCore(Ticked=InvariantViolation("a vector went back"))

        with pytest.raises(InvariantViolation):
            loop(core).run()

    def test_a_drain_is_asked_of_the_core(self):
        core = ScriptedCore(DrainRequested=STOP)
        worker = loop(core)
        worker.request_drain()
        worker.run()

        assert core.told == [on.DrainRequested()]
