"""The states of a stream: since when, what leads from one to another, and what operators may do.

No state is stored.  `stream_state` derives it from the progress topic and the group at that moment;
a command does so before its first effect, and commands that change nothing are always permitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tidegate.lineage.errors import is_expired
from tidegate.lineage.fleet_status import FleetStatus
from tidegate.producer.errors import CommandRefused

if TYPE_CHECKING:
    from tidegate.producer.cli.fleet_reader import FleetRecords


class StreamState(StrEnum):
    """What a stream does now; the first that holds, in this order."""

    NOT_STARTED = "Not started"
    """No worker has opened it."""
    ENDED = "Ended"
    """A bounded stream has published everything; Datastream has no such state."""
    FAILED_PERMANENTLY = "Failed permanently"
    """Changes of a stream partition expired unread: an operator has to accept the loss."""
    FAILED = "Failed"
    """A stream partition is stopped by an error; the others go on."""
    PAUSED = "Paused"
    """No worker is in the group; or an operator has paused it, and all it has read is published."""
    DRAINING = "Draining"
    """An operator has paused the stream, and workers publish what they have read."""
    STARTING = "Starting"
    """Workers are there, and some slot has no heartbeat yet."""
    RUNNING = "Running"
    """Workers read every stream partition that can be read."""


def stream_state(status: FleetStatus | None, members: Collection[str]) -> StreamState:
    """Return the state of a stream; `status` is None before it has begun.

    `members` are the workers in its group.
    """
    if status is None:
        return StreamState.NOT_STARTED
    reasons = [entry.reason for entry in status.partitions if entry.reason is not None]
    if status.has_ended:
        return StreamState.ENDED
    if any(map(is_expired, reasons)):
        return StreamState.FAILED_PERMANENTLY
    if reasons:
        return StreamState.FAILED
    if not members or status.is_paused:
        return StreamState.PAUSED
    if status.is_to_pause:
        return StreamState.DRAINING
    return StreamState.STARTING if status.watermark_us is None else StreamState.RUNNING


def state_since(status: FleetStatus, state: StreamState) -> int | None:
    """Return a time since which a stream has been in its state at least.

    Nothing stores a state, and compaction removes old heartbeats: None if no record proves it.

    `Paused` and `Draining` count from the operator's command; `Paused` without one from the newest
    heartbeat, because the group does not record when its last member left.
    """
    match state:
        case StreamState.FAILED_PERMANENTLY:
            return _stopped(status, is_expired_only=True)
        case StreamState.FAILED:
            return _stopped(status, is_expired_only=False)
        case StreamState.ENDED:
            return _latest(slot.empty_since_us for slot in status.slots)
        case StreamState.RUNNING:
            return _latest((*_steady(status), *_commanded(status)))
        case StreamState.STARTING:
            # Some slot had no heartbeat during the whole time in which another slot had one.
            times = [at_us for at_us in _steady(status) if at_us is not None]
            return _latest((*([min(times)] if times else []), *_commanded(status)))
        case StreamState.PAUSED if not status.is_to_pause:
            heard = [slot.heard_us for slot in status.slots if slot.heard_us is not None]
            return max(heard, default=None)
        case _:
            return _latest(_commanded(status))


def _stopped(status: FleetStatus, *, is_expired_only: bool) -> int | None:
    times = [
        entry.stopped_since_us
        for entry in status.partitions
        if entry.reason is not None and (is_expired(entry.reason) or not is_expired_only)
    ]
    return min((at_us for at_us in times if at_us is not None), default=None)


def _steady(status: FleetStatus) -> list[int | None]:
    return [slot.steady_since_us for slot in status.slots]


def _commanded(status: FleetStatus) -> list[int]:
    return [] if status.control is None else [status.control.at_us]


def _latest(times: Iterable[int | None]) -> int | None:
    """Return the latest time; None if one is unknown, or there is none."""
    past: list[int] = []
    for at_us in times:
        if at_us is None:
            return None
        past.append(at_us)
    return max(past, default=None)


class Command(StrEnum):
    """What operators type to change a stream."""

    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    BACKFILL = "backfill"
    BACKFILL_STOP = "backfill --stop"
    BACKFILL_RESUME = "backfill --resume"
    BACKFILL_CANCEL = "backfill --cancel"
    REDRIVE = "redrive"
    ACCEPT_GAP = "accept-gap"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class CommandRule:
    """The conditions under which a command is permitted."""

    states: frozenset[StreamState]
    needs_pause: bool = False
    """Whether an operator's pause must be in effect."""
    needs_readers: bool = False
    """Whether workers have to be in the group, and no pause may be in effect."""
    is_offline: bool = False
    """Whether it waits until all workers have left the group."""


