"""A stream's status as tables for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.lineage.fleet_status import FleetStatus, PartitionCondition, PartitionStatus
from tidegate.producer.cli.fleet_summary import newest_faults, stopping_errors, worker_shares
from tidegate.producer.cli.status import BackfillProgress, StreamStatus, WorkerCounts, lag_s
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339

_S_PER_HOUR = 3_600


def status_table(status: StreamStatus, *, slowest: int) -> RenderableType:
    """Return the output of `status`; `slowest` is the number of listed stream partitions."""
    fleet, now_us = status.fleet, status.now_us
    if fleet is None:
        return f"{status.state.value}: {escape(status.reason)}"
    parts: list[RenderableType] = [
        f"stream {escape(fleet.stream)}, epoch {escape(fleet.epoch)}",
        _summary(status, fleet),
        *([] if status.backfill is None else [_backfill(status.backfill)]),
        _by_worker(status, fleet),
    ]
    if fleet.partitions[:slowest]:
        parts.append(_slowest(fleet, slowest, now_us))
    stopped = [entry for entry in fleet.partitions if entry.reason is not None]
    if stopped:
        parts.append(_errors(stopped, slowest))
    if aside := [entry for entry in fleet.partitions if entry.parked]:
        parts.append(_set_aside(aside, slowest))
    if fleet.gaps:
        parts.append(_gaps(fleet))
    if status.workers:
        parts.append(_metrics(status.workers))
        if any(worker.retried for worker in status.workers):
            parts.append(_retried(status.workers, slowest))
    return Group(*parts)


def lag_text(watermark_us: int | None, now_us: int) -> str:
    """Return a watermark's lag as text."""
    lag = lag_s(watermark_us, now_us=now_us)
    return "unknown" if lag is None else f"{lag:.1f} s"


def _summary(status: StreamStatus, fleet: FleetStatus) -> str:
    watermark = f"the watermark is behind by {lag_text(fleet.watermark_us, status.now_us)}"
    rate = status.changes_a_second
    return "; ".join(
        [
            _state(status, fleet),
            f"{len(status.members)} worker{'' if len(status.members) == 1 else 's'}",
            f"{len(fleet.partitions)} stream partitions are open",
            "the stream has ended" if fleet.has_ended else watermark,
            *([] if rate is None else [f"{rate:,.0f} changes a second"]),
        ]
    )


def _backfill(progress: BackfillProgress) -> str:
    share = progress.published / progress.rows if progress.rows else 1.0
    text = f"backfill: {progress.published:,} of {progress.rows:,} rows are published ({share:.0%})"
    if progress.seconds_left is None:
        return text
    return f"{text}; about {progress.seconds_left:,.0f} s are left"


def _state(status: StreamStatus, fleet: FleetStatus) -> str:
    """Return the state, its least duration, and who has paused the stream."""
    text = status.state.value
    if status.since_us is not None:
        text += f" since {format_rfc3339(status.since_us * NS_PER_US)}"
    if fleet.control is None or not fleet.is_to_pause:
        return text
    paused = format_rfc3339(fleet.control.at_us * NS_PER_US)
    return f"{text} (paused by {escape(fleet.control.by)} at {paused})"


def _slowest(fleet: FleetStatus, slowest: int, now_us: int) -> Table:
    table = Table("token", "slot", "worker", "state", "behind", title="Slowest")
    for entry in fleet.partitions[:slowest]:
        table.add_row(
            escape(entry.token), str(entry.slot), escape(entry.worker),
            entry.condition.value, lag_text(entry.watermark_us, now_us),
        )  # fmt: skip
    return table


