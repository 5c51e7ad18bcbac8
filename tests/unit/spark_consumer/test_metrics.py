"""The consumer's metrics: a closed set without labels."""

from typing import get_args

from tidegate.spark_consumer.metrics import METRICS, CounterName, GaugeName, consumer_metrics


def test_the_names_are_exactly_the_literals():
    kinds = {"counter": CounterName, "gauge": GaugeName}
    for kind, literal in kinds.items():
        names = [metric.name for metric in METRICS if metric.kind == kind]
        assert sorted(names) == sorted(get_args(literal))


def test_nothing_has_a_label():
    assert all(not metric.labels for metric in METRICS)


def test_a_scrape_shows_the_programs_prefix():
    metrics = consumer_metrics()
    metrics.add("late_changes_total", 7)
    assert metrics.registry.get_sample_value("tidegate_consumer_late_changes_total") == 7
