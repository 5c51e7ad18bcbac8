"""A stream's status as tables for a terminal of 100 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.lineage.fleet_status import FleetStatus, PartitionCondition, PartitionStatus
from tidegate.producer.cli.status import BackfillProgress, StreamStatus, WorkerCounts, lag_s
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339

_S_PER_HOUR = 3_600


def status_table(found: StreamStatus, *, slowest: int) -> RenderableType:
    """Return what `status` prints; `slowest` is how many stream partitions are listed."""
    fleet, now_us = found.fleet, found.now_us
    if fleet is None:
        return f"{found.state.value}: {escape(found.reason)}"
    parts: list[RenderableType] = [
        f"stream {escape(fleet.stream)}, epoch {escape(fleet.epoch)}",
        _summary(found, fleet),
        *([] if found.backfill is None else [_backfill(found.backfill)]),
        _by_worker(found, fleet),
    ]
    if fleet.partitions[:slowest]:
        parts.append(_slowest(fleet, slowest, now_us))
    stopped = [one for one in fleet.partitions if one.reason is not None]
    if stopped:
        parts.append(_errors(stopped, slowest))
    if aside := [one for one in fleet.partitions if one.parked]:
        parts.append(_set_aside(aside, slowest))
    if fleet.gaps:
        parts.append(_gaps(fleet))
    if found.workers:
        parts.append(_metrics(found.workers))
        if any(one.retried for one in found.workers):
            parts.append(_retried(found.workers, slowest))
    return Group(*parts)


def behind(watermark_us: int | None, now_us: int) -> str:
    """Return a watermark's lag in words."""
    lag = lag_s(watermark_us, now_us=now_us)
    return "unknown" if lag is None else f"{lag:.1f} s"


def _summary(found: StreamStatus, fleet: FleetStatus) -> str:
    watermark = f"the watermark is behind by {behind(fleet.watermark_us, found.now_us)}"
    rate = found.changes_a_second
    return "; ".join(
        [
            _state(found, fleet),
            f"{len(found.members)} worker{'' if len(found.members) == 1 else 's'}",
            f"{len(fleet.partitions)} stream partitions are open",
            "the stream has ended" if fleet.has_ended else watermark,
            *([] if rate is None else [f"{rate:,.0f} changes a second"]),
        ]
    )


def _backfill(found: BackfillProgress) -> str:
    share = found.published / found.rows if found.rows else 1.0
    text = f"backfill: {found.published:,} of {found.rows:,} rows are published ({share:.0%})"
    if found.seconds_left is None:
        return text
    return f"{text}; about {found.seconds_left:,.0f} s are left"


def _state(found: StreamStatus, fleet: FleetStatus) -> str:
    """Return the state, since when at least, and who has paused the stream."""
    text = found.state.value
    if found.since_us is not None:
        text += f" since {format_rfc3339(found.since_us * NS_PER_US)}"
    if fleet.control is None or not fleet.is_to_pause:
        return text
    paused = format_rfc3339(fleet.control.at_us * NS_PER_US)
    return f"{text} (paused by {escape(fleet.control.by)} at {paused})"


def _slowest(fleet: FleetStatus, slowest: int, now_us: int) -> Table:
    table = Table("token", "slot", "worker", "state", "behind", title="Slowest")
    for one in fleet.partitions[:slowest]:
        table.add_row(
            escape(one.token), str(one.slot), escape(one.worker),
            one.condition.value, behind(one.watermark_us, now_us),
        )  # fmt: skip
    return table


def _errors(stopped: Sequence[PartitionStatus], rows_max: int) -> Table:
    """Return when each error stopped a stream partition, which one, and what to do.

    Stream partitions that are stopped by equal errors share a row, which names the slowest.
    """
    alike: dict[tuple[str | None, str | None], list[PartitionStatus]] = {}
    for one in stopped:
        alike.setdefault((one.error, one.reason), []).append(one)
    table = Table("since", "error", "stream partition", "what, and what to do", title="Errors")
    for (error, reason), partitions in islice(alike.items(), rows_max):
        since_us = [one.stopped_since_us for one in partitions if one.stopped_since_us is not None]
        others = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
        table.add_row(
            format_rfc3339(min(since_us) * NS_PER_US) if since_us else "unknown",
            escape(error or "unknown"),
            escape(partitions[0].token) + others,
            escape(reason or ""),
        )
    if len(alike) > rows_max:
        table.caption = f"{len(alike) - rows_max} more errors: --slowest, or --json"
    return table


