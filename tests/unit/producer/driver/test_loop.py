"""The loop and its effects: rounds, rebalances, both clocks, what a failure drops, how it ends."""

import functools
import threading
import time
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as some
from structlog.testing import capture_logs

from tidegate.producer.cli.worker_parts import RecordedStart
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.driver.effect_runner import EffectRunner
from tidegate.producer.driver.log_lines import LineRate, ParkedLog
from tidegate.producer.driver.loop import FleetWorker, Inbox, joined
from tidegate.producer.driver.runtime import SystemClock
from tidegate.producer.errors import PositionExpired
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.messages import ParkedChange
from tidegate.producer.records import HeartbeatRecord
from tidegate.schemas.errors import (
    InvariantViolation,
    ProducerError,
    SchemaError,
    UnreachableError,
)
from tidegate.schemas.instants import US_PER_SECOND
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


STOP = [do.Stop(None)]
FENCED = [do.BeginTransaction(), do.SendOffsets(((0, 0),)), do.CommitTransaction()]


def loop(core, *, slots=None, publisher=None, open_reader=None, released=None, finder=None, **opts):
    worker = FleetWorker(
        core,
        publisher=publisher or FakePublisher(),
        open_reader=open_reader or (lambda _query, _deliver: FakeReader()),
        open_stream_start=lambda: finder,
        release_budget=(released if released is not None else []).append,
        **opts,
    )
    worker.attach(slots or FakeSlots())
    return worker


def names(core):
    return [type(event).__name__ for event in core.events]


class TestEffects:
    @pytest.mark.parametrize("has_successor", [False, True])
    @pytest.mark.parametrize(
        "failing", ["begin", "await_delivery", "send_offsets", "commit", "abort"]
    )
    def test_a_fence_reaches_the_core_with_what_the_group_knows(self, failing, has_successor):
        effects = [FENCED[0], do.AwaitDelivery(), *FENCED[1:], do.AbortTransaction("lost")]
        core = ScriptedCore(Ticked=effects, ProducerFenced=STOP)
        publisher = FakePublisher(**{failing: on.ProducerFenced()})
        loop(core, publisher=publisher, slots=FakeSlots(successor=has_successor)).run()
        assert core.events[-1] == on.ProducerFenced(has_successor=has_successor)

    def test_a_readers_output_reaches_the_core_and_its_end_forgets_it(self):
        reader = FakeReader()
        core = ScriptedCore(
            Ticked=[[do.StartQuery("t", 1, 0)], []],
            QueryEnded=[do.StopQuery("t", 1), do.Stop(None)],
        )

        def open_reader(query, deliver):
            threading.Timer(0.01, deliver, [on.QueryEnded("t", query.query_id)]).start()
            return reader

        loop(core, open_reader=open_reader).run()
        assert (reader.started, reader.stopped) == (True, False)

    def test_a_query_that_cannot_be_opened_has_failed_and_stops_nothing_else(self):
        """Such as one whose token a newer version has written."""
        core = ScriptedCore(
            Ticked=[[do.StartQuery("t", 1, 0), do.StartQuery("u", 2, 0)], []], QueryFailed=STOP
        )
        error, reader = SchemaError("the token of a backfill cannot be read"), FakeReader()

        def open_reader(query, _deliver):
            if query.token == "t":
                raise error
            return reader

        loop(core, open_reader=open_reader).run()
        assert core.events[-1] == on.QueryFailed("t", 1, error)
        assert reader.started


