"""A running query as Spark's own `StreamingQuery`, which knows the gate's errors and its lease.

Its progress has the gate's figures among the observed metrics.  Spark's own `observe` cannot count
them: it counts rows of a frame, and again each time that the frame is computed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.schemas.errors import InvariantViolation, TidegateError
from tidegate.spark_consumer.checkpoint.gate_files import newest_state
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.commands.status import Figures, read_status
from tidegate.spark_consumer.errors import RunStopped
from tidegate.spark_consumer.notebook.release_figure import plot_releases, require_plots
from tidegate.spark_consumer.notebook.releases import LAST, releases_in
from tidegate.spark_consumer.sinks.delta.as_of import microseconds
from tidegate.spark_consumer.spark.gate_query import GateQuery

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


_POLL_S = 1.0
_LEAST_S = 0.001
"""Spark waits for whole milliseconds, and raises an error of its own for none."""


class QueryFailed(StreamingQueryException):
    """The query has ended by an error of the gate, of a sink, or of a program's function.

    `error` is that error, and the cause of this one: an error of Tidegate has a class, a hint and
    fields.  `retriable` says whether starting the query again, unchanged, may help.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(message=f"{type(error).__name__}: {error}")
        self.error = error
        self.retriable = isinstance(error, TidegateError) and error.retriable
        self.__cause__ = error


class QueryStatus(dict[str, Any]):
    """Spark's `status` of a query as a dict; called, it returns the checkpoint's figures."""

    def __init__(self, status: Mapping[str, Any], figures: Callable[[], Figures]) -> None:
        super().__init__(status)
        self._figures = figures

    def __call__(self) -> Figures:
        """Return the figures of the checkpoint."""
        return self._figures()


class TidegateQuery(StreamingQuery):
    """Spark's query with the gate in it: `stop` finishes the batch, errors are the gate's.

    The checkpoint's lease is released at the end of the query, whatever ended it.  `spark.streams`
    returns the same query without these additions: its `stop` interrupts the batch, which the next
    query repeats.
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

    @property
    def status(self) -> QueryStatus:
        """Spark's status of the query; `status()` returns the figures of the checkpoint.

        They are those of `tidegate.status`, wherever the checkpoint is.  Before the end of the
        first batch the call raises ConfigError.
        """
        return QueryStatus(super().status, self._figures)

    def releases(self, last: int = LAST) -> DataFrame:
        """Return the newest releases as a pandas frame, as `tidegate.releases` does."""
        return releases_in(self._output, last=last)

    def plot(self, last: int = LAST) -> Figure:
        """Return a picture of the newest releases, as `tidegate.plot_releases` draws it."""
        require_plots()
        return plot_releases(self.releases(last))

    def awaitRelease(  # noqa: N802 - as Spark's awaitTermination
        self, time: datetime | int | str | None = None, timeout: float | None = None
    ) -> bool:
        """Wait until everything committed up to a time is in every output, in the mirrors too.

        `time` is one that `tidegate.as_of` takes; now, by this machine's clock, unless it is given.
        Returns whether it is: False after `timeout` seconds, or if the query was stopped before.
        Raises what `exception` returns.
        """
        time_us = microseconds(datetime.now(UTC) if time is None else time)
        end_s = None if timeout is None else monotonic() + timeout
        self._running.batch.expect(time_us)
        while not self._is_released(time_us):
            left_s = self._poll_s if end_s is None else min(self._poll_s, end_s - monotonic())
            if left_s < _LEAST_S or self.awaitTermination(left_s):  # type: ignore[arg-type]  # Spark takes parts of a second
                return self._is_released(time_us)
        return True

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

    def _figures(self) -> Figures:
        gate, output = self._running.gate, self._running.output
        return read_status(gate, lambda _: output, checkpoint=gate.root)

    @property
    def _output(self) -> Storage:
        if self._running.output is None:
            raise InvariantViolation("a query without an output was asked for its releases")
        return self._running.output

    def _is_released(self, time_us: int) -> bool:
        state = newest_state(self._running.gate)
        if state is None or state.watermark_us < time_us:
            return False
        return state.mirrored == state.next_release - 1

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
