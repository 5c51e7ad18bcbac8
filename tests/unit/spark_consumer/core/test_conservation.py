"""What is read of segments: whole parts, and everything within the bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.spark_consumer.core.batch_state import Segment
from tidegate.spark_consumer.core.conservation import is_whole, reads_of, require_whole
from tidegate.spark_consumer.core.sums import NO_ROWS, RowSum, SegmentRead
from tidegate.spark_consumer.errors import SegmentDamaged

TIMES_US = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def sum_of(times_us):
    return RowSum(len(times_us), sum(us * 3 for us in times_us))


def written(times_us, quantiles_us):
    low, high = min(times_us), max(times_us)
    planned = Segment("a/1", low, high, len(times_us), tuple(sorted(quantiles_us)))
    edges = [low - 1, *planned.cuts_us]
    return planned.written(
        [
            sum_of([us for us in times_us if edges[n] < us <= edges[n + 1]])
            for n in range(len(edges) - 1)
        ]
    )


@given(
    times_us=TIMES_US,
    quantiles_us=TIMES_US,
    bounds=st.tuples(st.integers(0, 70), st.integers(0, 70)),
)
def test_whole_parts_are_read_that_hold_everything_within_the_bounds(
    times_us, quantiles_us, bounds
):
    after_us, through_us = min(bounds), max(bounds)
    segment = written(times_us, quantiles_us)
    (read,) = reads_of([segment], after_us=after_us, through_us=through_us)
    found = [us for us in times_us if read.after_us < us <= read.through_us]
    assert read.expected == sum_of(found)
    wanted = [us for us in times_us if after_us < us <= through_us]
    assert not wanted or set(wanted) <= set(found)
    # At most one part too much at each end.
    beside = [part for part in segment.parts if read.after_us < part.through_us <= read.through_us]
    assert sum(part.through_us <= after_us for part in beside) == 0
    assert sum(part.through_us > through_us for part in beside) <= 1


READ = SegmentRead("a/1", 0, 9, RowSum(2, 5))

OLDER = SegmentRead("b", 0, 9, None)


def test_segments_are_whole_if_all_that_is_counted_is_there():
    assert is_whole([READ, OLDER, READ], RowSum(4, 10))
    assert is_whole([OLDER], NO_ROWS)
    for found in (RowSum(3, 10), RowSum(4, 9), NO_ROWS):
        assert not is_whole([READ, OLDER, READ], found)
    require_whole([READ, OLDER], [RowSum(2, 5), RowSum(77, 1)])
    for found in (None, RowSum(1, 5), RowSum(2, 4)):
        with pytest.raises(SegmentDamaged, match="segment='a/1'") as caught:
            require_whole([OLDER, READ], [RowSum(1, 1), found])
        assert "gate/segments" in caught.value.hint
    # Of an uncounted segment only what is due is read.
    segment = Segment("a", 10, 20, 5, (15, 20))
    assert reads_of([segment], after_us=12, through_us=90) == (SegmentRead("a", 12, 20, None),)
    # Sums are taken modulo 2 to the 64.
    assert RowSum(1, 2**64 - 1) + RowSum(2, 3) == RowSum(3, 2)
    assert sum([RowSum(1, 5), RowSum(1, 6)], NO_ROWS) == RowSum(2, 11)