class TestGroup:
    def test_a_revocation_returns_when_the_slots_are_released(self):
        core = ScriptedCore(Ticked=[[], [], [do.ReleaseSlots((3,))], STOP])
        slots = FakeSlots()
        worker = loop(core, slots=slots)
        slots.polls = [
            lambda: worker.slots_revoked((1,)) or worker.slots_lost((2,)) or [],
            lambda: worker.slots_assigned((3,)) or [],
            lambda: worker.slots_revoked((3,)) or [],
        ]
        core.answers["Ticked"].insert(0, [])
        worker.run()
        assert names(core) == [
            "Ticked", "SlotsAssigned", "Ticked", "SlotsRevoked", *["Ticked"] * 3,
        ]  # fmt: skip

    def test_a_wall_clock_that_steps_back_does_not_prolong_a_revocation(self):
        """Slots that are never released count as lost when patience ends."""
        core = ScriptedCore(SlotsLost=STOP)
        slots = FakeSlots()
        worker = loop(core, slots=slots, clock=SteppingClock(), revoke_patience_s=0.05)
        slots.polls = [
            lambda: worker.slots_assigned((3,)) or [],
            lambda: worker.slots_revoked((3,)) or [],
        ]
        worker.run()
        assert core.events[-1] == on.SlotsLost((3,))

    def test_the_core_gets_both_clocks(self):
        core = ScriptedCore(Ticked=[[], STOP])
        loop(core, clock=SteppingClock()).run()
        first, second = core.times
        assert first.monotonic_us < second.monotonic_us
        assert first.wall_us > second.wall_us


class TestSteps:
    def test_a_step_is_one_round_and_after_a_stop_nothing_reaches_the_core(self):
        slots, core, released = FakeSlots(), ScriptedCore(Ticked=[[], STOP]), []
        worker = loop(core, slots=slots, released=released)
        worker.start()
        assert worker.step()
        assert names(core) == ["Ticked"]
        assert not worker.step()
        assert not worker.step()
        assert names(core) == ["Ticked"] * 2
        worker.close()
        assert slots.closed
        worker.add_table(DataTopic("t", "id", 1, 7))
        assert released == []

    @pytest.mark.parametrize("leaves", [False, True])
    def test_the_core_says_whether_the_worker_leaves_its_group(self, leaves):
        slots = FakeSlots()
        core = ScriptedCore(DrainRequested=[do.Stop(None, leaves_group=leaves)])
        worker = loop(core, slots=slots)
        worker.request_drain(leaves_group=leaves)
        worker.run()
        assert core.events == [on.DrainRequested(leaves_group=leaves)]
        assert slots.has_left is leaves

    def test_the_stream_start_is_looked_for_until_it_is_found_and_its_end_reported_once(self):
        record = ProgressRecord("e", "w", None)
        finder = FakeFinder((None, False), (None, True), (None, True), (record, False))
        ticks = [[do.FindStreamStart(1)], [], [do.FindStreamStart(2)], [], []]
        core = ScriptedCore(Ticked=ticks, StreamStartFound=STOP)
        loop(core, finder=finder).run()
        absent = [event for event in core.events if isinstance(event, on.StreamStartAbsent)]
        assert absent == [on.StreamStartAbsent(1), on.StreamStartAbsent(2)]
        assert core.events[-1] == on.StreamStartFound(record)
        assert finder.closed


class TestEnding:
    @pytest.mark.parametrize("fails", [False, True], ids=["", "a group that does not close"])
    def test_it_raises_what_stopped_it_and_releases_what_it_held(self, fails):
        slots, reader, publisher = FakeSlots(), FakeReader(), FakePublisher()
        stop = do.Stop(None if fails else ProducerError("broken"))
        finder = FakeFinder((None, False), (None, False))
        core = ScriptedCore(Ticked=[[do.StartQuery("t", 1, 0), do.FindStreamStart(1)], [stop]])
        if fails:
            slots.close = mock.Mock(side_effect=RuntimeError("the client is broken"))
        worker = loop(
            core, slots=slots, publisher=publisher, open_reader=lambda *_: reader, finder=finder
        )
        with pytest.raises(RuntimeError if fails else ProducerError, match="broken"):
            worker.run()
        assert fails or slots.closed
        assert reader.stopped
        assert finder.closed
        assert publisher.closed

    def test_a_group_that_cannot_be_joined_leaves_no_producer_open(self):
        slots, publisher = FakeSlots(), FakePublisher()
        slots.start = mock.Mock(side_effect=UnreachableError("cannot claim the worker's name"))
        with pytest.raises(UnreachableError):
            loop(ScriptedCore(), slots=slots, publisher=publisher).run()
        assert slots.closed
        assert publisher.closed

    def test_a_broken_invariant_ends_it(self):
        with pytest.raises(InvariantViolation):
            loop(ScriptedCore(Ticked=InvariantViolation("a vector went back"))).run()


