"""A status in short: by worker, by error, by fault; for a terminal and for the console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.cli.status import StreamStatus, WorkerCounts
from tidegate.producer.observation.faults import RetriedFault


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """One worker's part of the stream, by the newest heartbeats of its slots."""

    name: str
    """Empty for slots without a heartbeat."""
    is_member: bool
    """Whether it is in the group."""
    slots: tuple[SlotStatus, ...]
    """Empty: it is idle."""
    counts: Mapping[PartitionCondition, int]
    """Its stream partitions; a condition that none has counts 0."""
    watermark_us: int | None
    """The lowest of its slots."""


def worker_shares(status: StreamStatus, fleet: FleetStatus) -> list[WorkerShare]:
    """Return the share of each worker, by name."""
    counts: dict[str, Counter[PartitionCondition]] = {}
    for entry in fleet.partitions:
        counts.setdefault(entry.worker, Counter())[entry.condition] += 1
    shares = []
    for worker in sorted({*status.members, *(slot.worker for slot in fleet.slots)}):
        slots = tuple(slot for slot in fleet.slots if slot.worker == worker)
        marks = [slot.watermark_us for slot in slots if slot.watermark_us is not None]
        shares.append(
            WorkerShare(
                name=worker,
                is_member=worker in status.members,
                slots=slots,
                counts=counts.get(worker, Counter()),
                watermark_us=min(marks, default=None),
            )
        )
    return shares


@dataclass(frozen=True, slots=True)
class StoppingError:
    """An error, and the stream partitions that it has stopped."""

    error: str
    reason: str
    """What happened, and what to do."""
    count: int
    slowest: str
    """The token of the stream partition with the lowest watermark."""
    since_us: int | None
    """When the first of them stopped; None if no record says it."""


def stopping_errors(partitions: Iterable[PartitionStatus]) -> list[StoppingError]:
    """Return each error once; the stream partitions are given with the slowest first."""
    alike: dict[tuple[str | None, str], list[PartitionStatus]] = {}
    for entry in partitions:
        if entry.reason is not None:
            alike.setdefault((entry.error, entry.reason), []).append(entry)
    return [
        StoppingError(
            error=error or "unknown",
            reason=reason,
            count=len(entries),
            slowest=entries[0].token,
            since_us=min(
                (entry.stopped_since_us for entry in entries if entry.stopped_since_us is not None),
                default=None,
            ),
        )
        for (error, reason), entries in alike.items()
    ]


def newest_faults(workers: Iterable[WorkerCounts]) -> list[tuple[RetriedFault, WorkerCounts]]:
    """Return what workers have retried since they started, the newest first."""
    faults = [(fault, worker) for worker in workers for fault in worker.retried or ()]
    return sorted(faults, key=lambda pair: -pair[0].last_us)
