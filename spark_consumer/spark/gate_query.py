"""A running query with its gate: how it is stopped, its end, and its measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tidegate.lineage.frontier import Frontier
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.spark.failures import find_successor, name_failure

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from tidegate.spark_consumer.batch.batch import Batch
    from tidegate.spark_consumer.metrics import ConsumerMetrics
    from tidegate.spark_consumer.spark.standby import LeaseKeeper


@dataclass(frozen=True, slots=True)
class GateQuery:
    """A running query."""

    query: StreamingQuery
    batch: Batch
    gate: Storage
    """The gate's folder: its `require_writer` says whether another run has taken the checkpoint."""
    lease: LeaseKeeper
    frontier: Callable[[str], Frontier | None]
    """Loads a stored frontier by its name."""
    reads: int = 0
    """Changes that a batch reads at most; 0: any number."""
    unlisten: Callable[[], None] = lambda: None
    """Removes what measures the query."""
    require_kept: Callable[[], None] = lambda: None
    """Raises ChangesExpired if Kafka has removed records that the query has to read next."""
    output: Storage | None = None
    """The folder of the tables and manifests."""

    def stop(self) -> None:
        """Let the running batch finish, then stop; other runs may take the checkpoint at once."""
        self.batch.stop()
        self.query.stop()
        self.batch.close()
        self.lease.stop()

    def failure(self) -> BaseException | None:
        """Return the error that ended the query, as its most specific class; None without an error.

        Spark itself stops a query, without an error, when another query of its session starts with
        the same checkpoint.
        """
        failure = self.batch.failure or self.query.exception()
        if failure is None:
            return find_successor(self.gate)
        return name_failure(failure, gate=self.gate, require_kept=self.require_kept)

    def pause(self) -> None:
        """Let the running batch finish, then stop; this run keeps the checkpoint."""
        self.batch.stop()
        self.query.stop()
        self.batch.close()
        self.unlisten()


_WHOLE = frozenset({"addBatch", "triggerExecution"})
"""Spark's names for the gate's own phases together, and for a whole batch: sums, not phases."""


class MetricsListener(StreamingQueryListener):
    """Counts the durations of batches, sets the size of the last, adds up Spark's own phases.

    Spark calls a listener late and may skip calls, so nothing is decided here.
    """

    def __init__(self, metrics: ConsumerMetrics) -> None:
        """Take the metrics to set."""
        self._metrics = metrics
        self.idle_s: Mapping[int, float] = {}
        """The seconds that a batch waited for changes after it was done, by its number."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing to measure."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - as above
        """Count duration and size; add the time that Spark needed around the batch."""
        idle_s = self.idle_s.get(event.progress.batchId, 0.0)
        seconds = max(event.progress.batchDuration / 1000 - idle_s, 0.0)
        self._metrics.observe("batch_duration_seconds", seconds)
        self._metrics.set("batch_input_rows", event.progress.numInputRows)
        for name, duration_ms in event.progress.durationMs.items():
            if name not in _WHOLE:
                seconds = duration_ms / 1000
                self._metrics.add("batch_phase_seconds_total", seconds, phase=f"spark-{name}")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - as above
        """Nothing to measure."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - as above
        """Nothing to measure."""