def test_a_later_table_reaches_the_core_ahead_of_its_records():
    topic = DataTopic("t", "id", 1, 7)
    read = on.RecordsRead("a", 1, [], 0)
    core = ScriptedCore()
    made = loop(core)
    made.add_table(topic)
    made._inbox.put(read)
    made.step()
    assert core.events[:2] == [on.TableFound(topic), read]


def test_interruptions_are_logged_once_for_each_resource_until_reading_goes_on():
    """Two clients that fail in turn must not fill the log."""
    made, read = loop(ScriptedCore()), on.ProgressRead(0, 1, 7, ProgressRecord("e", "w", None))
    first, second = (on.ReadInterrupted(name, "broker down") for name in ("slot 0", "all slots"))
    with capture_logs() as lines:
        for event in (first, second, first, second, read, first):
            made._note_interruption(event)
    named = [line["resource"] for line in lines if line["event"] == "reading interrupted"]
    assert named == ["slot 0", "all slots", "slot 0"]


def test_the_same_interruption_is_logged_again_after_a_quiet_time():
    """In a fleet that only writes its own progress no record that is read shows the recovery."""
    clock = ManualClock()
    made = loop(ScriptedCore(), clock=clock)
    with capture_logs() as lines:
        for pause_s in (0, 50, 50, 3_600):
            clock.sleep(pause_s)
            made._note_interruption(on.ReadInterrupted("slot 0", "broker down"))
    assert len([line for line in lines if line["event"] == "reading interrupted"]) == 2


def runner(core, *, publisher=None, released=None, seen=None, slots=None):
    made = EffectRunner(
        core,
        publisher=publisher or FakePublisher(),
        open_reader=lambda _query, _deliver: FakeReader(),
        open_stream_start=lambda: None,
        deliver=lambda _output: None,
        release_budget=(released if released is not None else []).append,
        clock=SystemClock(),
        observe=lambda event, _core: (seen if seen is not None else []).append(event),
    )
    made.attach(slots or FakeSlots())
    return made


def release(size):
    return do.ReleaseBudget((("a", size),))


