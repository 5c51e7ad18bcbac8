"""Metrics: the closed set is what is registered, and no token can become a label."""

import typing
import urllib.request

from prometheus_client import CollectorRegistry

from tidegate.producer.metrics import METRICS, CounterName, GaugeName, ProducerMetrics


def test_the_names_are_exactly_the_literals():
    kinds = {"counter": CounterName, "gauge": GaugeName}
    for kind, literal in kinds.items():
        names = [metric.name for metric in METRICS if metric.kind == kind]
        assert sorted(names) == sorted(typing.get_args(literal))


def test_labels_are_bounded():
    assert {label for metric in METRICS for label in metric.labels} <= {"topic", "code"}


def test_counting_and_setting():
    metrics = ProducerMetrics()
    metrics.count("tidegate_producer_mods", 3, topic="bank.accounts")
    metrics.count("tidegate_producer_mods", topic="bank.accounts")
    metrics.count("tidegate_producer_heartbeats")
    metrics.set("tidegate_producer_slots", 5)
    metrics.set("tidegate_producer_slots", 4)
    value = metrics.registry.get_sample_value
    assert value("tidegate_producer_mods_total", {"topic": "bank.accounts"}) == 4
    assert value("tidegate_producer_heartbeats_total") == 1
    assert value("tidegate_producer_slots") == 4


def test_two_processes_metrics_do_not_meet():
    shared = CollectorRegistry()
    ProducerMetrics(shared)
    ProducerMetrics()
    ProducerMetrics()


def test_scrapes_are_answered_on_the_loopback_address():
    metrics = ProducerMetrics()
    metrics.set("tidegate_producer_tokens", 7)
    server, thread = metrics.serve(0)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            assert b"tidegate_producer_tokens 7.0" in response.read()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
