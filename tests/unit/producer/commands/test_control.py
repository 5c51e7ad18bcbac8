"""A pause, its end and drains are records in the progress topic, and are waited for there."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.unit.producer.commands.test_environment import started
from tests.unit.producer.commands.test_fleet_reader import beat
from tidegate.producer.commands import control as command
from tidegate.producer.commands import fleet_reader
from tidegate.producer.commands.control import ControlReport, DrainReport, control, drain
from tidegate.producer.commands.fleet_reader import FleetReader, read_fleet
from tidegate.producer.commands.status import follow
from tidegate.producer.commands.stream_state import StreamState
from tidegate.producer.core import events as on
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.errors import CommandNotWritten, CommandRefused, StreamNotStarted
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import (
    ControlState,
    ProgressRecord,
    SlotPaused,
    StreamControl,
    WorkerDrain,
)

PAUSED, RUNNING = ControlState.PAUSED, ControlState.RUNNING
SLOTS = range(4)


@pytest.fixture
def members(monkeypatch):
    """The workers in the group."""
    members = ["w1", "w2"]
    monkeypatch.setattr(fleet_reader, "group_members", lambda _admin, _group: list(members))
    return members


@pytest.fixture
def config(place, members, monkeypatch):
    """Settings of a stream that has begun; what would be sent goes into the topic at once."""
    config = place.config(spanner_emulator_host="127.0.0.1:1")

    def send(_publisher, prepare):
        records = prepare()
        place.record(*records)
        return records

    monkeypatch.setattr(command, "send_commands", send)
    monkeypatch.setattr(command, "register", lambda _registry, _subject, _schema: 7)
    monkeypatch.setattr(FleetReader, "read_past_open_transactions", _read_on)
    return config


def _read_on(reader):
    reader.wait(1.2)
    return reader.read()


@pytest.fixture
def fleet(place, config):
    """A fleet with a heartbeat in each slot."""
    place.record(started(config.stream_path))
    for slot in SLOTS:
        place.record(beat(slot), slot=slot)
    return config


def test_a_pause_is_over_once_every_slot_says_so(place, fleet):
    for slot in SLOTS:
        place.record(ProgressRecord("epoch-1", "w1", SlotPaused(slot, 1)), slot=slot)
    report = control(fleet, PAUSED, by="me", wait_s=20)

    assert report == ControlReport(fleet.stream_path, StreamState.PAUSED, written=True)
    found = read_fleet(fleet).view.control
    assert (found.number, found.state, found.by) == (1, PAUSED, "me")
    (status,) = islice(follow(fleet), 1)
    assert status.state is StreamState.PAUSED
    assert json.loads(report.as_json())["state"] == "Paused"


def test_what_is_still_read_is_named_when_the_wait_ends(place, fleet):
    for slot in (0, 2):
        place.record(ProgressRecord("epoch-1", "w1", SlotPaused(slot, 1)), slot=slot)
    report = control(fleet, PAUSED, wait_s=0.1)

    assert (report.state, report.draining) == (StreamState.DRAINING, (1, 3))
    assert not report.is_done


def test_a_fleet_without_workers_is_not_waited_for(fleet, members):
    members.clear()
    assert control(fleet, PAUSED, wait_s=20).is_done


def test_nothing_is_repeated_and_each_record_has_the_next_number(fleet):
    assert control(fleet, PAUSED).written
    assert not control(fleet, PAUSED).written
    report = control(fleet, RUNNING)
    assert (report.written, report.state, report.is_done) == (True, StreamState.RUNNING, True)
    assert read_fleet(fleet).view.control.number == 2


@pytest.mark.parametrize("is_written", [True, False], ids=["its answer lost", "not written"])
def test_a_command_that_may_not_be_written_is_run_again(fleet, monkeypatch, is_written):
    """To say it twice changes nothing: the second one finds the first, or is the first."""
    send = command.send_commands

    def unanswered(publisher, prepare):
        if is_written:
            send(publisher, prepare)
        raise CommandNotWritten("no answer")

    for run in (lambda: control(fleet, PAUSED, by="me"), lambda: drain(fleet, ["w1"], by="me")):
        monkeypatch.setattr(command, "send_commands", unanswered)
        with pytest.raises(CommandNotWritten, match="Run it again"):
            run()
        monkeypatch.setattr(command, "send_commands", send)
        run()
    found = read_fleet(fleet)
    assert (found.view.control.number, found.view.control.state) == (1, PAUSED)
    # A worker takes the first drain and leaves; more of them are for the same process.
    commands = OperatorCommands("w1")
    drains = [ProgressRecord("epoch-1", "_control", WorkerDrain("w1", "me", 0))] * 2
    commands.handle(on.RootSlotRead((), is_at_end=True))
    commands.handle(on.RootSlotRead(tuple(drains), is_at_end=True))
    assert commands.is_drained


def test_only_a_stream_that_is_paused_is_resumed(fleet):
    with pytest.raises(CommandRefused, match="`resume` is refused: the stream is Running"):
        control(fleet, RUNNING)
    assert read_fleet(fleet).view.control is None


def test_a_command_that_another_one_overtakes_is_refused(place, fleet, monkeypatch):
    """Two operators resume: the state is looked at once more where no other one can commit."""
    control(fleet, PAUSED)
    send = command.send_commands

    def overtaken(publisher, prepare):
        place.record(ProgressRecord("epoch-1", "_control", StreamControl(2, RUNNING, "other", 0)))
        return send(publisher, prepare)

    monkeypatch.setattr(command, "send_commands", overtaken)
    with pytest.raises(CommandRefused, match="`resume` is refused: the stream is Running"):
        control(fleet, RUNNING)
    assert read_fleet(fleet).view.control.by == "other"


def test_what_has_expired_is_neither_paused_nor_keeps_its_workers(place, fleet, members):
    stopped = "PositionExpired: too old (lost_from='x', lost_until='y')"
    place.record(beat(2, 2, stopped=stopped), slot=2)
    with pytest.raises(CommandRefused, match="the stream is Failed permanently") as refused:
        control(fleet, PAUSED)
    assert "accept-gap" in str(refused.value)
    assert read_fleet(fleet).view.control is None
    assert drain(fleet, ["w1"]).workers == ("w1",)


def test_a_stream_that_has_not_begun_is_not_paused_and_has_a_status(config):
    with pytest.raises(StreamNotStarted, match="holds no stream"):
        control(config, PAUSED)
    (status,) = islice(follow(config), 1)
    assert (status.state, status.fleet) == (StreamState.NOT_STARTED, None)


def test_a_fleet_that_writes_older_records_is_refused():
    view = SimpleNamespace(slots=[SimpleNamespace(version=4), SimpleNamespace(version=3)])
    with pytest.raises(ConfigError, match="version 3") as refused:
        command._require_version(SimpleNamespace(view=view, version=4))
    assert "set progress_version to 4" in str(refused.value)
    silent = SimpleNamespace(slots=[SimpleNamespace(version=0)])
    command._require_version(SimpleNamespace(view=silent, version=4))
    with pytest.raises(ConfigError, match="version 2"):
        command._require_version(SimpleNamespace(view=silent, version=2))


def test_a_drain_waits_until_the_worker_has_left(fleet, members, monkeypatch):
    written = []
    send = command.send_commands

    def and_leave(publisher, prepare):
        written.extend(record.body for record in send(publisher, prepare))
        members.remove("w2")

    monkeypatch.setattr(command, "send_commands", and_leave)
    report = drain(fleet, ["w2", "w2"], by="me", wait_s=20)

    assert report == DrainReport(("w2",), (), waited=True)
    assert [(type(one), one.worker, one.by) for one in written] == [(WorkerDrain, "w2", "me")]
    assert json.loads(report.as_json())["is_done"]


def test_a_worker_that_left_and_was_started_again_has_left(fleet, members, monkeypatch):
    """Its supervisor starts it while others still leave."""
    monkeypatch.setattr(command, "_LOOK_S", 0.0)
    looks = [["w1", "w2"], ["w2"], ["w1"]]
    monkeypatch.setattr(FleetReader, "members", lambda _reader: looks.pop(0))

    assert drain(fleet, ["w1", "w2"], wait_s=20).is_done
    assert looks == []


def test_a_worker_that_stays_is_named(fleet):
    report = drain(fleet, ["w1"], wait_s=0.1)
    assert (report.remaining, report.is_done) == (("w1",), False)
    assert drain(fleet, ["w1"]).is_done


def test_a_worker_that_is_not_there_is_not_drained(fleet):
    with pytest.raises(ConfigError, match="no worker w3 is in the group") as refused:
        drain(fleet, ["w1", "w3"])
    assert "w1, w2" in str(refused.value)


def test_reading_goes_on_past_open_transactions(place, members, monkeypatch):
    config = place.config(spanner_emulator_host="127.0.0.1:1")
    place.record(started(config.stream_path))
    with closing(FleetReader(config)) as reader:
        place.record(beat(0))
        monkeypatch.setattr(fleet_reader.SlotRecovery, "uncommitted_end", lambda *_: 2)
        assert list(reader.read_past_open_transactions().view.slots[0].tokens) == ["t0"]