class TestRunner:
    def test_an_outcome_waits_for_the_effects_of_the_same_call(self):
        released = []
        core = ScriptedCore(Ticked=[do.AwaitDelivery(), release(1)], Delivered=[release(2)])
        one = runner(core, released=released)
        one.pass_on(on.Ticked())
        with pytest.raises(InvariantViolation):
            one.pass_on(on.Ticked())
        assert one.run_next()
        assert (names(core), released) == (["Ticked"], [])
        assert one.run_next()
        assert one.run_next()
        assert (names(core), released) == (["Ticked", "Delivered"], [(("a", 1),)])
        assert one.run_next()
        assert not one.run_next()

    def test_a_failure_drops_the_rest_of_the_transaction_and_nothing_else(self):
        released, seen = [], []
        publisher = FakePublisher(send_offsets=on.TransactionAborted("refused"))
        core = ScriptedCore(
            Ticked=[do.SendOffsets(((0, 1),)), release(7), do.CommitTransaction()],
            TransactionAborted=[do.BeginTransaction()],
        )
        runner(core, publisher=publisher, released=released, seen=seen).process(on.Ticked())
        assert released == [(("a", 7),)]
        assert publisher.calls == ["send_offsets", ("metadata", b"generation 7"), "begin"]
        assert seen == [on.Ticked(), on.TransactionAborted("refused")] == core.events

    @pytest.mark.parametrize(
        ("effect", "expected"),
        [
            (
                do.ReportStopped("a", PositionExpired("too old", lost_from="x"), 7),
                {
                    "event": "stream partition stopped", "log_level": "error", "token": "a",
                    "error": "too old (lost_from='x')", "watermark_us": 7,
                },
            ),
            (
                do.ReportWaiting(queued=3, paused=4, running=2, held=1),
                {
                    "event": "stream partitions wait for a query", "log_level": "info",
                    "queued": 3, "paused": 4, "running": 2, "held": 1,
                },
            ),
            (do.ReportPause(True), {"event": "the stream is paused"}),
            (do.ReportPause(False), {"event": "the stream is resumed"}),
            (do.Stop(None, leaves_group=True), {"event": "drained; leaving the group"}),
        ],
    )  # fmt: skip
    def test_what_an_operator_has_to_know_is_a_line_in_the_log(self, effect, expected):
        with capture_logs() as lines:
            runner(ScriptedCore(Ticked=[effect])).process(on.Ticked())
        (line,) = lines
        assert line.items() >= expected.items()

    def test_the_membership_is_asked_for_what_concerns_the_group(self):
        slots, asked = FakeSlots(), []
        for name in ("rejoin", "replace_client"):
            setattr(slots, name, functools.partial(asked.append, name))
        effects = [do.WatchTopic("t"), do.RejoinGroup((3,)), do.ReplaceGroupClient()]
        one = runner(ScriptedCore(Ticked=[*effects, do.ReleaseSlots((1, 2))]), slots=slots)
        one.held.update((1, 2, 3))
        one.process(on.Ticked())
        assert (slots.watched, asked, one.held) == (["t"], ["rejoin", "replace_client"], {3})
        one._membership = None
        with pytest.raises(InvariantViolation):
            one.membership  # noqa: B018 - the property raises

    def test_each_abort_is_a_line_with_its_reason_at_a_bearable_rate(self):
        failure = on.DeliveryFailure(on.DeliveryFault.TOO_LARGE, "TOO_LARGE", 1, "t", "k", 9)
        publisher = FakePublisher(commit=on.TransactionAborted("because", failure))
        lost = [do.AbortTransaction("slots [3] were lost")]
        core = ScriptedCore(Ticked=[do.CommitTransaction()], DrainRequested=lost)
        one = runner(core, publisher=publisher)
        with capture_logs() as written:
            for _ in range(100):
                one.process(on.Ticked())
        lines = [line for line in written if line["log_level"] == "warning"]
        assert lines[0] == {
            "event": "transaction not committed", "log_level": "warning", "reason": "because",
            "failure": "TOO_LARGE", "topic": "t", "left_out": 0,
        }  # fmt: skip
        assert len(lines) == 5
        one.process(on.DrainRequested())
        assert core.events[-1] == on.TransactionAborted("slots [3] were lost")

    @pytest.mark.parametrize(
        "answer", [[do.Stop(None), release(1)], InvariantViolation("a vector went back")]
    )
    def test_after_a_stop_neither_effects_nor_events_follow(self, answer):
        released = []
        core = ScriptedCore(Ticked=answer)
        one = runner(core, released=released)
        one.process(on.Ticked())
        one.process(on.Ticked())
        assert one.is_stopped
        assert one.error is (answer if isinstance(answer, Exception) else None)
        assert (released, names(core)) == ([], ["Ticked"])


WAIT_S = 30
OUTPUT, OTHER_OUTPUT = on.QueryEnded("a", 1), on.QueryEnded("b", 2)


def records(query_id, *timestamps):
    items = [HeartbeatRecord(timestamp_ns=each) for each in timestamps]
    return on.RecordsRead(f"t{query_id}", query_id, items, size_bytes=10 * len(items))


