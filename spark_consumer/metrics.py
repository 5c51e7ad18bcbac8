"""The metrics of the consumer."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tidegate.program.status_server import Metric, Metrics

CounterName: TypeAlias = Literal[
    "released_changes_total",
    "releases_total",
    "late_changes_total",
    "dead_letters_total",
    "copies_total",
    "mismatches_total",
    "batches_total",
    "batch_phase_seconds_total",
    "sink_releases_total",
    "sink_changes_total",
    "sink_seconds_total",
]
GaugeName: TypeAlias = Literal[
    "watermark_timestamp_seconds",
    "watermark_lag_seconds",
    "waiting_changes",
    "waiting_segments",
    "waiting_snapshots",
    "mirror_releases_behind",
    "accepted_gaps",
    "finished_stream_partitions",
    "batch_input_rows",
    "sink_release",
]
HistogramName: TypeAlias = Literal["commit_to_release_seconds", "batch_duration_seconds"]

METRICS: tuple[Metric, ...] = (
    Metric(
        "watermark_timestamp_seconds",
        "gauge",
        "Released up to this commit time (seconds since 1970)",
    ),
    Metric(
        "watermark_lag_seconds", "gauge", "Age of that time, at the scrape; NaN before the first"
    ),
    Metric(
        "commit_to_release_seconds",
        "histogram",
        "From a change's commit in Spanner to the end of the batch that released it: of each"
        " portion of changes that a release has, 64 by evenly spaced quantiles, or all if there are"
        " fewer; a mirror may take a release later",
    ),
    Metric("released_changes_total", "counter", "Changes released since this process started"),
    Metric("releases_total", "counter", "Releases written since this process started"),
    Metric("late_changes_total", "counter", "Changes set aside as late since this process started"),
    Metric("dead_letters_total", "counter", "Records set aside since start: they are no changes"),
    Metric("copies_total", "counter", "Records left out since start: they repeat a change"),
    Metric("mismatches_total", "counter", "Transactions released since start that are not whole"),
    Metric("waiting_changes", "gauge", "Changes in segments, partly released segments included"),
    Metric("waiting_segments", "gauge", "Segments that hold changes above the watermark"),
    Metric("waiting_snapshots", "gauge", "Snapshots of slots that are read and not in effect"),
    Metric("mirror_releases_behind", "gauge", "Releases that the mirrors have yet to take"),
    Metric("accepted_gaps", "gauge", "Accepted gaps below the watermark: what the output lacks"),
    Metric("finished_stream_partitions", "gauge", "Completion markers read in this epoch"),
    Metric("batches_total", "counter", "Batches ended since this process started"),
    Metric(
        "batch_phase_seconds_total",
        "counter",
        "Time of ended batches by phase: `load`, `plan`, `late`, `release` (a release is read and"
        " counted), `sinks`, `manifest`, `pending`, `state`, …; `spark-…`: what Spark does around"
        " a batch, by its own names",
        ("phase",),
    ),
    Metric("batch_duration_seconds", "histogram", "Duration of a batch, as Spark measures it"),
    Metric("batch_input_rows", "gauge", "Rows read by the last batch, progress rows included"),
    Metric("sink_release", "gauge", "The newest release that a sink has; -1: none", ("sink",)),
    Metric("sink_releases_total", "counter", "Releases that a sink took since start", ("sink",)),
    Metric(
        "sink_changes_total",
        "counter",
        "Changes of these releases; unknown for those that an earlier process wrote before a mirror"
        " took them",
        ("sink",),
    ),
    Metric("sink_seconds_total", "counter", "Time that a sink needed for them", ("sink",)),
)

ConsumerMetrics: TypeAlias = Metrics[CounterName, GaugeName, HistogramName]


def consumer_metrics() -> ConsumerMetrics:
    """Return the metrics of one process, each at 0."""
    return Metrics("tidegate_consumer", METRICS)
