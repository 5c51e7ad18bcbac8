"""The fleet's metrics: a closed set of names, each with its kind and meaning.

Never a stream partition's token as a label: splits would make labels without end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

if TYPE_CHECKING:
    from threading import Thread
    from wsgiref.simple_server import WSGIServer

__all__ = ["METRICS", "CounterName", "GaugeName", "MetricMeaning", "ProducerMetrics"]

CounterName: TypeAlias = Literal[
    "tidegate_producer_records",
    "tidegate_producer_mods",
    "tidegate_producer_value_bytes",
    "tidegate_producer_heartbeats",
    "tidegate_producer_transactions_committed",
    "tidegate_producer_transactions_aborted",
    "tidegate_producer_query_retries",
    "tidegate_producer_stream_partitions_finished",
    "tidegate_producer_unproven_finishes",
    "tidegate_producer_unknown_outcomes",
    "tidegate_producer_orphan_rounds",
]
GaugeName: TypeAlias = Literal[
    "tidegate_producer_queries_running",
    "tidegate_producer_tokens",
    "tidegate_producer_slots",
    "tidegate_producer_bytes_in_flight",
    "tidegate_producer_watermark_lag_seconds",
]


@dataclass(frozen=True, slots=True)
class MetricMeaning:
    """What a metric is called, says, and is divided by."""

    name: CounterName | GaugeName
    kind: Literal["counter", "gauge"]
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: tuple[MetricMeaning, ...] = (
    MetricMeaning(
        "tidegate_producer_records", "counter", "Data change records committed to Kafka", ("topic",)
    ),
    MetricMeaning(
        "tidegate_producer_mods", "counter", "Row changes committed to Kafka", ("topic",)
    ),
    MetricMeaning(
        "tidegate_producer_value_bytes", "counter", "Bytes of committed Kafka values", ("topic",)
    ),
    MetricMeaning("tidegate_producer_heartbeats", "counter", "Heartbeat records read"),
    MetricMeaning(
        "tidegate_producer_transactions_committed", "counter", "Kafka transactions committed"
    ),
    MetricMeaning(
        "tidegate_producer_transactions_aborted", "counter", "Kafka transactions aborted"
    ),
    MetricMeaning(
        "tidegate_producer_query_retries",
        "counter",
        "Queries that ended without OK and are begun again, by gRPC's status",
        ("code",),
    ),
    MetricMeaning(
        "tidegate_producer_stream_partitions_finished", "counter", "Completion markers committed"
    ),
    MetricMeaning(
        "tidegate_producer_unproven_finishes",
        "counter",
        "Queries that ended with OK and proved nothing: begun again, never believed",
    ),
    MetricMeaning(
        "tidegate_producer_unknown_outcomes",
        "counter",
        "Commits whose outcome could not be learnt: all slots were read again",
    ),
    MetricMeaning(
        "tidegate_producer_orphan_rounds",
        "counter",
        "Times this worker joined the group anew because slots belonged to nobody",
    ),
    MetricMeaning("tidegate_producer_queries_running", "gauge", "Change stream queries running"),
    MetricMeaning("tidegate_producer_tokens", "gauge", "Stream partitions in the owned slots"),
    MetricMeaning("tidegate_producer_slots", "gauge", "Slots owned"),
    MetricMeaning(
        "tidegate_producer_bytes_in_flight", "gauge", "Bytes read and not yet committed to Kafka"
    ),
    MetricMeaning(
        "tidegate_producer_watermark_lag_seconds",
        "gauge",
        "Age of the lowest watermark over the owned stream partitions",
    ),
)


class ProducerMetrics:
    """One process's metrics; `registry` is a fresh one unless given, so that tests do not share."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        for metric in METRICS:
            arguments = (metric.name, metric.meaning, metric.labels)
            if metric.kind == "counter":
                self._counters[metric.name] = Counter(*arguments, registry=self.registry)
            else:
                self._gauges[metric.name] = Gauge(*arguments, registry=self.registry)

    def count(self, name: CounterName, amount: float = 1, **labels: str) -> None:
        """Add to a counter; `labels` are those that its meaning names."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def set(self, name: GaugeName, value: float) -> None:
        """Set a gauge."""
        self._gauges[name].set(value)

    def serve(self, port: int) -> tuple[WSGIServer, Thread]:
        """Answer scrapes on 127.0.0.1 and return the server; raises OSError for a taken port."""
        return start_http_server(port, addr="127.0.0.1", registry=self.registry)
