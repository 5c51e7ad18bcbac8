"""In which states of a stream each command may do something: one table, which all of them obey.

Nothing stores a stream's state, so a command derives it from the records and the group that it has
read anyway, and asks here before its first effect.  What only looks is always permitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tidegate.lineage.fleet_status import FleetStatus, fleet_status
from tidegate.producer.commands.stream_state import StreamState, stream_state
from tidegate.producer.errors import CommandRefused

if TYPE_CHECKING:
    from tidegate.producer.commands.fleet_reader import FleetRecords


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
    """Where a command is permitted."""

    states: frozenset[StreamState]
    needs_pause: bool = False
    """Whether an operator's pause has to hold."""
    needs_readers: bool = False
    """Whether workers have to be in the group, and no pause may hold."""
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
    # It reads no state: a stream whose records cannot be decoded any more can only be removed.
    Command.RESET: CommandRule(_ALL, is_offline=True),
}
"""Where something is refused, `_HINTS` says what to do."""

_HINTS: Mapping[StreamState, str] = {
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
"""What to do where a command is refused."""

_NOT_PAUSED = "No operator has paused it: tidegate-producer status says what it does"
_NO_WORKER = "No operator has paused it, and no worker is in its group: start workers"
_NOTHING_EXPIRED = (
    "Nothing of it has expired unread; tidegate-producer status names what stops it, if anything"
)


def require_permitted(
    command: Command, found: FleetStatus | None, members: Collection[str]
) -> StreamState:
    """Return the stream's state; raise CommandRefused if the command is not permitted in it.

    `found` is None of a stream that has not begun; `members` are the workers in its group.
    """
    state, rule = stream_state(found, members), COMMAND_RULES[command]
    is_permitted = state in rule.states
    is_paused = found is not None and found.is_to_pause
    is_read = bool(members) and not is_paused
    if is_permitted and (is_paused or not rule.needs_pause) and (is_read or not rule.needs_readers):
        return state
    if is_permitted and rule.needs_readers:
        hint = _HINTS[StreamState.PAUSED] if is_paused else _NO_WORKER
    elif command is Command.ACCEPT_GAP and found is not None:
        hint = _NOTHING_EXPIRED
    elif rule.needs_pause and not is_paused and state in _GOES_ON:
        hint = _NO_WORKER if state is StreamState.PAUSED else _NOT_PAUSED
    else:
        hint = _HINTS[state]
    raise CommandRefused(command.value, state.value, hint=hint)


def require_command(command: Command, records: FleetRecords, members: Iterable[str]) -> StreamState:
    """Do the same with what was read of the progress topic and of the group."""
    found = fleet_status(records.view, records.started, epoch=records.epoch)
    return require_permitted(command, found, tuple(members))
