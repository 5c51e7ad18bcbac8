"""Metrics: what is defined is what a scrape shows, with the process and the build."""

from __future__ import annotations

import pytest

import tidegate
from tidegate.program.metrics import Metric, Metrics

DEFINITIONS = (
    Metric("boiled_total", "counter", "How often", ("pot",)),
    Metric("burnt_total", "counter", "How often it was too much"),
    Metric("heat", "gauge", "How much"),
    Metric("level", "gauge", "How full", ("pot",)),
)


@pytest.fixture
def metrics():
    return Metrics("kettle", DEFINITIONS)


def test_counters_are_added_to_and_gauges_set(metrics):
    metrics.add("boiled_total", 3, pot="red")
    metrics.add("boiled_total", pot="red")
    metrics.add("burnt_total")
    metrics.set("heat", 5)
    metrics.set("heat", 4)
    metrics.set("level", 7, pot="red")
    value = metrics.registry.get_sample_value
    assert value("kettle_boiled_total", {"pot": "red"}) == 4
    assert value("kettle_burnt_total") == 1
    assert value("kettle_heat") == 4
    assert value("kettle_level", {"pot": "red"}) == 7


def test_a_gauge_that_is_followed_is_asked_at_each_scrape(metrics):
    heat = [5.0]
    metrics.follow("heat", lambda: heat[-1])
    value = metrics.registry.get_sample_value
    assert value("kettle_heat") == 5
    heat.append(6.0)
    assert value("kettle_heat") == 6


def test_names_and_meanings_are_those_of_the_definitions(metrics):
    shown = {family.name: family for family in metrics.registry.collect()}
    assert shown["kettle_heat"].documentation == "How much"
    assert shown["kettle_boiled"].type == "counter"


def test_every_object_counts_for_itself(metrics):
    metrics.set("heat", 5)
    assert Metrics("kettle", DEFINITIONS).registry.get_sample_value("kettle_heat") == 0


def test_the_build_and_the_process_are_there(metrics):
    value = metrics.registry.get_sample_value
    assert value("tidegate_build_info", {"version": tidegate.__version__}) == 1
    assert value("process_resident_memory_bytes") > 1 << 20
