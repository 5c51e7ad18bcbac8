"""Metrics follow the core; a test reads them as Prometheus would."""

from __future__ import annotations

from types import SimpleNamespace

from tidegate.producer.core.events import QueryFailed, RecordsRead, Ticked
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.metrics import ProducerMetrics
from tidegate.producer.observer import Observer
from tidegate.producer.spanner_records import HeartbeatRecord
from tidegate.schemas.progress import TopicTotals

COUNTED = ("committed", "abort", "finished", "unproven_finish", "unknown_outcome")


def core(*, counts=None, published=None, watermark_us=None):
    """Return what the observer looks at."""
    counted = counts or dict.fromkeys(COUNTED, 0)
    tally = SimpleNamespace(counts=counted, published=published or {})
    return SimpleNamespace(tally=tally, slots={}, watermark_us=watermark_us)


def test_counts_and_gauges():
    metrics = ProducerMetrics()
    observer = Observer(metrics, bytes_in_flight=lambda: 42)
    totals = TopicTotals("bank.accounts", 2, 3, 400, 0)
    worker = core(
        counts={**dict.fromkeys(COUNTED, 0), "committed": 5, "unproven_finish": 3},
        published={"bank.accounts": totals},
        watermark_us=0,
    )
    observer(RecordsRead("t", 1, [HeartbeatRecord(1), HeartbeatRecord(2)], 9), worker)
    observer(QueryFailed("t", 1, QueryInterrupted("x", code="UNAVAILABLE")), worker)
    observer(Ticked(), worker)

    def value(name, **labels):
        return metrics.registry.get_sample_value(name, labels)

    assert value("tidegate_producer_heartbeats_total") == 2
    assert value("tidegate_producer_query_retries_total", code="UNAVAILABLE") == 1
    assert value("tidegate_producer_transactions_committed_total") == 5
    assert value("tidegate_producer_unproven_finishes_total") == 3
    assert value("tidegate_producer_mods_total", topic="bank.accounts") == 3
    assert value("tidegate_producer_value_bytes_total", topic="bank.accounts") == 400
    assert value("tidegate_producer_bytes_in_flight") == 42
    assert value("tidegate_producer_watermark_lag_seconds") > 1_000_000


def test_only_news_is_counted():
    metrics = ProducerMetrics()
    observer = Observer(metrics, bytes_in_flight=lambda: 0)
    worker = core(counts={**dict.fromkeys(COUNTED, 0), "committed": 5})
    observer._show(worker)
    observer._show(worker)

    name = "tidegate_producer_transactions_committed_total"
    assert metrics.registry.get_sample_value(name) == 5
