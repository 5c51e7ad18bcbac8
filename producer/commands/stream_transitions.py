"""Every transition between the states of a stream, and what brings it about.

A state is nowhere stored: `stream_state` derives it from what the progress topic and the group say
now.  So the table is what that can lead to, change by change, where each change is one record that
can be read or one member of the group.  Its test writes these records in every order and compares:
each step is in the table, and no other is.  The drawing in `docs/reference/stream-states.md` is
generated from it.  What operators may do in a state is in `command_rules`.

A record may become readable after its worker has left, since the open transaction of another one
hid it: so a stream without workers may still turn out to have failed, or to have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tidegate.producer.commands.stream_state import StreamState


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

_BEHIND_AN_ERROR = frozenset({_STARTING, _RUNNING, _DRAINING, _PAUSED, _ENDED})

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
    (_FAILED, StreamChange.CLEARED): _BEHIND_AN_ERROR,
    (_FAILED, StreamChange.RESET): frozenset({_NOT_STARTED}),
    (_LOST, StreamChange.STOPPED): frozenset({_FAILED}),
    (_LOST, StreamChange.CLEARED): _BEHIND_AN_ERROR | {_FAILED},
    (_LOST, StreamChange.RESET): frozenset({_NOT_STARTED}),
    (_ENDED, StreamChange.RESET): frozenset({_NOT_STARTED}),
}
"""Where a change leads to, if it changes the state; there are several where it uncovers another
one: behind an error a stream runs, is paused, has no worker, or has ended."""


def drawing() -> str:
    """Return the table as a diagram of Mermaid, an arrow for each pair of states."""
    labels: dict[tuple[StreamState, StreamState], list[str]] = {}
    for (state, change), following in STREAM_TRANSITIONS.items():
        for one in StreamState:
            if one in following:
                labels.setdefault((state, one), []).append(change.value)
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_name(_NOT_STARTED)}"]
    lines += [f"    {_name(one)}: {one.value}" for one in StreamState]
    lines += [
        f"    {_name(before)} --> {_name(after)}: {', or '.join(changes)}"
        for (before, after), changes in labels.items()
    ]
    return "\n".join([*lines, f"    {_name(_ENDED)} --> [*]", "```"])


def _name(state: StreamState) -> str:
    return state.name.lower()
