"""Key ranges hold every row once, and are as many as may be."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.backfill.read_plan import KeyRanges, read_partitions


def filled(rows, **sizes):
    """Ranges over the keys (1,) to (rows,), added in steps as a read adds them."""
    ranges = KeyRanges(**sizes)
    at = 0
    while (step := ranges.rows_to_end()) <= rows - at:
        ranges.pass_over(step - 1)
        at += step
        ranges.end_at((at,))
    ranges.pass_over(rows - at)
    return ranges


@given(rows=st.integers(0, 500), ranges_max=st.integers(1, 9), rows_min=st.integers(1, 9))
def test_each_row_is_in_one_range(rows, ranges_max, rows_min):
    ranges = filled(rows, ranges_max=ranges_max, rows_min=rows_min)
    ends = [0]
    for after, through, count in ranges.bounds:
        assert after == ((ends[-1],) if ends[-1] else None)
        ends.append(ends[-1] + count)
        assert through == (None if ends[-1] == rows else (ends[-1],))
    assert ends[-1] == ranges.rows == rows
    assert len(ranges.bounds) <= ranges_max + 1


@given(rows=st.integers(1, 500), ranges_max=st.integers(1, 9), rows_min=st.integers(1, 9))
def test_ranges_are_as_small_as_may_be(rows, ranges_max, rows_min):
    counts = [count for *_, count in filled(rows, ranges_max=ranges_max, rows_min=rows_min).bounds]
    assert len(set(counts[:-1])) <= 1
    assert counts[-1] <= counts[0]
    assert len(counts) == 1 or len(counts) > ranges_max // 2 or counts[0] == rows_min


def test_read_partitions_are_numbered_over_all_tables():
    found = read_partitions(
        [("a", filled(5, rows_min=2)), ("empty", filled(0)), ("b", filled(2, rows_min=2))]
    )
    assert [(one.table, one.number, one.of, one.rows) for one in found] == [
        ("a", 0, 4, 2), ("a", 1, 4, 2), ("a", 2, 4, 1), ("b", 3, 4, 2),
    ]  # fmt: skip
    assert read_partitions([("empty", filled(0))]) == []
