"""Each command is permitted in the states of one table, and refused by name in all others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.unit.producer.commands.test_environment import started
from tests.unit.producer.commands.test_fleet_reader import beat
from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.lineage.fleet_view import FleetView
from tidegate.producer.commands import fleet_reader
from tidegate.producer.commands.accept_gap import accept_gap
from tidegate.producer.commands.command_rules import (
    COMMAND_RULES,
    Command,
    require_command,
    require_permitted,
)
from tidegate.producer.commands.redrive import redrive
from tidegate.producer.commands.stream_state import StreamState
from tidegate.producer.errors import CommandRefused
from tidegate.schemas.progress import ControlState, StreamControl

EXPIRED = "PositionExpired: too old (lost_from='x', lost_until='y')"
ALL = set(StreamState)


def stream(reason=None, *, watermark_us=5, has_ended=False, pause=None, obeys=False):
    """A stream of one stream partition; `pause` is whether an operator's holds, None: never."""
    partition = PartitionStatus("t", 0, "w", PartitionCondition.OPEN, 5, reason)
    wanted = ControlState.PAUSED if pause else ControlState.RUNNING
    return FleetStatus(
        "s", "e", watermark_us, has_ended, (SlotStatus(0, "w", 4, 1, 5, is_paused=obeys),),
        () if has_ended else (partition,),
        control=None if pause is None else StreamControl(1, wanted, "me", 0),
    )  # fmt: skip


STREAMS = {
    StreamState.NOT_STARTED: (None, []),
    StreamState.STARTING: (stream(watermark_us=None), ["w"]),
    StreamState.RUNNING: (stream(), ["w"]),
    StreamState.DRAINING: (stream(pause=True), ["w"]),
    StreamState.PAUSED: (stream(pause=True, obeys=True), ["w"]),
    StreamState.FAILED: (stream("SchemaError: damaged", pause=True), ["w"]),
    StreamState.FAILED_PERMANENTLY: (stream(EXPIRED, pause=True), ["w"]),
    StreamState.ENDED: (stream(has_ended=True), []),
}
"""A stream in each state; an operator's pause holds wherever it can."""

PERMITTED = {
    "pause": ALL - {StreamState.NOT_STARTED, StreamState.ENDED, StreamState.FAILED_PERMANENTLY},
    "resume": {StreamState.DRAINING, StreamState.PAUSED, StreamState.FAILED},
    "drain": ALL - {StreamState.NOT_STARTED},
    "backfill": {StreamState.STARTING, StreamState.RUNNING},
    "backfill --stop": ALL
    - {StreamState.NOT_STARTED, StreamState.ENDED, StreamState.FAILED_PERMANENTLY},
    "backfill --resume": ALL
    - {StreamState.NOT_STARTED, StreamState.ENDED, StreamState.FAILED_PERMANENTLY},
    "backfill --cancel": ALL - {StreamState.NOT_STARTED, StreamState.ENDED},
    "redrive": ALL - {StreamState.NOT_STARTED, StreamState.FAILED_PERMANENTLY},
    "accept-gap": {StreamState.FAILED_PERMANENTLY},
    "reset": ALL,
}


@pytest.mark.rule("datastream-refused-commands")
@pytest.mark.parametrize("state", StreamState, ids=lambda one: one.name)
@pytest.mark.parametrize("command", Command, ids=lambda one: one.name)
def test_a_command_is_permitted_in_these_states_and_refused_in_all_others(command, state):
    found, members = STREAMS[state]
    if state in PERMITTED[command.value]:
        assert require_permitted(command, found, members) is state
        return
    with pytest.raises(CommandRefused) as refused:
        require_permitted(command, found, members)
    assert f"`{command.value}` is refused: the stream is {state.value}" in str(refused.value)
    assert refused.value.hint
    assert refused.value.exit_code == 2


def test_the_table_has_every_command():
    assert set(COMMAND_RULES) == set(Command)
    assert {command.value for command in Command} == set(PERMITTED)


@pytest.mark.parametrize(
    ("found", "members", "hint"),
    [
        (stream(), ["w"], "No operator has paused it"),
        (stream(pause=False), ["w"], "No operator has paused it"),
        (stream(), [], "no worker is in its group: start workers"),
        (stream("damaged"), ["w"], "No operator has paused it"),
        (stream(EXPIRED), ["w"], "accept-gap"),
    ],
    ids=["running", "resumed", "without workers", "failed", "expired"],
)
def test_only_what_an_operator_has_paused_is_resumed(found, members, hint):
    with pytest.raises(CommandRefused) as refused:
        require_permitted(Command.RESUME, found, members)
    assert hint in str(refused.value)


def test_a_failed_stream_takes_up_a_backfill_while_it_is_read():
    failed = stream("SchemaError: damaged")
    assert require_permitted(Command.BACKFILL, failed, ["w"]) is StreamState.FAILED
    with pytest.raises(CommandRefused, match="start workers"):
        require_permitted(Command.BACKFILL, failed, [])
    with pytest.raises(CommandRefused, match="Resume it"):
        require_permitted(Command.BACKFILL, stream("SchemaError: damaged", pause=True), ["w"])


def test_a_pause_without_workers_can_be_taken_back():
    assert require_permitted(Command.RESUME, stream(pause=True), []) is StreamState.PAUSED


def test_what_was_read_of_a_topic_is_enough_to_know_the_state():
    view = FleetView(epoch="e", progress_topic="p", slots=1)
    records = SimpleNamespace(
        view=view, started=SimpleNamespace(stream="s", end_ns=None), epoch="e"
    )
    assert require_command(Command.PAUSE, records, ["w"]) is StreamState.STARTING
    with pytest.raises(CommandRefused, match="the stream is Starting"):
        require_command(Command.RESUME, records, ["w"])


@pytest.fixture
def config(place, monkeypatch):
    """A stream without workers, each of whose slots has said something."""
    monkeypatch.setattr(fleet_reader, "group_members", lambda _admin, _group: [])
    config = place.config()
    place.record(started(config.stream_path))
    return config


def test_redrive_waits_until_what_has_expired_is_accepted(place, config):
    for slot in range(4):
        place.record(beat(slot, stopped=EXPIRED if slot == 2 else None), slot=slot)
    with pytest.raises(CommandRefused, match="`redrive` is refused: the stream is Failed perm"):
        redrive(config, dry_run=True)


def test_nothing_is_accepted_where_nothing_has_expired(place, config):
    for slot in range(4):
        place.record(beat(slot, stopped="damaged" if slot == 2 else None), slot=slot)
    with pytest.raises(CommandRefused, match="`accept-gap` is refused: the stream is Failed") as no:
        accept_gap(config, dry_run=True, confirm=lambda _report: True)
    assert "Nothing of it has expired unread" in str(no.value)
