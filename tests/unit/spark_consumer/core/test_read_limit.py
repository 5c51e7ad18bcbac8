"""How many changes a batch may read: by their number and by their bytes."""

import pytest

from tidegate.spark_consumer.core.read_limit import average_bytes, must_restart, offsets_per_batch


def test_the_first_batch_gives_the_average_and_later_ones_move_it():
    assert average_bytes(0, rows=0, size_bytes=0) == 0
    first = average_bytes(0, rows=100, size_bytes=20_000)
    assert first == 200
    assert average_bytes(first, rows=0, size_bytes=0) == 200
    assert average_bytes(first, rows=1, size_bytes=1_000_000) < 300
    wide = average_bytes(first, rows=250_000, size_bytes=250_000 * 50_000)
    assert 45_000 < wide < 50_000
    assert average_bytes(0, rows=5, size_bytes=0) == 1


@pytest.mark.parametrize(
    ("change_bytes", "offsets"), [(0, 1_000), (10, 1_000), (100, 1_000), (400, 250), (10**9, 1)]
)
def test_offsets_follow_from_both_limits(change_bytes, offsets):
    found = offsets_per_batch(changes_max=1_000, bytes_max=100_000, change_bytes=change_bytes)
    assert found == offsets


def test_a_query_is_started_again_only_where_it_reads_far_too_much_or_too_little():
    assert [must_restart(1_000, wanted) for wanted in (499, 500, 1_000, 4_000, 4_001)] == [
        True, False, False, False, True,
    ]  # fmt: skip
