"""The life of each stream partition: from when to when, how far it is, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from tidegate.lineage.fleet_status import FleetStatus, PartitionCondition
from tidegate.lineage.lineage_graph import LineageGraph
from tidegate.schemas.instants import US_PER_SECOND

_SLOW_US = 10 * US_PER_SECOND
_TIMES_MEDIAN = 3


class Kind(StrEnum):
    """What a picture shows of a stream partition, the worst first."""

    STOPPED = "stopped"
    SLOW = "slow"
    """Open, more than ten seconds behind, and more than three times the median of the open ones."""
    WAITING = "waiting"
    OPEN = "open"
    FINISHED = "finished"


WORST_FIRST = {kind: rank for rank, kind in enumerate(Kind)}


@dataclass(frozen=True, slots=True)
class Life:
    """One stream partition."""

    token: str
    slot: int
    parents: tuple[str, ...]
    kind: Kind
    start_us: int
    end_us: int | None
    """None while it has not finished."""
    watermark_us: int | None
    """None where it has finished, or was announced just now."""
    worker: str = ""
    reason: str = ""
    """Why it stopped."""

    def ends_us(self, now_us: int) -> int:
        """Return where its line ends: now, while it has not finished."""
        return now_us if self.end_us is None else self.end_us


def lives(graph: LineageGraph, fleet: FleetStatus, *, now_us: int) -> tuple[Life, ...]:
    """Return the lives of a graph's stream partitions, in its order."""
    status_of = {status.token: status for status in fleet.partitions}
    lags_us = [
        now_us - relative.watermark_us
        for relative in graph.partitions
        if relative.watermark_us is not None and relative.condition is PartitionCondition.OPEN
    ]
    slow_us = max(_SLOW_US, _TIMES_MEDIAN * median(lags_us)) if lags_us else _SLOW_US
    drawn = []
    for relative in graph.partitions:
        status = status_of.get(relative.token)
        kind = Kind(relative.condition.value)
        mark_us = relative.watermark_us
        if kind is Kind.OPEN and mark_us is not None and now_us - mark_us > slow_us:
            kind = Kind.SLOW
        drawn.append(
            Life(
                token=relative.token,
                slot=relative.slot,
                parents=relative.parents,
                kind=kind,
                start_us=relative.start_us,
                end_us=relative.end_us,
                watermark_us=mark_us,
                worker="" if status is None else status.worker,
                reason="" if status is None else status.reason or "",
            )
        )
    return tuple(drawn)
