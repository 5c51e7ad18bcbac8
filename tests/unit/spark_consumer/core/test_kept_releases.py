"""Which manifests are dropped, and when."""

from random import Random

import pytest

from tidegate.spark_consumer.core.kept_releases import first_kept


def test_without_a_limit_all_are_kept():
    assert all(first_kept(n, n, mirrored=n, kept=0) is None for n in range(1_000))


@pytest.mark.parametrize(("kept", "step"), [(1, 1), (15, 1), (200, 20), (5_000, 100)])
def test_about_so_many_are_kept_and_dropped_in_steps(kept, step):
    first = 0
    for number in range(3 * kept + 500):
        due = first_kept(number, number, mirrored=number, kept=kept)
        if due is not None:
            assert due % step == 0
            assert due > first
            first = due
        assert kept <= number + 1 - first < kept + step or first == 0
    assert first > kept


def test_the_manifest_of_the_mirrors_cut_is_kept_however_old_it_is():
    assert first_kept(50, 50, mirrored=50, kept=3) == 48
    assert first_kept(50, 50, mirrored=7, kept=3) == 7
    assert first_kept(50, 50, mirrored=-1, kept=3) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_release_of_the_batch_is_dropped_and_none_is_missed(seed):
    random = Random(seed)
    kept, number, first = random.choice((1, 3, 40)), 0, 0
    for _ in range(300):
        last = number + random.choice((0, 0, 2, 30))
        due = first_kept(number, last, mirrored=number, kept=kept)
        if due is not None:
            assert 0 < due <= number
            first = due
        number = last + 1
    assert number - first < kept + 4 + 2 * 31
