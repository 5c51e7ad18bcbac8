"""Effects one at a time: their order, what a failure drops, and what a stop ends."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.unit.producer.driver.test_loop import (
    FakePublisher,
    FakeReader,
    FakeSlots,
    ScriptedCore,
)
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.effect_runner import EffectRunner
from tidegate.producer.errors import PositionExpired
from tidegate.schemas.errors import InvariantViolation

REFUSED = on.TransactionAborted("refused")


def runner(core, *, publisher=None, reader=None, released=None, seen=None, slots=None):
    made = EffectRunner(
        core,
        publisher=publisher or FakePublisher(),
        open_reader=lambda _query, _deliver: reader or FakeReader(),
        open_stream_start=lambda: None,
        deliver=lambda _output: None,
        release_budget=(released if released is not None else []).append,
        clock=SystemClock(),
        observe=lambda event, _core: (seen if seen is not None else []).append(event),
    )
    made.attach(slots or FakeSlots())
    return made


def names(core):
    return [type(event).__name__ for event in core.events]


def test_one_effect_is_carried_out_at_a_time():
    released = []
    core = ScriptedCore(Ticked=[do.ReleaseBudget((("a", 1),)), do.ReleaseBudget((("a", 2),))])
    one = runner(core, released=released)
    one.pass_on(on.Ticked())
    assert released == []

    assert one.run_next()
    assert released == [(("a", 1),)]
    assert one.run_next()
    assert released == [(("a", 1),), (("a", 2),)]
    assert not one.run_next()


def test_a_stopped_stream_partition_is_an_error_in_the_log():
    error = PositionExpired("too old", lost_from="a", lost_until="b")
    core = ScriptedCore(Ticked=[do.ReportStopped("token", error, 7)])
    with capture_logs() as lines:
        runner(core).process(on.Ticked())

    assert lines == [
        {
            "event": "stream partition stopped",
            "log_level": "error",
            "token": "token",
            "error": "too old (lost_from='a', lost_until='b')",
            "watermark_us": 7,
        }
    ]


def test_waiting_stream_partitions_are_a_line_in_the_log():
    core = ScriptedCore(Ticked=[do.ReportWaiting(queued=3, paused=4, running=2, held=1)])
    with capture_logs() as lines:
        runner(core).process(on.Ticked())

    line = {"event": "stream partitions wait for a query", "log_level": "info"}
    assert lines == [{**line, "queued": 3, "paused": 4, "running": 2, "held": 1}]


def test_a_pause_and_its_end_and_a_drain_are_lines_in_the_log():
    core = ScriptedCore(
        Ticked=[do.ReportPause(True), do.ReportPause(False), do.Stop(None, leaves_group=True)]
    )
    with capture_logs() as lines:
        runner(core).process(on.Ticked())

    assert [line["event"] for line in lines] == [
        "the stream is paused",
        "the stream is resumed",
        "drained; leaving the group",
    ]


def test_one_more_topic_is_watched_by_the_membership():
    slots = FakeSlots()
    runner(ScriptedCore(Ticked=[do.WatchTopic("t")]), slots=slots).process(on.Ticked())

    assert slots.watched == ["t"]


def test_an_outcome_waits_for_the_effects_of_the_same_call():
    released = []
    core = ScriptedCore(
        Ticked=[do.AwaitDelivery(), do.ReleaseBudget((("a", 1),))],
        Delivered=[do.ReleaseBudget((("a", 2),))],
    )
    one = runner(core, released=released)
    one.pass_on(on.Ticked())
    one.run_next()
    assert names(core) == ["Ticked"]

    one.run_next()
    one.run_next()
    assert (names(core), released) == (["Ticked", "Delivered"], [(("a", 1),)])


def test_a_failure_drops_the_rest_of_the_transaction_and_nothing_else():
    released, publisher = [], FakePublisher(send_offsets=REFUSED)
    core = ScriptedCore(
        Ticked=[do.SendOffsets(((0, 1),)), do.ReleaseBudget((("a", 7),)), do.CommitTransaction()],
        TransactionAborted=[do.BeginTransaction()],
    )
    runner(core, publisher=publisher, released=released).process(on.Ticked())

    assert released == [(("a", 7),)]
    assert publisher.calls == ["send_offsets", ("metadata", b"generation 7"), "begin"]


def test_every_event_is_observed_in_order():
    seen = []
    core = ScriptedCore(Ticked=[do.CommitTransaction()])
    runner(core, seen=seen).process(on.Ticked())

    assert seen == [on.Ticked(), on.TransactionCommitted()] == core.events


def test_a_reader_that_ended_is_not_stopped_and_a_running_one_is():
    ended, running = FakeReader(), FakeReader()
    readers = [ended, running]
    core = ScriptedCore(Ticked=[do.StartQuery("a", 1, 0), do.StartQuery("b", 2, 0)])
    one = runner(core)
    one._open_reader = lambda _query, _deliver: readers.pop(0)
    one.process(on.Ticked())
    one.process(on.QueryEnded("a", 1))
    one.close()

    assert (ended.started, ended.stopped) == (True, False)
    assert (running.started, running.stopped) == (True, True)


def test_slots_are_held_until_they_are_released():
    core = ScriptedCore(Ticked=[do.ReleaseSlots((1, 2))])
    one = runner(core)
    one.held.update((1, 2, 3))
    one.process(on.Ticked())

    assert one.held == {3}


def test_a_rejoin_is_asked_of_the_group():
    slots = FakeSlots()
    slots.rejoin = lambda: asked.append("rejoin")
    asked = []
    runner(ScriptedCore(Ticked=[do.RejoinGroup((3,))]), slots=slots).process(on.Ticked())

    assert asked == ["rejoin"]


def test_a_new_client_is_asked_of_the_group():
    slots = FakeSlots()
    slots.replace_client = lambda: asked.append("replace_client")
    asked = []
    runner(ScriptedCore(Ticked=[do.ReplaceGroupClient()]), slots=slots).process(on.Ticked())

    assert asked == ["replace_client"]


def test_an_abort_carries_its_reason():
    publisher = FakePublisher()
    publisher.abort = on.TransactionAborted
    core = ScriptedCore(Ticked=[do.AbortTransaction("slots [3] were lost")])
    runner(core, publisher=publisher).process(on.Ticked())

    assert core.events[-1] == on.TransactionAborted("slots [3] were lost")


def test_each_abort_is_a_line_with_its_reason_at_a_bearable_rate():
    failure = on.DeliveryFailure(on.DeliveryFault.TOO_LARGE, "TOO_LARGE", 1, "t", "k", 9)
    publisher = FakePublisher(commit=on.TransactionAborted("because", failure))
    one = runner(ScriptedCore(Ticked=[do.CommitTransaction()]), publisher=publisher)
    with capture_logs() as written:
        for _ in range(100):
            one.process(on.Ticked())
    lines = [line for line in written if line["log_level"] == "warning"]

    assert lines[0] == {
        "event": "transaction not committed", "log_level": "warning", "reason": "because",
        "failure": "TOO_LARGE", "topic": "t", "left_out": 0,
    }  # fmt: skip
    assert len(lines) == 5


def test_after_a_stop_neither_effects_nor_events_follow():
    released = []
    core = ScriptedCore(Ticked=[do.Stop(None), do.ReleaseBudget((("a", 1),))])
    one = runner(core, released=released)
    one.process(on.Ticked())
    one.process(on.Ticked())

    assert one.is_stopped
    assert one.error is None
    assert (released, names(core)) == ([], ["Ticked"])


def test_a_core_that_contradicts_itself_stops_the_worker():
    one = runner(ScriptedCore(Ticked=InvariantViolation("a vector went back")))
    one.process(on.Ticked())

    assert one.is_stopped
    assert isinstance(one.error, InvariantViolation)


def test_an_event_before_the_effects_of_the_last_one_is_a_bug():
    one = runner(ScriptedCore(Ticked=[do.ReleaseBudget((("a", 1),))]))
    one.pass_on(on.Ticked())

    with pytest.raises(InvariantViolation):
        one.pass_on(on.Ticked())


def test_a_worker_without_a_group_is_a_bug():
    one = runner(ScriptedCore())
    one._membership = None

    with pytest.raises(InvariantViolation):
        one.membership  # noqa: B018 - the property raises