def _set_aside(partitions: Sequence[PartitionStatus], rows_max: int) -> Table:
    """Return how many changes of each stream partition are in the dead-letter topic."""
    table = Table("stream partition", "worker", "in the dead-letter topic", title="Set aside")
    most = sorted(partitions, key=lambda one: -one.parked)
    for one in most[:rows_max]:
        table.add_row(escape(one.token), escape(one.worker), f"{one.parked:,}")
    if len(most) > rows_max:
        table.caption = f"{len(most) - rows_max} more: --slowest, or --json"
    return table


def _gaps(fleet: FleetStatus) -> Table:
    accepted = Table("token", "from", "until", "accepted by", title="Accepted gaps")
    for gap in fleet.gaps:
        bounds = (format_rfc3339(us * NS_PER_US) for us in (gap.from_us, gap.until_us))
        accepted.add_row(escape(gap.token), *bounds, escape(gap.accepted_by))
    return accepted


def _by_worker(found: StreamStatus, fleet: FleetStatus) -> Table:
    """Return what each worker owns, by the newest heartbeats of the slots; `--json` has all slots.

    A worker without slots is idle.
    """
    conditions = (PartitionCondition.OPEN, PartitionCondition.WAITING, PartitionCondition.STOPPED)
    table = Table("worker", "slots", *(one.value for one in conditions), "behind", title="Workers")
    for worker in sorted({*found.members, *(slot.worker for slot in fleet.slots)}):
        own = [slot for slot in fleet.slots if slot.worker == worker]
        marks = [slot.watermark_us for slot in own if slot.watermark_us is not None]
        counts = Counter(one.condition for one in fleet.partitions if one.worker == worker)
        table.add_row(
            escape(worker) or "no heartbeat yet",
            str(len(own)),
            *(str(counts[one]) for one in conditions),
            behind(min(marks), found.now_us) if marks else "",
        )
    return table


def _metrics(workers: Sequence[WorkerCounts]) -> Table:
    headings = ("metrics of", "reads", "queued", "paused", "held", "stopped", "expires in")
    table = Table(*headings, title="Metrics")
    for one in workers:
        counts = (one.running, one.queued, one.paused, one.held, one.stopped)
        shown = ["unknown" if count is None else str(count) for count in counts]
        left_s = one.retention_headroom_s
        shown.append("unknown" if left_s is None else f"{left_s / _S_PER_HOUR:.1f} h")
        table.add_row(escape(f"{one.address}: {one.error}" if one.error else one.address), *shown)
    return table


def _retried(workers: Sequence[WorkerCounts], rows_max: int) -> Table:
    """Return what workers have retried since they started, the newest first."""
    table = Table("times", "first", "last", "error", "of", "what, and what to do", title="Retried")
    found = [(one, worker) for worker in workers for one in worker.retried or ()]
    found.sort(key=lambda pair: -pair[0].last_us)
    for one, worker in found[:rows_max]:
        table.add_row(
            f"{one.count:,}",
            *(_second(us) for us in (one.first_us, one.last_us)),
            escape(one.error),
            escape(one.subject or worker.address),
            escape(one.text if one.remedy in one.text else f"{one.text}. {one.remedy}"),
        )
    left = len(found) - rows_max
    dropped = sum(worker.retried_dropped for worker in workers)
    captions = [f"{left} more: --slowest, or --json"] if left > 0 else []
    captions += [f"{dropped} older ones were dropped"] if dropped else []
    table.caption = "; ".join(captions) or None
    return table


def _second(us: int) -> str:
    return format_rfc3339(us // US_PER_SECOND * US_PER_SECOND * NS_PER_US)
