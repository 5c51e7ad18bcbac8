"""The consumer's metrics: a closed set of names, each with its kind and meaning.

No label is ever a partition token: splits make them without number.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

__all__ = ["METRICS", "MetricName", "Metrics"]

MetricName: TypeAlias = Literal[
    "watermark_seconds",
    "released_changes_total",
    "releases_total",
    "late_changes_total",
    "waiting_changes",
    "waiting_segments",
    "waiting_snapshots",
    "finished_stream_partitions",
    "batch_seconds",
    "batch_input_rows",
]

METRICS: dict[MetricName, tuple[type[Counter | Gauge], str]] = {
    "watermark_seconds": (Gauge, "Commit time up to which changes are released, since 1970"),
    "released_changes_total": (Counter, "Changes released since this process began"),
    "releases_total": (Counter, "Releases written since this process began"),
    "late_changes_total": (Counter, "Changes set aside as late since this process began"),
    "waiting_changes": (Gauge, "Changes in segments, those partly released included"),
    "waiting_segments": (Gauge, "Segments that hold changes above the watermark"),
    "waiting_snapshots": (Gauge, "Snapshots of slots that are read and not in effect"),
    "finished_stream_partitions": (Gauge, "Completion markers read in this epoch"),
    "batch_seconds": (Gauge, "Duration of the last batch"),
    "batch_input_rows": (Gauge, "Rows read by the last batch, progress rows included"),
}

_PREFIX = "tidegate_consumer_"


class Metrics:
    """The metrics of one process; a name that is not in the set fails the type check."""

    def __init__(self) -> None:
        """Start at nothing, in a registry of its own."""
        self.registry = CollectorRegistry()
        self._metrics = {
            name: kind(_PREFIX + name, meaning, registry=self.registry)
            for name, (kind, meaning) in METRICS.items()
        }

    def set(self, name: MetricName, value: float) -> None:
        """Set a gauge."""
        metric = self._metrics[name]
        if isinstance(metric, Gauge):
            metric.set(value)

    def add(self, name: MetricName, value: float) -> None:
        """Add to a counter."""
        metric = self._metrics[name]
        if isinstance(metric, Counter):
            metric.inc(value)

    def serve(self, port: int) -> None:
        """Answer on 127.0.0.1 from a thread of its own; raises OSError if the port is taken."""
        start_http_server(port, addr="127.0.0.1", registry=self.registry)
