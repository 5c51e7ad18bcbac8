"""What the progress topic says of a stream now: its slots and stream partitions, slowest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tidegate.lineage.errors import read_stop
from tidegate.lineage.fleet_view import FleetView
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    ControlState,
    PartitionGap,
    StreamControl,
    StreamStarted,
    TokenSnapshot,
)


class PartitionCondition(StrEnum):
    """What a slot's heartbeats say of a stream partition."""

    OPEN = "open"
    """Read, or about to be read, by the slot's owner."""
    WAITING = "waiting"
    """For parents that have not finished."""
    STOPPED = "stopped"
    """By an error; it holds its watermark."""
    FINISHED = "finished"
    """It has published all that it brought."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One stream partition that has not finished."""

    token: str
    slot: int
    worker: str
    """Who wrote the slot's newest heartbeat."""
    condition: PartitionCondition
    watermark_us: int
    reason: str | None
    """Why it stopped."""
    stopped_since_us: int | None = None
    """When a heartbeat first said so, to the minute, as far as the topic still holds it."""
    error: str | None = None
    """The class of the error that stopped it; None where an older version wrote the heartbeat."""
    parked: int = 0
    """How many of its changes, or events of files, are in the dead-letter topic."""


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One slot."""

    slot: int
    worker: str
    """Who wrote its newest heartbeat; empty without one."""
    version: int
    """That heartbeat's version; 0 without one."""
    open: int
    """Stream partitions that have not finished."""
    watermark_us: int | None
    """The lowest of them; None without one, or while the slot is not known."""
    is_paused: bool = False
    """Whether an owner of it obeys the pause that holds: no query of it runs."""
    heard_us: int | None = None
    """When its newest heartbeat was written, to the minute."""
    steady_since_us: int | None = None
    """Since when, at least, it has a heartbeat each minute and nothing of it is stopped."""
    empty_since_us: int | None = None
    """Since when it has no stream partition; None while it has any."""


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """One stream."""

    stream: str
    epoch: str
    watermark_us: int | None
    """Everything up to here is in Kafka; None while a slot has no heartbeat."""
    has_ended: bool
    """Whether a bounded stream has no stream partition left."""
    slots: tuple[SlotStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    """The slowest first."""
    gaps: tuple[PartitionGap, ...] = ()
    """Accepted losses of changes that expired unread, by time."""
    control: StreamControl | None = None
    """What an operator wanted last; None if none has said anything."""

    @property
    def is_to_pause(self) -> bool:
        """Whether an operator has paused the stream."""
        return self.control is not None and self.control.state is ControlState.PAUSED

    @property
    def is_paused(self) -> bool:
        """Whether the stream is paused and all that was read of it is published."""
        return self.is_to_pause and all(slot.is_paused for slot in self.slots)


def fleet_status(view: FleetView, started: StreamStarted, *, epoch: str) -> FleetStatus:
    """Return the status as of what was folded: up to date where slots were read to their ends."""
    partitions = tuple(sorted(_partitions(view), key=lambda one: (one.watermark_us, one.token)))
    slots = tuple(_slot(view, number) for number in range(len(view.slots)))
    lowest_us = min((s.watermark_us for s in slots if s.watermark_us is not None), default=None)
    has_ended = view.is_complete and lowest_us is None and started.end_ns is not None
    if has_ended and started.end_ns is not None:
        lowest_us = started.end_ns // NS_PER_US
    return FleetStatus(
        stream=started.stream,
        epoch=epoch,
        watermark_us=lowest_us if view.is_complete else None,
        has_ended=has_ended,
        slots=slots,
        partitions=partitions,
        gaps=view.gaps,
        control=view.control,
    )


def _partitions(view: FleetView) -> Iterator[PartitionStatus]:
    for number, slot in enumerate(view.slots):
        for token in (slot.tokens or {}).values():
            stop = None if token.stopped is None else read_stop(token.stopped)
            yield PartitionStatus(
                token=token.token,
                slot=number,
                worker=slot.worker,
                condition=condition_of(token),
                watermark_us=token.watermark_us,
                reason=None if stop is None else stop.text,
                stopped_since_us=slot.stopped_since_us(token.token),
                error=None if stop is None else stop.kind,
                parked=token.parked,
            )


def condition_of(token: TokenSnapshot) -> PartitionCondition:
    """Return what a heartbeat says of a stream partition that has not finished."""
    if token.stopped is not None:
        return PartitionCondition.STOPPED
    is_waiting = not set(token.parents) <= set(token.parents_heard)
    return PartitionCondition.WAITING if is_waiting else PartitionCondition.OPEN


def _slot(view: FleetView, number: int) -> SlotStatus:
    slot = view.slots[number]
    tokens = slot.tokens or {}
    announced_us = view.announced_us(number)
    lowest = [token.watermark_us for token in tokens.values()]
    lowest += [] if announced_us is None else [announced_us]
    control = view.control
    return SlotStatus(
        number, slot.worker, slot.version, len(tokens), min(lowest, default=None),
        is_paused=control is not None
        and control.state is ControlState.PAUSED
        and slot.paused_by == control.number,
        heard_us=slot.heard_us,
        steady_since_us=slot.steady_since_us,
        empty_since_us=slot.empty_since_us,
    )  # fmt: skip
