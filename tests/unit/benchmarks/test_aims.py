"""Each aim can be missed, and what meets it is no miss."""

from __future__ import annotations

import pytest

from benchmarks.producer import __main__ as program
from benchmarks.producer.aims import AIMS, misses

KAFKA_1000 = "kafka, idle, 1000 stream partitions"
MAIN = [
    # measurement, figure, what just meets the aim, what just misses it
    ("kafka, 20 x 1", "per_cpu_s", 25_000, 24_999),
    ("kafka, 20 x 10", "per_cpu_s", 40_000, 39_999),
    ("kafka, 1 x 1", "per_cpu_s", 9_000, 8_999),
    ("kafka, latency", "p50_ms", 200, 200.01),
    ("kafka, latency", "p99_ms", 499.99, 500),
    ("kafka, split", "max_ms", 999.99, 1_000),
    ("kafka, parked", "extra_p99_ms", 2_000, 2_000.01),
    (KAFKA_1000, "threads", 40, 41),
    (KAFKA_1000, "core_percent", 29.99, 30),
    ("memory, backlog", "above_base_budgets", 1.25, 1.26),
    ("memory, silent", "above_base_budgets", 1.25, 1.26),
]


def missed(name, figure, *rounds, is_accelerated=True):
    found = program._summary(name, {"this": [{figure: one} for one in rounds]})
    return misses([found], is_accelerated=is_accelerated)


@pytest.mark.parametrize(("name", "figure", "met", "beyond"), MAIN)
def test_a_main_aim_is_met_and_missed(name, figure, met, beyond):
    assert missed(name, figure, met) == []
    (line,) = missed(name, figure, beyond)
    assert line.startswith(f"{name}: {figure} is {beyond:,} (the ")


@pytest.mark.parametrize("aim", AIMS, ids=lambda aim: f"{aim.name} {aim.figure}")
def test_each_aim_is_met_and_missed(aim):
    name = aim.name or "any"
    step = -0.01 if aim.kind == "at least" else 0.01

    assert len(missed(name, aim.figure, aim.value + step)) == 1
    assert missed(name, aim.figure, aim.value - step) == []
    assert len(missed(name, aim.figure, aim.value)) == (aim.kind == "below")


def test_an_aim_is_of_a_measurement_that_exists():
    assert {aim.name for aim in AIMS} - {""} <= set(program._ALL)


def test_one_round_beyond_an_aim_of_latency_is_a_miss():
    assert missed("kafka, latency", "p99_ms", 300, 300, 4_945) == [
        "kafka, latency: p99_ms is 4,945 (the worst round), and the aim is below 500"
    ]


def test_of_cpu_time_the_median_counts():
    assert missed("kafka, 1 x 1", "per_cpu_s", 3_000, 9_000, 12_000) == []
    assert missed("kafka, 1 x 1", "per_cpu_s", 8_000, 8_000, 12_000) == [
        "kafka, 1 x 1: per_cpu_s is 8,000 (the median), and the aim is at least 9,000"
    ]


def test_without_the_accelerator_changes_a_cpu_second_have_no_aim():
    assert missed("kafka, 1 x 1", "per_cpu_s", 1, is_accelerated=False) == []
    assert missed("kafka, latency", "p99_ms", 500, is_accelerated=False)


def test_a_figure_without_an_aim_is_no_miss():
    assert missed("kafka, 20 x 1, 2 workers", "per_cpu_s", 1) == []
    assert missed("kafka, idle, 10000 stream partitions", "core_percent", 500) == []
    assert missed("kafka, parked", "p99_ms", 900) == []