class TestInbox:
    @pytest.fixture
    def discarded(self):
        return []

    @pytest.fixture
    def inbox(self, discarded):
        return Inbox(discard=discarded.append)

    def test_outputs_come_in_order_and_what_is_not_taken_is_discarded(self, inbox, discarded):
        for output in (OUTPUT, OTHER_OUTPUT, records(1, 1), records(1, 2), OUTPUT):
            inbox.put(output)
        assert len(inbox) == 5
        assert inbox.take() == OUTPUT
        assert inbox.wait(WAIT_S), "what was joined and not taken is not waited for"
        inbox.put(OTHER_OUTPUT)
        inbox.close()
        assert discarded == [OTHER_OUTPUT, records(1, 1, 2), OUTPUT, OTHER_OUTPUT]
        inbox.put(OUTPUT)
        assert discarded[-1] is OUTPUT
        assert (inbox.take(), len(inbox)) == (None, 0)

    def test_a_delivery_ends_the_wait(self, inbox):
        began = time.monotonic()
        assert not inbox.wait(0.01)
        assert time.monotonic() - began < WAIT_S
        threading.Timer(0.01, inbox.put, [OUTPUT]).start()
        assert inbox.wait(WAIT_S)
        assert inbox.take() == OUTPUT

    def test_records_of_one_query_that_wait_are_taken_as_one(self, inbox):
        for output in (records(1, 1, 2), records(2, 1), records(1, 3), records(2, 2)):
            inbox.put(output)
        assert inbox.take() == records(1, 1, 2, 3)
        inbox.put(records(2, 3))
        assert len(inbox) == 2
        assert inbox.take() == records(2, 1, 2)
        assert inbox.take() == records(2, 3)
        sizes = [len(one.items) for one in joined(records(1, each) for each in range(250))]
        assert sizes == [100, 100, 50]


outputs = some.lists(
    some.one_of(
        some.builds(records, some.integers(1, 3), some.integers(0, 9)),
        some.builds(on.QueryEnded, some.just("t"), some.integers(1, 3)),
    )
)


@given(outputs)
def test_nothing_is_lost_and_the_order_within_a_query_stays(delivered):
    result = joined(delivered)
    for query_id in (1, 2, 3):
        assert _story_of(query_id, result) == _story_of(query_id, delivered)
    assert _bytes(result) == _bytes(delivered)


def _story_of(query_id, outputs):
    """The items of one query and every other output, in order."""
    story = []
    for output in outputs:
        if not isinstance(output, on.RecordsRead):
            story.append(output)
        elif output.query_id == query_id:
            story += output.items
    return story


def _bytes(outputs):
    return sum(output.size_bytes for output in outputs if isinstance(output, on.RecordsRead))


SECOND_US = 1_000_000


def test_a_burst_of_lines_passes_and_the_rest_is_counted():
    rate = LineRate(burst=3, interval_us=10 * SECOND_US)
    assert [rate.admit(5) for _ in range(6)] == [0, 0, 0, None, None, None]
    assert rate.admit(5 + 10 * SECOND_US) == 3
    assert rate.admit(6 + 10 * SECOND_US) is None
    after = 60 * SECOND_US
    assert [rate.admit(after) for _ in range(4)] == [1, 0, 0, None], "the burst is back"


CHANGE = ParkedChange("p.t", b"k", b"o", b"U", b"{}", b"record", "SchemaError", "a text", "token")


def test_parked_changes_of_one_topic_and_reason_have_a_line_a_minute():
    clock = ManualClock()
    log = ParkedLog(clock)
    with capture_logs() as lines:
        log(CHANGE._replace(topic="first"), "id=1", 1_700_000_000_123_456)
        for _ in range(3):
            for number in range(5):
                log(CHANGE, f"id={number}", 1)
                log(CHANGE._replace(reason="MessageTooLarge"), f"id={number}", 1)
            log(CHANGE._replace(topic="p.u"), "id=1", 1)
            clock.advance(60 * US_PER_SECOND)
    assert lines.pop(0) == {
        "event": "change parked", "log_level": "warning", "topic": "first", "key": "id=1",
        "commit_timestamp": "2023-11-14T22:13:20.123456Z", "reason": "SchemaError",
        "error": "a text", "token": "token", "left_out": 0,
    }  # fmt: skip
    found = [(line["topic"], line["reason"], line["key"], line["left_out"]) for line in lines]
    assert found[3:6] == found[6:] == [
        ("p.t", "SchemaError", "id=0", 4), ("p.t", "MessageTooLarge", "id=0", 4),
        ("p.u", "SchemaError", "id=1", 0),
    ]  # fmt: skip


def test_the_recorded_start_is_found_by_the_first_poll():
    record = ProgressRecord("epoch", "worker", None)
    search = RecordedStart(record)
    assert search.poll() == (record, False), "an end without a finding would count as absence"
    search.close()
