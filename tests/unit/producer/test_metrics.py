"""The worker's metrics: a closed set, no token as a label."""

import typing

from tidegate.producer.metrics import METRICS, CounterName, GaugeName, producer_metrics


def test_the_names_are_exactly_the_literals():
    kinds = {"counter": CounterName, "gauge": GaugeName}
    for kind, literal in kinds.items():
        names = [metric.name for metric in METRICS if metric.kind == kind]
        assert sorted(names) == sorted(typing.get_args(literal))


def test_labels_are_bounded():
    """There are as many values as topics, gRPC codes and classes of errors."""
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels <= {"topic", "code", "error", "reason"}


def test_a_scrape_shows_the_programs_prefix():
    metrics = producer_metrics()
    metrics.add("mods_total", 3, topic="bank.accounts")
    found = metrics.registry.get_sample_value(
        "tidegate_producer_mods_total", {"topic": "bank.accounts"}
    )
    assert found == 3
