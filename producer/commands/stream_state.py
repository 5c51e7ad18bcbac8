"""The state of a stream as a whole, with the names that Datastream gives to its own."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from tidegate.lineage.errors import is_expired
from tidegate.lineage.fleet_status import FleetStatus


class StreamState(StrEnum):
    """What a stream does now; the first that holds, in this order."""

    NOT_STARTED = "Not started"
    """No worker has opened it."""
    ENDED = "Ended"
    """A bounded stream has published everything; Datastream has no such state."""
    FAILED_PERMANENTLY = "Failed permanently"
    """Changes of a stream partition expired unread: somebody has to accept the loss."""
    FAILED = "Failed"
    """A stream partition is stopped by an error; the others go on."""
    PAUSED = "Paused"
    """No worker is in the group; or an operator has paused the stream, and all of it is published.
    """
    DRAINING = "Draining"
    """An operator has paused the stream, and workers publish what they have read."""
    STARTING = "Starting"
    """Workers are there, and some slot has no heartbeat yet."""
    RUNNING = "Running"
    """Workers read every stream partition that can be read."""


def stream_state(found: FleetStatus | None, members: Collection[str]) -> StreamState:
    """Return the state of a stream, None of one that has not begun.

    `members` are the workers in its group.
    """
    if found is None:
        return StreamState.NOT_STARTED
    reasons = [one.reason for one in found.partitions if one.reason is not None]
    if found.has_ended:
        return StreamState.ENDED
    if any(map(is_expired, reasons)):
        return StreamState.FAILED_PERMANENTLY
    if reasons:
        return StreamState.FAILED
    if not members or found.is_paused:
        return StreamState.PAUSED
    if found.is_to_pause:
        return StreamState.DRAINING
    return StreamState.STARTING if found.watermark_us is None else StreamState.RUNNING
