"""The states of a slot and of a stream partition, and every transition between them.

A slot, for each time it is assigned (an incarnation):

    ASSIGNED ─► RECOVERING ─► OWNED        each of them ─► REVOKING ─► RELEASING
                                           every state  ─► GONE

A stream partition, from its first announcement to its committed completion marker:

    CREATED ─► SCHEDULED ◄─► QUEUED ◄─► RUNNING ─► FINISHED ─► GONE
                   └◄──────────────────► ┘ └─────► STOPPED

QUEUED and RUNNING ─► PAUSED ─► QUEUED.  RUNNING ─► HELD ─► QUEUED.  QUEUED, PAUSED and HELD ─►
SCHEDULED when the slot is released, or an operator pauses the stream.

A pair that is not in its table cannot happen: it is an InvariantViolation.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from tidegate.schemas.errors import InvariantViolation


class SlotPhase(Enum):
    """The phase of an assigned slot."""

    ASSIGNED = "assigned, reading it has not started"
    RECOVERING = "read until all that was in it when reading started is passed"
    OWNED = "its stream partitions are read and published"
    REVOKING = "to be released, once what was read is published"
    RELEASING = "to be released without publishing"
    GONE = "released or lost"


LEAVING = frozenset({SlotPhase.REVOKING, SlotPhase.RELEASING})
"""The phases in which the group waits for a slot's release."""


class SlotChange(Enum):
    """Why a slot changes its phase."""

    RECOVERY_STARTED = "reading started"
    RECOVERED = "recovery finished"
    REVOKED = "the group revokes it, or the worker drains"
    ABORTED = "a transaction was aborted while the group waits for the slot"
    DROPPED = "it was released or lost, or a commit's outcome is unknown"


SLOT_TRANSITIONS: Mapping[tuple[SlotPhase, SlotChange], SlotPhase] = {
    (SlotPhase.ASSIGNED, SlotChange.RECOVERY_STARTED): SlotPhase.RECOVERING,
    (SlotPhase.ASSIGNED, SlotChange.REVOKED): SlotPhase.REVOKING,
    (SlotPhase.ASSIGNED, SlotChange.DROPPED): SlotPhase.GONE,
    (SlotPhase.RECOVERING, SlotChange.RECOVERED): SlotPhase.OWNED,
    (SlotPhase.RECOVERING, SlotChange.REVOKED): SlotPhase.REVOKING,
    (SlotPhase.RECOVERING, SlotChange.DROPPED): SlotPhase.GONE,
    (SlotPhase.OWNED, SlotChange.REVOKED): SlotPhase.REVOKING,
    (SlotPhase.OWNED, SlotChange.DROPPED): SlotPhase.GONE,
    # A drain may be followed by a rebalance, and a recovery may be answered after the revocation.
    (SlotPhase.REVOKING, SlotChange.RECOVERY_STARTED): SlotPhase.REVOKING,
    (SlotPhase.REVOKING, SlotChange.REVOKED): SlotPhase.REVOKING,
    (SlotPhase.REVOKING, SlotChange.ABORTED): SlotPhase.RELEASING,
    (SlotPhase.REVOKING, SlotChange.DROPPED): SlotPhase.GONE,
    (SlotPhase.RELEASING, SlotChange.RECOVERY_STARTED): SlotPhase.RELEASING,
    (SlotPhase.RELEASING, SlotChange.REVOKED): SlotPhase.RELEASING,
    (SlotPhase.RELEASING, SlotChange.ABORTED): SlotPhase.RELEASING,
    (SlotPhase.RELEASING, SlotChange.DROPPED): SlotPhase.GONE,
}


class PartitionState(Enum):
    """The state of a stream partition."""

    CREATED = "announced by some of its parents"
    SCHEDULED = "announced by all of its parents, no query runs"
    QUEUED = "its query is due, and waits until fewer queries run"
    RUNNING = "a query runs"
    PAUSED = "it is far ahead of the slowest one, and is not read"
    HELD = "keys moved into it, and it is not read until their changes before that are published"
    STOPPED = "its query cannot be repeated, and it holds its watermark"
    FINISHED = "its end is proved, its completion marker is not committed"
    GONE = "its completion marker is committed"


class PartitionChange(Enum):
    """Why a stream partition changes its state."""

    ANNOUNCED_BY_ALL = "the last of its parents announced it"
    QUERY_DUE = "the time of its next query has come"
    QUERY_STARTED = "a query started"
    TURN_ENDED = "its query was stopped in favour of a stream partition that is further behind"
    PAUSED = "it got too far ahead of the slowest one"
    RESUMED = "the slowest one has come closer"
    HELD = "it returned something later than keys that moved in, whose sources are behind"
    SOURCES_PUBLISHED = "the stream partitions that the keys came from are published so far"
    QUERY_STOPPED = "its query was stopped, failed, or ended without proof"
    WITHDRAWN = "its slot is released, or the stream is paused"
    REFUSED = "an error that a repetition would meet again"
    END_PROVED = "its children, or what lies past the stream's end, were read"
    MARKER_COMMITTED = "its completion marker was committed"


PARTITION_TRANSITIONS: Mapping[tuple[PartitionState, PartitionChange], PartitionState] = {
    (PartitionState.CREATED, PartitionChange.ANNOUNCED_BY_ALL): PartitionState.SCHEDULED,
    (PartitionState.SCHEDULED, PartitionChange.QUERY_DUE): PartitionState.QUEUED,
    # The initial query is never queued: there is nothing else to read.
    (PartitionState.SCHEDULED, PartitionChange.QUERY_STARTED): PartitionState.RUNNING,
    (PartitionState.QUEUED, PartitionChange.QUERY_STARTED): PartitionState.RUNNING,
    (PartitionState.QUEUED, PartitionChange.WITHDRAWN): PartitionState.SCHEDULED,
    (PartitionState.RUNNING, PartitionChange.TURN_ENDED): PartitionState.QUEUED,
    (PartitionState.QUEUED, PartitionChange.PAUSED): PartitionState.PAUSED,
    (PartitionState.RUNNING, PartitionChange.PAUSED): PartitionState.PAUSED,
    (PartitionState.PAUSED, PartitionChange.RESUMED): PartitionState.QUEUED,
    (PartitionState.PAUSED, PartitionChange.WITHDRAWN): PartitionState.SCHEDULED,
    (PartitionState.RUNNING, PartitionChange.HELD): PartitionState.HELD,
    (PartitionState.HELD, PartitionChange.SOURCES_PUBLISHED): PartitionState.QUEUED,
    (PartitionState.HELD, PartitionChange.WITHDRAWN): PartitionState.SCHEDULED,
    (PartitionState.RUNNING, PartitionChange.QUERY_STOPPED): PartitionState.SCHEDULED,
    (PartitionState.RUNNING, PartitionChange.REFUSED): PartitionState.STOPPED,
    (PartitionState.RUNNING, PartitionChange.END_PROVED): PartitionState.FINISHED,
    (PartitionState.FINISHED, PartitionChange.MARKER_COMMITTED): PartitionState.GONE,
}

_State = TypeVar("_State", SlotPhase, PartitionState)
_Change = TypeVar("_Change", SlotChange, PartitionChange)


def transition(
    table: Mapping[tuple[_State, _Change], _State],
    state: _State,
    change: _Change,
    **subject: Any,
) -> _State:
    """Return the next state; raises InvariantViolation, naming `subject`, if there is none."""
    try:
        return table[state, change]
    except KeyError:
        raise InvariantViolation(
            f"unexpected change in state {state.name}: {change.value}", **subject
        ) from None