_ALL = frozenset(StreamState)
_BEGUN = _ALL - {StreamState.NOT_STARTED}
_GOES_ON = _BEGUN - {StreamState.ENDED, StreamState.FAILED_PERMANENTLY}
_READS = frozenset({StreamState.STARTING, StreamState.RUNNING, StreamState.FAILED})

COMMAND_RULES: Mapping[Command, CommandRule] = {
    Command.PAUSE: CommandRule(_GOES_ON),
    Command.RESUME: CommandRule(
        frozenset({StreamState.DRAINING, StreamState.PAUSED, StreamState.FAILED}), needs_pause=True
    ),
    Command.DRAIN: CommandRule(_BEGUN),
    Command.BACKFILL: CommandRule(_READS, needs_readers=True),
    Command.BACKFILL_STOP: CommandRule(_GOES_ON),
    Command.BACKFILL_RESUME: CommandRule(_GOES_ON),
    Command.BACKFILL_CANCEL: CommandRule(_GOES_ON | {StreamState.FAILED_PERMANENTLY}),
    Command.REDRIVE: CommandRule(_GOES_ON | {StreamState.ENDED}, is_offline=True),
    Command.ACCEPT_GAP: CommandRule(frozenset({StreamState.FAILED_PERMANENTLY}), is_offline=True),
    # It does not depend on the state: a stream whose records cannot be decoded can only be removed.
    Command.RESET: CommandRule(_ALL, is_offline=True),
}

HINTS: Mapping[StreamState, str] = {
    StreamState.NOT_STARTED: "Start a worker, or check the prefix",
    StreamState.STARTING: "Wait until it runs",
    StreamState.RUNNING: "It needs nothing",
    StreamState.DRAINING: "Resume it: tidegate-producer resume",
    StreamState.PAUSED: "Resume it (tidegate-producer resume), or start workers if none runs",
    StreamState.FAILED: "Remove the cause that tidegate-producer status names",
    StreamState.FAILED_PERMANENTLY: (
        "Accept what has expired (tidegate-producer accept-gap), or remove the stream "
        "(tidegate-producer reset)"
    ),
    StreamState.ENDED: "All of it is published; another stream needs another prefix, or a reset",
}
"""The hint for each refused command."""

_NOT_PAUSED = "No operator has paused it: tidegate-producer status says what it does"
_NO_WORKER = "No operator has paused it, and no worker is in its group: start workers"
_NOTHING_EXPIRED = (
    "Nothing of it has expired unread; tidegate-producer status names what stops it, if anything"
)


def require_permitted(
    command: Command, status: FleetStatus | None, members: Collection[str]
) -> StreamState:
    """Return the stream's state; raise CommandRefused if the command is not permitted in it.

    `status` is None before the stream has begun; `members` are the workers in its group.
    """
    state, rule = stream_state(status, members), COMMAND_RULES[command]
    is_permitted = state in rule.states
    is_paused = status is not None and status.is_to_pause
    is_read = bool(members) and not is_paused
    if is_permitted and (is_paused or not rule.needs_pause) and (is_read or not rule.needs_readers):
        return state
    if is_permitted and rule.needs_readers:
        hint = HINTS[StreamState.PAUSED] if is_paused else _NO_WORKER
    elif command is Command.ACCEPT_GAP and status is not None:
        hint = _NOTHING_EXPIRED
    elif rule.needs_pause and not is_paused and state in _GOES_ON:
        hint = _NO_WORKER if state is StreamState.PAUSED else _NOT_PAUSED
    else:
        hint = HINTS[state]
    raise CommandRefused(command.value, state.value, hint=hint)


def require_command(command: Command, records: FleetRecords, members: Iterable[str]) -> StreamState:
    """Do the same with the records of the progress topic and the members of the group."""
    return require_permitted(command, records.fleet(), tuple(members))


class StreamChange(StrEnum):
    """What happens to a stream."""

    OPENED = "a worker opens it"
    HEARD = "every slot has a heartbeat"
    STOPPED = "an error stops a stream partition"
    EXPIRED = "changes expire unread"
    CLEARED = "an error is gone"
    PAUSE = "an operator pauses it"
    OBEYED = "all that was read is published"
    RESUME = "an operator resumes it"
    LEFT = "the last worker leaves"
    JOINED = "a worker joins"
    ENDED = "all of it is published"
    RESET = "an operator resets it"


