"""Spark's own measurements, copied to the metrics."""

from types import SimpleNamespace

from tidegate.spark_consumer.metrics import consumer_metrics
from tidegate.spark_consumer.spark.listener import MetricsListener


def test_duration_and_size_of_the_last_batch_are_kept():
    metrics = consumer_metrics()
    listener = MetricsListener(metrics)
    for duration_ms, rows in ((900, 5), (1_500, 7)):
        durations = {"addBatch": 800, "triggerExecution": duration_ms, "walCommit": 250}
        progress = SimpleNamespace(
            batchDuration=duration_ms, numInputRows=rows, durationMs=durations
        )
        listener.onQueryProgress(SimpleNamespace(progress=progress))
    value = metrics.registry.get_sample_value
    assert value("tidegate_consumer_batch_seconds") == 1.5
    assert value("tidegate_consumer_batch_input_rows") == 7
    phases = {
        sample.labels["phase"]: sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "tidegate_consumer_batch_phase_seconds_total"
    }
    assert phases == {"spark-walCommit": 0.5}
