"""What the consumer logs about its batches: those that matter, and a summary each minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.schemas.instants import US_PER_SECOND
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.plan import Plan

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


SUMMARY_SECONDS = 60.0


class BatchLog:
    """Writes a `batch` line per finished batch and a `summary` line per minute.

    A batch without releases and late changes is logged at debug level: a quiet stream has two of
    them each second.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Take two clocks, both in seconds: one for intervals, one for the lag behind today."""
        self._log = log
        self._monotonic = monotonic
        self._wall = wall
        self._since = monotonic()
        self._batches = 0
        self._input_rows = 0
        self._releases = 0

    def finished(self, state: State, plan: Plan, *, input_rows: int, copies: int) -> None:
        """Log a batch whose state is stored; `copies` records repeat a change and were left out."""
        matters = plan.releases or plan.late_rows
        (self._log.info if matters else self._log.debug)(
            "batch",
            batch=state.batch,
            watermark_us=state.watermark_us,
            releases=len(plan.releases),
            late=plan.late_rows,
            copies=copies,
            segments=len(state.segments),
            slowest=plan.slowest,
        )
        self._batches += 1
        self._input_rows += input_rows
        self._releases += len(plan.releases)
        if self._monotonic() - self._since >= SUMMARY_SECONDS:
            self._summarise(state, plan)

    def _summarise(self, state: State, plan: Plan) -> None:
        has_watermark = state.watermark_us > BEFORE_EVERYTHING_US
        lag = self._wall() - state.watermark_us / US_PER_SECOND
        self._log.info(
            "summary",
            batches=self._batches,
            input_rows=self._input_rows,
            releases=self._releases,
            watermark_us=state.watermark_us if has_watermark else None,
            lag_seconds=round(lag, 3) if has_watermark else None,
            waiting_changes=sum(segment.rows for segment in state.segments),
            slowest=plan.slowest,
        )
        self._since = self._monotonic()
        self._batches = self._input_rows = self._releases = 0