def _errors(stopped: Sequence[PartitionStatus], rows_max: int) -> Table:
    """Return a table of the errors that stopped stream partitions, with times and remedies.

    Stream partitions that equal errors have stopped share a row, which names the slowest.
    """
    errors = stopping_errors(stopped)
    table = Table("since", "error", "stream partition", "what, and what to do", title="Errors")
    for stop in errors[:rows_max]:
        remainder = f" and {stop.count - 1} more" if stop.count > 1 else ""
        table.add_row(
            "unknown" if stop.since_us is None else format_rfc3339(stop.since_us * NS_PER_US),
            escape(stop.error),
            escape(stop.slowest) + remainder,
            escape(stop.reason),
        )
    if len(errors) > rows_max:
        table.caption = f"{len(errors) - rows_max} more errors: --slowest, or --json"
    return table


def _set_aside(partitions: Sequence[PartitionStatus], rows_max: int) -> Table:
    """Return the number of each stream partition's changes in the dead-letter topic."""
    table = Table("stream partition", "worker", "in the dead-letter topic", title="Set aside")
    most = sorted(partitions, key=lambda entry: -entry.parked)
    for entry in most[:rows_max]:
        table.add_row(escape(entry.token), escape(entry.worker), f"{entry.parked:,}")
    if len(most) > rows_max:
        table.caption = f"{len(most) - rows_max} more: --slowest, or --json"
    return table


def _gaps(fleet: FleetStatus) -> Table:
    accepted = Table("token", "from", "until", "accepted by", title="Accepted gaps")
    for gap in fleet.gaps:
        bounds = (format_rfc3339(us * NS_PER_US) for us in (gap.from_us, gap.until_us))
        accepted.add_row(escape(gap.token), *bounds, escape(gap.accepted_by))
    return accepted


def _by_worker(status: StreamStatus, fleet: FleetStatus) -> Table:
    """Return the slots of each worker, by their newest heartbeats; `--json` has all slots.

    A worker without slots is idle.
    """
    conditions = (PartitionCondition.OPEN, PartitionCondition.WAITING, PartitionCondition.STOPPED)
    table = Table(
        "worker", "slots", *(condition.value for condition in conditions), "behind", title="Workers"
    )
    for share in worker_shares(status, fleet):
        mark_us = share.watermark_us
        table.add_row(
            escape(share.name) or "no heartbeat yet",
            str(len(share.slots)),
            *(str(share.counts.get(condition, 0)) for condition in conditions),
            "" if mark_us is None else lag_text(mark_us, status.now_us),
        )
    return table


def _metrics(workers: Sequence[WorkerCounts]) -> Table:
    headings = ("metrics of", "reads", "queued", "paused", "held", "stopped", "expires in")
    table = Table(*headings, title="Metrics")
    for worker in workers:
        counts = (worker.running, worker.queued, worker.paused, worker.held, worker.stopped)
        shown = ["unknown" if count is None else str(count) for count in counts]
        left_s = worker.retention_headroom_s
        shown.append("unknown" if left_s is None else f"{left_s / _S_PER_HOUR:.1f} h")
        table.add_row(
            escape(f"{worker.address}: {worker.error}" if worker.error else worker.address), *shown
        )
    return table


def _retried(workers: Sequence[WorkerCounts], rows_max: int) -> Table:
    """Return the faults that workers have retried since they started, the newest first."""
    table = Table("times", "first", "last", "error", "of", "what, and what to do", title="Retried")
    faults = newest_faults(workers)
    for fault, worker in faults[:rows_max]:
        table.add_row(
            f"{fault.count:,}",
            *(_second(us) for us in (fault.first_us, fault.last_us)),
            escape(fault.error),
            escape(fault.subject or worker.address),
            escape(fault.text if fault.remedy in fault.text else f"{fault.text}. {fault.remedy}"),
        )
    left = len(faults) - rows_max
    dropped = sum(worker.retried_dropped for worker in workers)
    captions = [f"{left} more: --slowest, or --json"] if left > 0 else []
    captions += [f"{dropped} older ones were dropped"] if dropped else []
    table.caption = "; ".join(captions) or None
    return table


def _second(us: int) -> str:
    return format_rfc3339(us // US_PER_SECOND * US_PER_SECOND * NS_PER_US)
