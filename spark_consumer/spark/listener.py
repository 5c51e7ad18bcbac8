"""Copies Spark's own measurements of each batch to the metrics.

Spark calls a listener late and may skip calls, so nothing is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

if TYPE_CHECKING:
    from tidegate.spark_consumer.metrics import ConsumerMetrics


_WHOLE = frozenset({"addBatch", "triggerExecution"})
"""The gate's own phases together, and all of both."""


class MetricsListener(StreamingQueryListener):
    """Counts the durations of batches, sets the size of the last, adds up Spark's own phases."""

    def __init__(self, metrics: ConsumerMetrics) -> None:
        """Take the metrics to set."""
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to measure."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Count duration and size; add the time that Spark needed around the batch."""
        self._metrics.observe("batch_duration_seconds", event.progress.batchDuration / 1000)
        self._metrics.set("batch_input_rows", event.progress.numInputRows)
        for name, duration_ms in event.progress.durationMs.items():
            if name not in _WHOLE:
                seconds = duration_ms / 1000
                self._metrics.add("batch_phase_seconds_total", seconds, phase=f"spark-{name}")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to measure."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to measure."""
