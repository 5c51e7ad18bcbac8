"""The metrics of the consumer."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tidegate.program.metrics import Metric, Metrics

__all__ = ["METRICS", "ConsumerMetrics", "CounterName", "GaugeName", "consumer_metrics"]

CounterName: TypeAlias = Literal[
    "released_changes_total",
    "releases_total",
    "late_changes_total",
    "copies_total",
    "mismatches_total",
]
GaugeName: TypeAlias = Literal[
    "watermark_seconds",
    "waiting_changes",
    "waiting_segments",
    "waiting_snapshots",
    "mirror_releases_behind",
    "accepted_gaps",
    "finished_stream_partitions",
    "batch_seconds",
    "batch_input_rows",
]

METRICS: tuple[Metric, ...] = (
    Metric("watermark_seconds", "gauge", "Released up to this commit time (seconds since 1970)"),
    Metric("released_changes_total", "counter", "Changes released since this process started"),
    Metric("releases_total", "counter", "Releases written since this process started"),
    Metric("late_changes_total", "counter", "Changes set aside as late since this process started"),
    Metric("copies_total", "counter", "Records left out since start: they repeat a change"),
    Metric("mismatches_total", "counter", "Transactions released since start that are not whole"),
    Metric("waiting_changes", "gauge", "Changes in segments, partly released segments included"),
    Metric("waiting_segments", "gauge", "Segments that hold changes above the watermark"),
    Metric("waiting_snapshots", "gauge", "Snapshots of slots that are read and not in effect"),
    Metric("mirror_releases_behind", "gauge", "Releases that the mirrors have yet to take"),
    Metric("accepted_gaps", "gauge", "Accepted gaps below the watermark: what the output lacks"),
    Metric("finished_stream_partitions", "gauge", "Completion markers read in this epoch"),
    Metric("batch_seconds", "gauge", "Duration of the last batch"),
    Metric("batch_input_rows", "gauge", "Rows read by the last batch, progress rows included"),
)

ConsumerMetrics: TypeAlias = Metrics[CounterName, GaugeName]


def consumer_metrics() -> ConsumerMetrics:
    """Return the metrics of one process, each at 0."""
    return Metrics("tidegate_consumer", METRICS)
