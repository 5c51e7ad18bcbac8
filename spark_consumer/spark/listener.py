"""Spark's own measurements of each batch, to the metrics.

A listener is called late and may miss calls: metrics may come from it, decisions never.
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

    from tidegate.spark_consumer.metrics import Metrics

__all__ = ["MetricsListener"]


class MetricsListener(StreamingQueryListener):
    """Keeps duration and size of the last batch."""

    def __init__(self, metrics: Metrics) -> None:
        """Take where to keep them."""
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to measure yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Keep what the batch took."""
        self._metrics.set("batch_seconds", event.progress.batchDuration / 1000)
        self._metrics.set("batch_input_rows", event.progress.numInputRows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to measure."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to measure any more."""
