"""Since when a stream is in its state, as far as its records prove it.

Nothing stores a state, and compaction removes old heartbeats: so the answer is a time since which
the state holds at least.  Heartbeats have minutes, by the clocks of the workers that wrote them;
an operator's commands have the time at which they were given.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.lineage.errors import is_expired
from tidegate.lineage.fleet_status import FleetStatus
from tidegate.producer.commands.stream_state import StreamState


def state_since(found: FleetStatus, state: StreamState) -> int | None:
    """Return since when, at least, a stream is in the state that was derived of it.

    `Paused` and `Draining` count from the operator's command; `Paused` without one from the newest
    heartbeat, as the group does not say when its last member left.
    """
    match state:
        case StreamState.FAILED_PERMANENTLY:
            return _stopped(found, is_expired_only=True)
        case StreamState.FAILED:
            return _stopped(found, is_expired_only=False)
        case StreamState.ENDED:
            return _latest(slot.empty_since_us for slot in found.slots)
        case StreamState.RUNNING:
            return _latest((*_steady(found), *_commanded(found)))
        case StreamState.STARTING:
            # Some slot had no heartbeat for all of the time in which another one had.
            known = [at_us for at_us in _steady(found) if at_us is not None]
            return _latest((*([min(known)] if known else []), *_commanded(found)))
        case StreamState.PAUSED if not found.is_to_pause:
            heard = [slot.heard_us for slot in found.slots if slot.heard_us is not None]
            return max(heard, default=None)
        case _:
            return _latest(_commanded(found))


def _stopped(found: FleetStatus, *, is_expired_only: bool) -> int | None:
    times = [
        one.stopped_since_us
        for one in found.partitions
        if one.reason is not None and (is_expired(one.reason) or not is_expired_only)
    ]
    return min((at_us for at_us in times if at_us is not None), default=None)


def _steady(found: FleetStatus) -> list[int | None]:
    return [slot.steady_since_us for slot in found.slots]


def _commanded(found: FleetStatus) -> list[int]:
    return [] if found.control is None else [found.control.at_us]


def _latest(times: Iterable[int | None]) -> int | None:
    """Return the latest time; None if one is not known, or there is none."""
    known: list[int] = []
    for at_us in times:
        if at_us is None:
            return None
        known.append(at_us)
    return max(known, default=None)
