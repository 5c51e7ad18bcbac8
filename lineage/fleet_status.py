"""The current state of a stream from its progress topic: its slots and stream partitions."""

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
    """The condition of a stream partition in its slot's heartbeats."""

    OPEN = "open"
    """Its slot's owner reads it, or is about to."""
    WAITING = "waiting"
    """It waits for parents that have not finished."""
    STOPPED = "stopped"
    """An error has stopped it; it holds its watermark."""
    FINISHED = "finished"
    """It has published all its changes."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One stream partition that has not finished."""

    token: str
    slot: int
    worker: str
    """The worker that wrote the slot's newest heartbeat."""
    condition: PartitionCondition
    watermark_us: int
    reason: str | None
    """Why it stopped; None unless it is stopped."""
    stopped_since_us: int | None = None
    """When a heartbeat first reported the stop, to the minute, as far as the topic still has it."""
    error: str | None = None
    """The class of the error that stopped it; None where an older version wrote the heartbeat."""
    parked: int = 0
    """Number of its changes, or events of files, in the dead-letter topic."""


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """One slot."""

    slot: int
    worker: str
    """The worker that wrote its newest heartbeat; empty without a heartbeat."""
    version: int
    """The version of its newest heartbeat; 0 without a heartbeat."""
    open: int
    """Number of stream partitions that have not finished."""
    watermark_us: int | None
    """The lowest watermark of its stream partitions; None without any, or for an unknown slot."""
    is_paused: bool = False
    """Whether the slot's owner has paused it for the current pause: no query of it runs."""
    heard_us: int | None = None
    """When its newest heartbeat was written, to the minute."""
    steady_since_us: int | None = None
    """The slot has had a heartbeat each minute, and nothing stopped, since this time or longer."""
    empty_since_us: int | None = None
    """Since when it has had no stream partition; None while it has any."""


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
    """Accepted gaps of changes that expired unread, by time."""
    control: StreamControl | None = None
    """The last control request of an operator; None if there was none."""

    @property
    def is_to_pause(self) -> bool:
        """Whether an operator has paused the stream."""
        return self.control is not None and self.control.state is ControlState.PAUSED

    @property
    def is_paused(self) -> bool:
        """Whether the stream is paused and all read changes are published."""
        return self.is_to_pause and all(slot.is_paused for slot in self.slots)


def fleet_status(view: FleetView, started: StreamStarted, *, epoch: str) -> FleetStatus:
    """Return the status as of the folded records: current if the slots were read to their ends."""
    partitions = tuple(
        sorted(_partitions(view), key=lambda partition: (partition.watermark_us, partition.token))
    )
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
    """Return the condition of a stream partition that has not finished, from its heartbeat."""
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
