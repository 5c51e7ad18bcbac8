"""Where a commit time is cut: between transactions, into parts of about equal size."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from itertools import pairwise

import pytest

from tidegate.spark_consumer.batch.inner_cuts import SLICES_MAX, cuts_of
from tidegate.spark_consumer.batch.release_order import edges_of
from tidegate.spark_consumer.core.plan import ReleaseBounds

T = 7
BOUNDS = ReleaseBounds(3, 0, 10, ())


def begin(number, us=T):
    return us.to_bytes(8, "big") + f"t{number:03d}".encode() + b"\0"


def sizes(begins, edges):
    return [bisect_left(begins, high) - bisect_left(begins, low) for low, high in pairwise(edges)]


def test_one_commit_time_is_cut_into_equal_parts_between_transactions():
    begins = [begin(number) for number in range(40) for _ in range(10)]
    edges = edges_of(BOUNDS, cuts_of(begins, edges_of(BOUNDS), slice_rows=100))
    assert sizes(begins, edges) == [100, 100, 100, 100]


def test_a_transaction_is_in_one_part_however_large():
    begins = sorted([begin(0)] * 3 + [begin(1)] * 500 + [begin(2)] * 3)
    cuts = cuts_of(begins, edges_of(BOUNDS), slice_rows=100)
    assert cuts == (begin(1),)
    assert cuts_of([begin(1)] * 500, edges_of(BOUNDS), slice_rows=100) == ()


def test_slices_that_are_small_enough_are_not_cut():
    bounds = ReleaseBounds(3, 0, 10, (), cuts_us=(6,))
    begins = [begin(n, us) for us, count in ((5, 100), (T, 300)) for n in range(count)]
    cuts = cuts_of(begins, edges_of(bounds), slice_rows=100)
    assert cuts == (begin(100), begin(200))


def test_there_are_so_many_slices_at_most():
    begins = [begin(number // 10, us) for us in range(1, 10) for number in range(5_000)]
    edges = edges_of(BOUNDS, cuts_of(begins, edges_of(BOUNDS), slice_rows=1))
    assert SLICES_MAX // 2 < len(edges) - 1 <= SLICES_MAX
    assert max(sizes(begins, edges)) < 3 * len(begins) / SLICES_MAX


@pytest.mark.parametrize("seed", range(20))
def test_cuts_ascend_within_the_bounds_and_before_some_transaction(seed):
    chance = random.Random(seed)
    begins = sorted(
        begin(chance.randrange(60), chance.randint(1, 10)) for _ in range(chance.randrange(2_000))
    )
    cuts = cuts_of(begins, edges_of(BOUNDS), slice_rows=chance.randint(1, 500))
    assert list(cuts) == sorted(set(cuts))
    assert set(cuts) <= set(begins)
    assert all(0 < bisect_left(begins, one) < bisect_right(begins, one) for one in cuts)
