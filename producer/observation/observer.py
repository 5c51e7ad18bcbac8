"""A worker's metrics and health; only observes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from tidegate.producer.core.events import (
    DrainRequested,
    Event,
    QueryFailed,
    RecordsRead,
    RootSlotRead,
    SlotsAssigned,
    SlotsLost,
    Ticked,
)
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.worker import Worker
from tidegate.producer.datastream.object_query import FileFigures
from tidegate.producer.errors import QueryError
from tidegate.producer.observation.faults import RetriedFaults, note_event, note_silent
from tidegate.producer.records import HeartbeatRecord
from tidegate.program.status_server import Health
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.progress import TopicTotals

if TYPE_CHECKING:
    from tidegate.producer.observation.metrics import CounterName, ProducerMetrics


_GAUGES_INTERVAL_S = 1.0
_SHOWN = 3
"""Stopped stream partitions that the text of `/readyz` names."""
_COUNTERS: dict[str, CounterName] = {
    "committed": "transactions_committed_total",
    "abort": "transactions_aborted_total",
    "stalled": "stalled_queries_total",
    "turn_ended": "query_turns_total",
    "paused": "stream_partition_pauses_total",
    "finished": "stream_partitions_finished_total",
    "unproven_finish": "unproven_finishes_total",
    "unknown_outcome": "unknown_outcomes_total",
    "rejoin": "orphan_rounds_total",
    "client_replaced": "group_clients_replaced_total",
    "filtered": "filtered_total",
}
_FILE_COUNTERS: dict[str, CounterName] = {
    "files": "files_read_total",
    "late_files": "files_late_total",
    "late_events": "file_events_late_total",
    "copies": "file_events_copied_total",
    "refused": "file_events_refused_total",
    "forgotten_uuids": "file_uuids_forgotten_total",
}


class Observer:
    """Called after every event of one worker."""

    def __init__(
        self,
        metrics: ProducerMetrics,
        *,
        bytes_in_flight: Callable[[], int],
        health: Health,
        retention_us: float,
        files: FileFigures | None = None,
        faults: RetriedFaults | None = None,
        shows_details: bool = False,
    ) -> None:
        """Start with all counts at 0; `retention_us` is how long the stream keeps changes.

        `files` are the figures of a source of files; `faults` gets the retried faults.
        `shows_details`: whether the metrics port shows texts of errors.
        """
        self._shows_details = shows_details
        self._faults = RetriedFaults() if faults is None else faults
        self._retention_us = retention_us
        self._files = files
        self._metrics = metrics
        self._health = health
        self._bytes_in_flight = bytes_in_flight
        self._counted: dict[str, int] = {}
        self._published: dict[str, TopicTotals] = {}
        self._parked: dict[tuple[str, str], int] = {}
        self._stopped: set[str] = set()
        self._gauges_due_at = 0.0

    def __call__(self, event: Event, worker: Worker) -> None:
        """Count an event; set the gauges about once a second."""
        self._health.step()
        at_us = time.time_ns() // 1_000
        note_event(self._faults, event, at_us=at_us, with_details=self._shows_details)
        if worker.counters.first_commits_us:
            self._measure(worker.counters.first_commits_us, at_us)
        match event:
            case SlotsAssigned():
                # Also without slots: workers beyond the number of slots are idle, and ready to take
                # over.
                self._health.set_ready()
            case SlotsLost():
                self._health.set_not_ready("slots lost: rejoining the group")
            case DrainRequested() | RootSlotRead() if worker.is_draining:
                self._health.set_not_ready("draining")
            case RecordsRead():
                heartbeats = sum(isinstance(item, HeartbeatRecord) for item in event.items)
                if heartbeats:
                    self._metrics.add("heartbeats_total", heartbeats)
            case QueryFailed() if event.error.retriable:
                code = event.error.code if isinstance(event.error, QueryError) else "NONE"
                self._metrics.add("query_retries_total", code=code)
            case Ticked() if time.monotonic() >= self._gauges_due_at:
                self._gauges_due_at = time.monotonic() + _GAUGES_INTERVAL_S
                self._set_gauges(worker)
            case _:
                pass

    def _measure(self, first_commits_us: deque[int], at_us: int) -> None:
        """Measure the delay of the changes of a committed transaction."""
        for commit_us in first_commits_us:
            self._metrics.observe("commit_to_kafka_seconds", (at_us - commit_us) / US_PER_SECOND)
        first_commits_us.clear()

    def _set_gauges(self, worker: Worker) -> None:
        noticed = worker.counters.noticed
        note_silent(self._faults, noticed, at_us=time.time_ns() // 1_000)
        noticed.clear()
        self._count(_COUNTERS, worker.counters.counts)
        for topic, totals in worker.counters.published.items():
            self._count_topic(topic, totals)
        for (topic, reason), count in worker.counters.parked.items():
            increase = count - self._parked.get((topic, reason), 0)
            self._parked[topic, reason] = count
            if increase:
                self._metrics.add("parked_total", increase, topic=topic, reason=reason)
        if self._files is not None:
            self._count_files(self._files)
        parked_keys = _parked_keys(worker)
        self._metrics.set("parked_keys", parked_keys)
        self._metrics.set("slots", len(worker.slots))
        self._metrics.set("stream_partitions", sum(worker.states.values()))
        self._metrics.set("queries_running", worker.states.get(PartitionState.RUNNING, 0))
        self._metrics.set("bytes_in_flight", self._bytes_in_flight())
        queued = worker.states.get(PartitionState.QUEUED, 0)
        paused = worker.states.get(PartitionState.PAUSED, 0)
        held = worker.states.get(PartitionState.HELD, 0)
        self._metrics.set("stream_partitions_queued", queued)
        self._metrics.set("stream_partitions_paused", paused)
        self._metrics.set("stream_partitions_held", held)
        self._count_stops(worker.stopped)
        self._metrics.set("stream_paused", int(worker.is_paused))
        warnings = [
            *(["the stream is paused: see tidegate-producer resume"] if worker.is_paused else []),
            *self._stop_warning(worker.stopped),
            *_warnings(parked_keys, queued, paused, held),
        ]
        self._health.set_warning("; ".join(warnings))
        lag_us = 0
        if worker.watermark_us is not None:
            lag_us = time.time_ns() // 1_000 - worker.watermark_us
        self._metrics.set("watermark_lag_seconds", lag_us / US_PER_SECOND)
        headroom_us = self._retention_us - lag_us
        self._metrics.set("retention_headroom_seconds", headroom_us / US_PER_SECOND)

    def _count(self, metrics: Mapping[str, CounterName], counts: Mapping[str, int]) -> None:
        """Add the increases of counts to counters."""
        for name, metric in metrics.items():
            increase = counts.get(name, 0) - self._counted.get(metric, 0)
            self._counted[metric] = counts.get(name, 0)
            if increase:
                self._metrics.add(metric, increase)

    def _stop_warning(self, stopped: Mapping[str, TidegateError]) -> Iterator[str]:
        if stopped:
            shown = (
                f"{token}: {error if self._shows_details else type(error).__name__}"
                for token, error in sorted(stopped.items(), key=lambda pair: pair[0])[:_SHOWN]
            )
            yield f"{len(stopped)} stream partitions stopped: {'; '.join(shown)}"

    def _count_files(self, files: FileFigures) -> None:
        self._count(_FILE_COUNTERS, files.counts())
        progress = files.progress()
        self._metrics.set("files_unread", 0 if progress is None else progress.unread)
        open_us = 0 if progress is None else time.time_ns() // 1_000 - progress.open_since_us
        self._metrics.set("files_open_seconds", open_us / US_PER_SECOND)

    def _count_stops(self, stopped: Mapping[str, TidegateError]) -> None:
        self._metrics.set("stream_partitions_stopped", len(stopped))
        for token in stopped.keys() - self._stopped:
            error = type(stopped[token]).__name__
            self._metrics.add("stream_partition_stops_total", error=error)
        self._stopped = set(stopped)

    def _count_topic(self, topic: str, totals: TopicTotals) -> None:
        before = self._published.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
        self._published[topic] = totals
        mods = totals.mods - before.mods
        if mods:
            records = totals.records - before.records
            size = totals.value_bytes - before.value_bytes
            self._metrics.add("records_total", records, topic=topic)
            self._metrics.add("mods_total", mods, topic=topic)
            self._metrics.add("value_bytes_total", size, topic=topic)


def _parked_keys(worker: Worker) -> int:
    """Return the number of keys that the owned stream partitions park, each counted once."""
    # Nearly all of them have no parked key, and share one empty set: a union over all would be
    # slow.
    sets = {
        partition.published_parked.keys
        for slot in worker.slots.values()
        for partition in slot.tokens.values()
    }
    return len(frozenset[int]().union(*sets))


def _warnings(parked_keys: int, queued: int, paused: int, held: int) -> Iterator[str]:
    """Yield the warnings of `/readyz` that concern the worker as a whole."""
    if parked_keys:
        yield f"{parked_keys} keys are parked: see docs/how-to/parked-changes.md"
    if queued:
        yield f"{queued} stream partitions wait for a query"
    if paused:
        yield f"{paused} stream partitions are paused until the slowest one comes closer"
    if held:
        yield f"{held} stream partitions wait for others from which keys moved to them"
