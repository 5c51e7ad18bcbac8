"""The benchmark of memory still runs: readers take no more than the budget, and hold it."""

from __future__ import annotations

import pytest

from benchmarks.producer.memory import MEMORY, measure_memory


@pytest.mark.parametrize("name", MEMORY)
def test_readers_fill_the_budget_and_no_more(name):
    found = measure_memory(name, readers=20, settle_s=4.0)

    assert 0 < found["base_mib"]
    assert 0 < found["above_base_mib"]
    assert 48 < found["taken_mib"] <= 64
