"""The consumer's metrics: a closed set, with labels that a stream cannot multiply."""

from typing import get_args

from tidegate.spark_consumer.metrics import METRICS, CounterName, GaugeName, consumer_metrics


def test_the_names_are_exactly_the_literals():
    kinds = {"counter": CounterName, "gauge": GaugeName}
    for kind, literal in kinds.items():
        names = [metric.name for metric in METRICS if metric.kind == kind]
        assert sorted(names) == sorted(get_args(literal))


def test_labels_are_those_of_closed_sets():
    assert {label for metric in METRICS for label in metric.labels} == {"sink", "phase"}


def test_a_scrape_shows_the_programs_prefix():
    metrics = consumer_metrics()
    metrics.add("late_changes_total", 7)
    assert metrics.registry.get_sample_value("tidegate_consumer_late_changes_total") == 7
