"""The batch function: Spark calls it with each micro-batch's rows."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidegate.lineage.frontier import EndOffsets
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.batch.effect_loop import EffectLoop, LoopStep
from tidegate.spark_consumer.batch.figures import (
    BatchFigures,
    BatchLog,
    BatchMetrics,
    RecentFigures,
    SinkWork,
)
from tidegate.spark_consumer.batch.idle_wait import IdleWait
from tidegate.spark_consumer.batch.ports import BatchRows, Parts
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.errors import DEAD_LETTERS, RunStopped
from tidegate.spark_consumer.sinks.delta.side_tables import LATE_EVENTS
from tidegate.spark_consumer.sinks.port import ClosingSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from structlog.typing import FilteringBoundLogger

    from tidegate.spark_consumer.metrics import ConsumerMetrics


_IDLE_KEPT = 100
"""Batches whose pause is kept: Spark reports on a batch within a few batches."""


class StepTimer:
    """A stopwatch that one step hands to the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take a monotonic clock, in seconds."""
        self._clock = clock
        self._step: str | None = None
        self._since_s = 0.0
        self._seconds: dict[str, float] = defaultdict(float)

    def begin(self, step: str) -> None:
        """Begin a step, which ends the step before it."""
        now_s = self._clock()
        self._add(now_s)
        self._step, self._since_s = step, now_s

    def end(self) -> Mapping[str, float]:
        """End the last step; return the seconds of each, by name, in the order of their begin."""
        self._add(self._clock())
        self._step = None
        return dict(self._seconds)

    def _add(self, now_s: float) -> None:
        if self._step is not None:
            self._seconds[self._step] += now_s - self._since_s


class Batch:
    """Runs the effect loop of each batch, one at a time; logs and measures it.

    `failure` is the error that ended the last batch, if one did.  `finished` is called with each
    new state.  `figures` has those of the last batches.  `idle_s` has the seconds that the last
    batches waited for changes after they were done, by number.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        rows_of: Callable[[DataFrame], AbstractContextManager[BatchRows]],
        end_offsets: Callable[[int], EndOffsets],
        log: FilteringBoundLogger,
        metrics: ConsumerMetrics,
        batch_log: BatchLog | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        resumes: State | None = None,
        maintain: Callable[[], None] | None = None,
        report: Callable[[EffectLoop], None] | None = None,
        idle_wait: IdleWait | None = None,
    ) -> None:
        """Wait for Spark's first call.

        `rows_of` wraps the frame of a batch, `end_offsets` returns the end offsets of its rows.
        The metrics begin with the state that the query `resumes`, if there is one.  When a batch is
        stored, `report` is called with its figures, then `maintain`; the next batch begins after
        both, and after the `idle_wait` where it had nothing to do.
        """
        self._parts = parts
        self._rows_of = rows_of
        self._end_offsets = end_offsets
        self._log = log
        self._metrics = BatchMetrics(metrics)
        self._sink_work = SinkWork()
        self._monotonic = monotonic
        self.figures = RecentFigures()
        if resumes is not None:
            self._metrics.resume(resumes)
        self._batch_log = batch_log or BatchLog(log)
        self._maintain = maintain
        self._report = report
        self._idle_wait = idle_wait
        self.idle_s: OrderedDict[int, float] = OrderedDict()
        self._stopping = threading.Event()
        self._running = threading.Lock()
        self._thread: int | None = None
        self._began_s: float | None = None
        self.failure: BaseException | None = None
        self.finished: Callable[[State], None] = lambda _: None

    @property
    def batch_s(self) -> float | None:
        """Seconds that the running batch has taken so far; None between two."""
        began_s = self._began_s
        return None if began_s is None else self._monotonic() - began_s

    def expect(self, watermark_us: int) -> None:
        """Run batches without a pause until the watermark has reached a time."""
        if self._idle_wait is not None:
            self._idle_wait.expect(watermark_us)

    def stop(self) -> None:
        """Start no further batch; blocks until the running one has ended.

        A call after that fails, so that Spark commits no batch that was not done.  Raises
        ConfigError within a batch, which would wait for itself.
        """
        if self._thread == threading.get_ident():
            raise ConfigError(
                "the query cannot be stopped inside a batch, such as by a sink's function",
                hint="Set a flag there, and call stop() in another thread when it is set",
            )
        self._stopping.set()
        with self._running:
            pass

    def close(self) -> None:
        """Close the resources of the sinks and the other parts, after `stop`.

        Spark may keep the batch function, and with it all these objects, until its JVM collects
        garbage.
        """
        for sink in self._parts.sinks:
            if isinstance(sink, ClosingSink):
                sink.close()
        self._parts.close()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Do batch `batch` with all its rows, or repeat it; raises RunStopped after `stop`."""
        with self._running:
            if self._stopping.is_set():
                raise RunStopped("the run is stopping", batch=batch)
            self._thread, self._began_s = threading.get_ident(), self._monotonic()
            try:
                loop = self._run(rows, batch)
                if self._maintain is not None:
                    self._log.debug("step", step="maintain", batch=batch)
                    self._maintain()
            except BaseException as error:
                # Spark passes a stack trace on as text; the caller of the query needs the error.
                self.failure = error
                raise
            finally:
                self._thread = self._began_s = None
        self.finished(loop.state)
        if self._idle_wait is not None:
            with self._running:
                self.idle_s[batch] = self._idle_wait.after(loop.plan, loop.state, self._stopping)
            if len(self.idle_s) > _IDLE_KEPT:
                self.idle_s.popitem(last=False)

    def _run(self, frame: DataFrame, batch: int) -> EffectLoop:
        timer = StepTimer(self._monotonic)
        with self._rows_of(frame) as rows:
            loop = EffectLoop(batch, rows, end_offsets=self._end_offsets(batch), parts=self._parts)
            last: LoopStep | None = None
            for step in loop.steps():
                timer.begin(step.name)
                if step != last:
                    self._log_step(step, loop, batch)
                last = step
            seconds = timer.end()
        if loop.plan.repeated_rows:
            self._log.info(
                "changes that the adopted output has",
                batch=batch,
                rows=loop.plan.repeated_rows,
                adopted_through_us=loop.plan.after_us,
            )
        if loop.dead_letters:
            self._log.warning(
                "dead letters", batch=batch, rows=loop.dead_letters, table=DEAD_LETTERS
            )
        if loop.late_events:
            self._log.info("late events", batch=batch, rows=loop.late_events, table=LATE_EVENTS)
        for mismatch in loop.mismatches:
            self._log.warning("mismatch recorded", batch=batch, **mismatch.content())
        for gap in loop.plan.gaps:
            if gap.from_us > loop.plan.after_us:
                self._log.warning("accepted gap passed", batch=batch, **asdict(gap))
        if loop.plan.code != self._parts.code:
            self._log.warning(
                "executed a plan of another version",
                batch=batch,
                planned_by=loop.plan.code,
                version=self._parts.code,
            )
        self._batch_log.finished(
            loop.state, loop.plan, input_rows=loop.input_rows, copies=loop.copies
        )
        figures = BatchFigures.of(
            loop,
            seconds=seconds,
            taken=self._sink_work.take(loop.plan, loop.release_rows),
            now_us=self._parts.now_us(),
        )
        self._metrics.finished(figures)
        self.figures.add(figures)
        if self._report is not None:
            self._report(loop)
        return loop

    def _log_step(self, step: LoopStep, loop: EffectLoop, batch: int) -> None:
        release = {} if step.release is None else {"release": step.release}
        self._log.debug("step", step=step.name, batch=batch, **release)
        if step.name == "late":
            plan = loop.plan
            self._log.warning(
                "late changes", batch=batch, rows=plan.late_rows, watermark_us=plan.after_us
            )
