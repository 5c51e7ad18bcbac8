"""Sets the metrics after each batch, and when a query goes on where an earlier one was."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.schemas.instants import US_PER_SECOND
from tidegate.spark_consumer.batch.batch_figures import BatchFigures, sinks_stand_at
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State

if TYPE_CHECKING:
    from tidegate.spark_consumer.metrics import ConsumerMetrics


class BatchMetrics:
    """The metrics that batches set.

    The lag is computed at each scrape, so that it also grows while a batch hangs; it is NaN before
    the first watermark.
    """

    def __init__(self, metrics: ConsumerMetrics, *, wall: Callable[[], float] = time.time) -> None:
        """Take the metrics to set, and the wall clock in seconds since 1970."""
        self._metrics = metrics
        self._wall = wall
        self._watermark_us = BEFORE_EVERYTHING_US
        metrics.follow("watermark_lag_seconds", self._lag_s)

    def resume(self, state: State) -> None:
        """Set what the state of the last batch says, before the next one has ended."""
        self._set_watermark(state.watermark_us)
        self._metrics.set("waiting_changes", sum(segment.rows for segment in state.segments))
        self._metrics.set("waiting_segments", len(state.segments))
        self._metrics.set("mirror_releases_behind", state.next_release - 1 - state.mirrored)
        self._metrics.set("accepted_gaps", len(state.gaps))
        for sink, release in sinks_stand_at(state).items():
            self._metrics.set("sink_release", release, sink=sink)

    def finished(self, figures: BatchFigures) -> None:
        """Count and set what a batch has done."""
        metrics = self._metrics
        self._set_watermark(figures.watermark_us)
        metrics.set("waiting_changes", figures.waiting_changes)
        metrics.set("waiting_segments", figures.waiting_segments)
        metrics.set("mirror_releases_behind", figures.mirror_releases_behind)
        metrics.set("accepted_gaps", figures.accepted_gaps)
        if figures.waiting_snapshots is not None:
            metrics.set("waiting_snapshots", figures.waiting_snapshots)
        if figures.finished_stream_partitions is not None:
            metrics.set("finished_stream_partitions", figures.finished_stream_partitions)
        metrics.add("batches_total")
        metrics.add("late_changes_total", figures.late_changes)
        metrics.add("copies_total", figures.copies)
        metrics.add("dead_letters_total", figures.dead_letters)
        metrics.add("mismatches_total", figures.mismatches)
        metrics.add("releases_total", figures.releases)
        metrics.add("released_changes_total", figures.released_changes)
        for seconds in figures.release_delays_seconds:
            metrics.observe("commit_to_release_seconds", seconds)
        for phase, seconds in figures.phase_seconds.items():
            metrics.add("batch_phase_seconds_total", seconds, phase=phase)
        for sink, one in figures.sinks.items():
            metrics.set("sink_release", one.release, sink=sink)
            metrics.add("sink_releases_total", one.releases, sink=sink)
            metrics.add("sink_changes_total", one.changes, sink=sink)
            metrics.add("sink_seconds_total", one.seconds, sink=sink)

    def _set_watermark(self, watermark_us: int) -> None:
        self._watermark_us = watermark_us
        if watermark_us > BEFORE_EVERYTHING_US:
            self._metrics.set("watermark_timestamp_seconds", watermark_us / US_PER_SECOND)

    def _lag_s(self) -> float:
        if self._watermark_us <= BEFORE_EVERYTHING_US:
            return math.nan
        return self._wall() - self._watermark_us / US_PER_SECOND
