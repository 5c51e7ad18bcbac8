"""The metrics after a batch, and when a query goes on."""

import math

import pytest

from tests.unit.spark_consumer.batch.test_batch_figures import STATE, figures
from tidegate.spark_consumer.batch.batch_metrics import BatchMetrics
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.metrics import consumer_metrics


@pytest.fixture
def measured():
    metrics = consumer_metrics()
    value = metrics.registry.get_sample_value
    batches = BatchMetrics(metrics, wall=lambda: 10.0)
    return batches, lambda name, **labels: value(f"tidegate_consumer_{name}", labels)


def test_a_batch_is_counted_by_sink_and_phase(measured):
    batches, value = measured
    batches.finished(figures())
    batches.finished(figures())
    assert (value("batches_total"), value("released_changes_total")) == (2, 24)
    assert (value("late_changes_total"), value("copies_total")) == (2, 4)
    assert (value("mismatches_total"), value("releases_total")) == (2, 4)
    assert (value("waiting_changes"), value("waiting_segments")) == (11, 2)
    assert (value("waiting_snapshots"), value("finished_stream_partitions")) == (3, 7)
    assert value("batch_phase_seconds_total", phase="sinks") == 6.0
    assert value("sink_release", sink="changelog") == 8
    assert value("sink_release", sink="mirror") == 4
    assert value("sink_releases_total", sink="changelog") == 4
    assert value("sink_changes_total", sink="changelog") == 24
    assert value("sink_seconds_total", sink="mirror") == 2.0


def test_the_lag_is_that_of_the_scrape_and_unknown_before_the_first_watermark(measured):
    batches, value = measured
    batches.finished(figures(State(prefix="p", query_id="q")))
    assert math.isnan(value("watermark_lag_seconds"))
    assert value("watermark_seconds") == 0
    batches.finished(figures())
    assert (value("watermark_seconds"), value("watermark_lag_seconds")) == (3.0, 7.0)


def test_a_query_that_goes_on_shows_where_it_was_and_counts_from_0(measured):
    batches, value = measured
    batches.resume(STATE)
    assert (value("watermark_seconds"), value("waiting_changes")) == (3.0, 11)
    assert (value("waiting_segments"), value("mirror_releases_behind")) == (2, 4)
    assert value("sink_release", sink="mirror") == 4
    assert (value("batches_total"), value("released_changes_total")) == (0, 0)


def test_a_replay_leaves_what_progress_said(measured):
    batches, value = measured
    batches.finished(figures())
    batches.finished(figures(frontier=None))
    assert value("waiting_snapshots") == 3
