"""A running query as Spark's own `StreamingQuery`, which knows the gate's errors and its lease.

Its progress has the gate's figures among the observed metrics.  Spark's own `observe` cannot count
them: it counts rows of a frame, and again each time that the frame is computed.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.schemas.errors import TidegateError
from tidegate.spark_consumer.errors import RunStopped

if TYPE_CHECKING:
    from tidegate.spark_consumer.spark.query import GateQuery

__all__ = ["QueryFailed", "TidegateQuery"]

_POLL_S = 1.0


class QueryFailed(StreamingQueryException):
    """The query has ended by an error of the gate, of a sink, or of a program's function.

    `error` is that error, and the cause of this one: an error of Tidegate has a class, a hint and
    fields.  `retriable` says whether to start the query again may help without a change.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(message=f"{type(error).__name__}: {error}")
        self.error = error
        self.retriable = isinstance(error, TidegateError) and error.retriable
        self.__cause__ = error


class TidegateQuery(StreamingQuery):
    """Spark's query with the gate in it: `stop` finishes the batch, errors are the gate's.

    The checkpoint's lease is given back at the end of the query, whatever has ended it.  Queries
    that `spark.streams` returns are the same query without this: their `stop` interrupts the batch,
    which the next query repeats.
    """

    def __init__(self, running: GateQuery, *, poll_s: float = _POLL_S) -> None:
        """Watch a query that was just started, every `poll_s` seconds."""
        super().__init__(running.query._jsq)  # noqa: SLF001 - as Spark's own makers of queries do
        self._running = running
        self._poll_s = poll_s
        self._is_stopped = False
        self._ended = threading.Event()
        self._found: StreamingQueryException | None = None
        threading.Thread(target=self._watch, name="tidegate-query", daemon=True).start()

    def stop(self) -> None:
        """Let the running batch finish, stop the query, and give the checkpoint back.

        Blocks for as long as the batch takes.  A second call does nothing.  Raises ConfigError
        where a function that the batch calls calls it: it would wait for itself.
        """
        was_active = self.isActive
        self._running.batch.stop()
        self._is_stopped = self._is_stopped or was_active
        try:
            self._running.stop()
        finally:
            self._ended.set()
            self._running.lease.stop()

    def exception(self) -> StreamingQueryException | None:
        """Return what has ended the query: QueryFailed, or Spark's own; None while it runs.

        None too after `stop`.
        """
        if self._found is None:
            self._found = self._find()
        return self._found

    def awaitTermination(  # noqa: N802 - Spark's name
        self, timeout: int | None = None
    ) -> bool | None:
        """Wait for the end of the query, as Spark's does; raises what `exception` returns.

        With a `timeout` in seconds, return whether the query has ended.
        """
        try:
            has_ended = super().awaitTermination(timeout)
        except StreamingQueryException:
            self._raise_failure()
            return None if timeout is None else True
        if has_ended is not False:
            self._raise_failure()
        return has_ended

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Wait until all that Kafka has now is read, which may not be released yet.

        Raises what `exception` returns.
        """
        try:
            super().processAllAvailable()
        except StreamingQueryException:
            self._raise_failure()

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:  # noqa: N802 - Spark's name
        """Return Spark's newest progress, with the gate's figures of its batch; None without one.

        They are in `observedMetrics`, by the names `tidegate`, `tidegate_phase_seconds` and
        `tidegate_sink_<sink>`.
        """
        progress = self._jsq.lastProgress()
        return None if progress is None else self._with_figures(progress)

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:  # noqa: N802 - Spark's name
        """Return the progress that Spark keeps, each with the gate's figures of its batch."""
        return [self._with_figures(progress) for progress in self._jsq.recentProgress()]

    def _with_figures(self, progress: Any) -> StreamingQueryProgress:
        content = json.loads(progress.json())
        figures = self._running.batch.figures.of(content["batchId"])
        if figures is not None:
            observed = content.get("observedMetrics", {})
            content["observedMetrics"] = {**observed, **figures.observed()}
        return StreamingQueryProgress.fromJson(content)

    def _raise_failure(self) -> None:
        failure = self.exception()
        if failure is not None:
            raise failure from failure.__cause__

    def _find(self) -> StreamingQueryException | None:
        replaced = self._running.lease.failure
        if self.isActive and replaced is None:
            return None
        if self._is_stopped and self._running.batch.failure is None:
            spark_own = self._running.query.exception()
            # Spark started one more batch while the query was stopping, and was refused.
            if spark_own is None or RunStopped.__name__ in str(spark_own):
                return None
        failure = replaced or self._running.failure()
        if failure is None or isinstance(failure, StreamingQueryException):
            return failure
        return QueryFailed(failure)

    def _watch(self) -> None:
        """Stop a query whose checkpoint was taken; after any end, release sinks and lease."""
        lease = self._running.lease
        try:
            while self.isActive and lease.failure is None:
                if self._ended.wait(self._poll_s):
                    return
            self._running.batch.stop()
            if lease.failure is not None:
                self._running.query.stop()
            self._running.batch.close()
            lease.stop()
        except (Py4JError, ConnectionError):
            return  # the JVM has ended, and the query with it
