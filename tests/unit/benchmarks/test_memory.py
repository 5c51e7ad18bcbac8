"""The benchmark of memory still runs: readers hold what leaves room for no other message."""

from __future__ import annotations

import pytest

from benchmarks.producer.memory import MEMORY, measure_memory


@pytest.mark.parametrize("name", MEMORY)
def test_readers_hold_what_fits_beside_the_copies_of_one_message(name):
    found = measure_memory(name, readers=20, settle_s=2.0)

    assert 0 < found["base_mib"]
    assert 0 < found["above_base_mib"]
    assert 28 < found["taken_mib"] <= 36  # one of 4 MB takes 32 until it is decoded
