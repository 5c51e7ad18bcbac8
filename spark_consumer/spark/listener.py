"""Copies Spark's own measurements of each batch to the metrics.

Spark calls a listener late and may skip calls, so nothing is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tidegate.spark_consumer.metrics import ConsumerMetrics

__all__ = ["MetricsListener"]


class MetricsListener(StreamingQueryListener):
    """Sets the metrics for duration and size of the last batch."""

    def __init__(self, metrics: ConsumerMetrics) -> None:
        """Take the metrics to set."""
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to measure."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Set duration and size."""
        self._metrics.set("batch_seconds", event.progress.batchDuration / 1000)
        self._metrics.set("batch_input_rows", event.progress.numInputRows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to measure."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to measure."""
