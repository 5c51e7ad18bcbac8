"""How many changes and bytes a batch reads."""

from __future__ import annotations

from tidegate.spark_consumer.core.limits import (
    average_bytes,
    must_restart,
    offsets_per_batch,
)


def test_the_first_batch_gives_the_average_and_later_ones_move_it():
    assert average_bytes(0, rows=0, size_bytes=0) == 0
    first = average_bytes(0, rows=100, size_bytes=20_000)
    assert first == 200
    assert average_bytes(first, rows=0, size_bytes=0) == 200
    assert average_bytes(first, rows=1, size_bytes=1_000_000) < 300
    wide = average_bytes(first, rows=250_000, size_bytes=250_000 * 50_000)
    assert 45_000 < wide < 50_000
    assert average_bytes(0, rows=5, size_bytes=0) == 1


def test_offsets_follow_from_both_limits():
    limits = {"changes_max": 1_000, "bytes_max": 100_000}
    found = [offsets_per_batch(**limits, change_bytes=n) for n in (0, 10, 100, 400, 10**9)]
    assert found == [1_000, 1_000, 1_000, 250, 1]
    # A query is started again only where it reads far too much or too little.
    restarts = [must_restart(1_000, wanted) for wanted in (499, 500, 1_000, 4_000, 4_001)]
    assert restarts == [True, False, False, False, True]
