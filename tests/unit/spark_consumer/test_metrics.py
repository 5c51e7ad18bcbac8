"""Metrics: a closed set, served as text."""

import socket
import urllib.request
from typing import get_args

from prometheus_client import generate_latest

from tidegate.spark_consumer.metrics import METRICS, MetricName, Metrics


def test_every_name_has_its_kind_and_meaning():
    assert set(METRICS) == set(get_args(MetricName))
    assert all(meaning for _, meaning in METRICS.values())


def test_gauges_are_set_and_counters_added_to():
    metrics = Metrics()
    metrics.set("waiting_segments", 3)
    metrics.set("waiting_segments", 2)
    metrics.add("late_changes_total", 3)
    metrics.add("late_changes_total", 4)
    text = generate_latest(metrics.registry).decode()
    assert "tidegate_consumer_waiting_segments 2.0" in text
    assert "tidegate_consumer_late_changes_total 7.0" in text


def test_what_is_served_is_what_was_measured():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    metrics = Metrics()
    metrics.set("watermark_seconds", 12.5)
    metrics.serve(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert "tidegate_consumer_watermark_seconds 12.5" in answer.read().decode()