_NOT_STARTED, _STARTING, _RUNNING = (
    StreamState.NOT_STARTED, StreamState.STARTING, StreamState.RUNNING,
)  # fmt: skip
_DRAINING, _PAUSED = StreamState.DRAINING, StreamState.PAUSED
_FAILED, _LOST, _ENDED = StreamState.FAILED, StreamState.FAILED_PERMANENTLY, StreamState.ENDED

_AFTER_AN_ERROR = frozenset({_STARTING, _RUNNING, _DRAINING, _PAUSED, _ENDED})

STREAM_TRANSITIONS: Mapping[tuple[StreamState, StreamChange], frozenset[StreamState]] = {
    (_NOT_STARTED, StreamChange.OPENED): frozenset({_STARTING, _PAUSED}),
    (_STARTING, StreamChange.HEARD): frozenset({_RUNNING, _ENDED}),
    (_STARTING, StreamChange.STOPPED): frozenset({_FAILED}),
    (_STARTING, StreamChange.EXPIRED): frozenset({_LOST}),
    (_STARTING, StreamChange.PAUSE): frozenset({_DRAINING}),
    (_STARTING, StreamChange.LEFT): frozenset({_PAUSED}),
    (_STARTING, StreamChange.ENDED): frozenset({_ENDED}),
    (_RUNNING, StreamChange.STOPPED): frozenset({_FAILED}),
    (_RUNNING, StreamChange.EXPIRED): frozenset({_LOST}),
    (_RUNNING, StreamChange.PAUSE): frozenset({_DRAINING}),
    (_RUNNING, StreamChange.LEFT): frozenset({_PAUSED}),
    (_RUNNING, StreamChange.ENDED): frozenset({_ENDED}),
    (_DRAINING, StreamChange.HEARD): frozenset({_ENDED}),
    (_DRAINING, StreamChange.STOPPED): frozenset({_FAILED}),
    (_DRAINING, StreamChange.EXPIRED): frozenset({_LOST}),
    (_DRAINING, StreamChange.OBEYED): frozenset({_PAUSED}),
    (_DRAINING, StreamChange.RESUME): frozenset({_STARTING, _RUNNING}),
    (_DRAINING, StreamChange.LEFT): frozenset({_PAUSED}),
    (_DRAINING, StreamChange.ENDED): frozenset({_ENDED}),
    (_PAUSED, StreamChange.HEARD): frozenset({_ENDED}),
    (_PAUSED, StreamChange.STOPPED): frozenset({_FAILED}),
    (_PAUSED, StreamChange.EXPIRED): frozenset({_LOST}),
    (_PAUSED, StreamChange.RESUME): frozenset({_RUNNING}),
    (_PAUSED, StreamChange.JOINED): frozenset({_STARTING, _RUNNING, _DRAINING}),
    (_PAUSED, StreamChange.ENDED): frozenset({_ENDED}),
    (_PAUSED, StreamChange.RESET): frozenset({_NOT_STARTED}),
    (_FAILED, StreamChange.EXPIRED): frozenset({_LOST}),
    (_FAILED, StreamChange.CLEARED): _AFTER_AN_ERROR,
    (_FAILED, StreamChange.RESET): frozenset({_NOT_STARTED}),
    (_LOST, StreamChange.STOPPED): frozenset({_FAILED}),
    (_LOST, StreamChange.CLEARED): _AFTER_AN_ERROR | {_FAILED},
    (_LOST, StreamChange.RESET): frozenset({_NOT_STARTED}),
    (_ENDED, StreamChange.RESET): frozenset({_NOT_STARTED}),
}
"""The states that a change may lead to, if it changes the state.

A record may become readable after its worker has left, since the open transaction of another one
hid it: so a stream without workers may still turn out to have failed, or to have ended.
"""


def drawing() -> str:
    """Return the table as a diagram of Mermaid, an arrow for each pair of states."""
    labels: dict[tuple[StreamState, StreamState], list[str]] = {}
    for (state, change), following in STREAM_TRANSITIONS.items():
        for next_state in StreamState:
            if next_state in following:
                labels.setdefault((state, next_state), []).append(change.value)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_name(_NOT_STARTED)}"]
    lines += [f"    {_name(state)}: {state.value}" for state in StreamState]
    lines += [
        f"    {_name(before)} --> {_name(after)}: {', or '.join(changes)}"
        for (before, after), changes in labels.items()
    ]
    return "\n".join([*lines, f"    {_name(_ENDED)} --> [*]", "```"])


def _name(state: StreamState) -> str:
    return state.name.lower()
