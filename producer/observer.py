"""What the core does, as metrics; it looks on and changes nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.producer.core.events import Event, QueryFailed, RecordsRead, Ticked
from tidegate.producer.errors import QueryError
from tidegate.producer.spanner_records import HeartbeatRecord
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.progress import TopicTotals

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.core.worker import Worker
    from tidegate.producer.metrics import CounterName, ProducerMetrics

__all__ = ["Observer"]

_GAUGES_INTERVAL_S = 1.0
_COUNTERS: dict[str, CounterName] = {
    "committed": "tidegate_producer_transactions_committed",
    "abort": "tidegate_producer_transactions_aborted",
    "finished": "tidegate_producer_stream_partitions_finished",
    "unproven_finish": "tidegate_producer_unproven_finishes",
    "unknown_outcome": "tidegate_producer_unknown_outcomes",
}


class Observer:
    """Called after every event of one worker."""

    def __init__(self, metrics: ProducerMetrics, *, bytes_in_flight: Callable[[], int]) -> None:
        """Begin with nothing counted."""
        self._metrics = metrics
        self._bytes_in_flight = bytes_in_flight
        self._counted: dict[str, int] = {}
        self._published: dict[str, TopicTotals] = {}
        self._gauges_due_at = 0.0

    def __call__(self, event: Event, worker: Worker) -> None:
        """Count what an event brought, and show where the worker stands about once a second."""
        match event:
            case RecordsRead():
                heartbeats = sum(isinstance(item, HeartbeatRecord) for item in event.items)
                if heartbeats:
                    self._metrics.count("tidegate_producer_heartbeats", heartbeats)
            case QueryFailed():
                code = event.error.code if isinstance(event.error, QueryError) else "NONE"
                self._metrics.count("tidegate_producer_query_retries", code=code)
            case Ticked() if time.monotonic() >= self._gauges_due_at:
                self._gauges_due_at = time.monotonic() + _GAUGES_INTERVAL_S
                self._show(worker)
            case _:
                pass

    def _show(self, worker: Worker) -> None:
        for name, metric in _COUNTERS.items():
            news = worker.tally.counts[name] - self._counted.get(name, 0)
            self._counted[name] = worker.tally.counts[name]
            if news:
                self._metrics.count(metric, news)
        for topic, totals in worker.tally.published.items():
            self._count_topic(topic, totals)
        tokens = [p for slot in worker.slots.values() for p in slot.tokens.values()]
        self._metrics.set("tidegate_producer_slots", len(worker.slots))
        self._metrics.set("tidegate_producer_tokens", len(tokens))
        running = sum(partition.query_id is not None for partition in tokens)
        self._metrics.set("tidegate_producer_queries_running", running)
        self._metrics.set("tidegate_producer_bytes_in_flight", self._bytes_in_flight())
        if worker.watermark_us is not None:
            lag_us = time.time_ns() // 1_000 - worker.watermark_us
            self._metrics.set("tidegate_producer_watermark_lag_seconds", lag_us / US_PER_SECOND)

    def _count_topic(self, topic: str, totals: TopicTotals) -> None:
        before = self._published.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
        self._published[topic] = totals
        mods = totals.mods - before.mods
        if mods:
            records = totals.records - before.records
            size = totals.value_bytes - before.value_bytes
            self._metrics.count("tidegate_producer_records", records, topic=topic)
            self._metrics.count("tidegate_producer_mods", mods, topic=topic)
            self._metrics.count("tidegate_producer_value_bytes", size, topic=topic)
