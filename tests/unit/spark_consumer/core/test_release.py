"""Cutting: covers everything, at commit timestamps, in portions of about the size asked for."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.spark_consumer.core.batch_state import Segment
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.release import (
    NO_CHANGES,
    QUANTILES,
    Distribution,
    compaction_of,
    cut,
    first_ordinals,
    overlapping,
    releases_of,
    segments_of,
)

weights = st.lists(st.tuples(st.integers(1, 40), st.floats(0.5, 9)), max_size=40)


@given(weights=weights, rows_max=st.integers(1, 30))
def test_parts_ascend_end_at_the_bound_and_are_no_larger_than_asked(weights, rows_max):
    bounds = cut(weights, after_us=0, through_us=40, rows_max=rows_max)
    assert list(bounds) == sorted(set(bounds))
    assert bounds[-1] == 40
    for low, high in zip((0, *bounds), bounds, strict=False):
        inside = [(us, weight) for us, weight in weights if low < us <= high]
        distinct = {us for us, _ in inside}
        assert len(distinct) <= 1 or sum(weight for _, weight in inside) <= rows_max + max(
            weight for _, weight in inside
        ) * len([us for us, _ in inside if us == max(distinct)])


@pytest.mark.rule("sink-whole-transactions")
def test_equal_timestamps_stay_together():
    assert cut([(5, 4.0), (5, 4.0), (6, 4.0)], after_us=0, through_us=9, rows_max=2) == (5, 9)


def segment(name, min_us, max_us, rows=10):
    return Segment(name, min_us, max_us, rows, (max_us,))


def test_overlap_is_exclusive_below_and_inclusive_above():
    segments = [segment("a", 1, 5), segment("b", 6, 10), segment("c", 11, 15)]
    for after_us, through_us, names in ((5, 10, "b"), (4, 11, "abc")):
        found = overlapping(segments, after_us=after_us, through_us=through_us)
        assert [one.name for one in found] == list(names)


def releases(**changes):
    arguments = {
        "after_us": 10,
        "through_us": 20,
        "fresh": NO_CHANGES,
        "segments": (),
        "first_number": 4,
        "rows_max": 100,
        "slice_rows": 1_000,
    }
    return releases_of(**{**arguments, **changes})


def test_no_release_without_changes_or_without_a_new_watermark():
    assert releases() == ()
    assert releases(segments=[segment("later", 21, 30)]) == ()
    assert releases(through_us=10, fresh=Distribution(5, (10,))) == ()
    segments = [segment("old", 15, 30), segment("later", 21, 30)]
    (release,) = releases(fresh=Distribution(5, (12, 15)), segments=segments)
    assert (release.number, release.after_us, release.through_us) == (4, 10, 20)
    assert release.segments == ("old",)  # those that it may need
    assert cut([], after_us=0, through_us=9, rows_max=1) == (9,)


EVEN = Distribution(400, tuple(range(11, 21)), 1)


@pytest.mark.parametrize(
    ("fresh", "limits", "slices"),
    [
        (EVEN, {"slice_rows": 100}, ((10, 13), (13, 15), (15, 18), (18, 20))),
        # A little more than a slice is one slice.
        (EVEN, {"slice_rows": 300}, ((10, 20),)),
        # Changes of one commit timestamp are in one slice.
        (Distribution(400, (12, *(15,) * 8, 20)), {"slice_rows": 50}, ((10, 15), (15, 20))),
        # A small release is not cut.
        (EVEN, {"slice_rows": 100, "small_rows_max": 400, "small_bytes_max": 1}, ((10, 20),)),
    ],
)
def test_a_large_release_is_cut_into_slices_of_about_equal_size(fresh, limits, slices):
    (release,) = releases(fresh=fresh, rows_max=1_000, **limits)
    assert (release.slices, release.is_small) == (slices, "small_rows_max" in limits)


def test_what_waited_counts_for_the_slices_and_each_release_has_its_own():
    waiting = Segment("s", 11, 40, 400, tuple(range(13, 41, 3)))
    first, second = releases(segments=[waiting], through_us=40, rows_max=200, slice_rows=100)
    assert [len(one.slices) for one in (first, second)] == [2, 2]
    assert first.through_us == second.after_us


@pytest.mark.rule("sink-own")
@given(
    times_us=st.lists(st.integers(1, 30), max_size=80),
    cuts_us=st.sets(st.integers(1, 29)).map(sorted),
)
def test_ordinals_are_places_among_all_changes_whatever_the_cuts_are(times_us, cuts_us):
    slices = ReleaseBounds(0, 0, 30, (), cuts_us=tuple(cuts_us)).slices
    inside = [sorted(us for us in times_us if low < us <= high) for low, high in slices]
    firsts = first_ordinals(len(of_slice) for of_slice in inside)
    numbered = [
        (first + place, us)
        for first, of_slice in zip(firsts, inside, strict=True)
        for place, us in enumerate(of_slice)
    ]
    assert numbered == list(enumerate(sorted(times_us)))


def test_early_changes_become_segments_that_cover_them():
    early = Distribution(640, tuple(range(101, 165)))
    segments = segments_of(early, batch=7, min_us=100, max_us=164, rows_max=200)
    assert (segments[0].min_us, segments[-1].max_us) == (100, 164)
    assert all(a.max_us + 1 == b.min_us for a, b in itertools.pairwise(segments))
    assert sum(s.rows for s in segments) == 640
    assert len({s.name for s in segments}) == len(segments) > 2
    assert segments_of(NO_CHANGES, batch=7, min_us=1, max_us=2, rows_max=1) == ()
    (only,) = segments_of(Distribution(7, (5, 6, 9)), batch=1, min_us=4, max_us=9, rows_max=50)
    assert only == Segment("000000000001-000", 4, 9, 7, (5, 6, 9))


def test_too_many_segments_are_joined_a_bounded_number_at_a_time():
    many = [segment(f"{n:02d}", n * 10, n * 10 + 9, rows=100) for n in range(20)]
    assert compaction_of(many[:4], batch=9, segments_max=4, rows_max=1000) is None
    compaction = compaction_of(many, batch=9, segments_max=10, rows_max=10_000)
    joined = [s for s in many if s.name in compaction.inputs]
    output = compaction.output
    assert (len(compaction.inputs), output.rows) == (8, 800)
    assert (output.min_us, output.max_us) == (joined[0].min_us, joined[-1].max_us)
    assert len(output.quantiles_us) == QUANTILES
    assert set(output.quantiles_us) == {s.max_us for s in joined}


def test_large_segments_are_not_rewritten():
    many = [segment(f"{n:02d}", n, n, rows=600) for n in range(20)]
    assert compaction_of(many, batch=9, segments_max=10, rows_max=1000) is None
    many[3:5] = [segment("small", 3, 3, rows=5), segment("small too", 4, 4, rows=5)]
    compaction = compaction_of(many, batch=9, segments_max=10, rows_max=1000)
    assert {"small", "small too"} <= set(compaction.inputs)
    assert compaction.output.rows <= 1000


def is_small(rows, size_bytes, segments=(), **limits):
    arguments = {"small_rows_max": 100, "small_bytes_max": 1_000} | limits
    fresh = Distribution(rows, (15,) if rows else (), size_bytes)
    (release,) = releases(fresh=fresh, segments=segments, **arguments)
    return release.is_small


def test_a_release_is_small_by_all_that_it_reads():
    waiting = Segment("a", 5, 15, 60, (15,), size_bytes=600)
    for rows, size_bytes, segments, limits, expected in (
        (40, 400, [waiting], {}, True),
        (41, 400, [waiting], {}, False),
        (40, 401, [waiting], {}, False),
        # What lies above the new watermark is not read.
        (100, 1_000, [Segment("b", 21, 30, 60, (30,), size_bytes=600)], {}, True),
        # A size is unknown, or there is no bound.
        (1, None, [], {}, False),
        (1, 1, [Segment("a", 5, 15, 1, (15,))], {}, False),
        (1, 1, [], {"small_rows_max": 0}, False),
    ):
        assert is_small(rows, size_bytes, segments, **limits) is expected


def test_the_size_of_segments_is_never_less_than_theirs():
    fresh = Distribution(10, (5, 6, 7, 8), 1_000)
    parts = segments_of(fresh, batch=1, min_us=5, max_us=8, rows_max=5)
    assert [part.size_bytes for part in parts] == [1_000] * len(parts)
    joined = compaction_of(parts, batch=2, segments_max=1, rows_max=100)
    assert joined.output.size_bytes == 1_000 * len(joined.inputs)
    older = [replace(part, size_bytes=None) for part in parts]
    assert compaction_of(older, batch=2, segments_max=1, rows_max=100).output.size_bytes is None


def test_wide_rows_give_more_releases_and_segments_than_their_number_does():
    times = tuple(range(11, 21))
    narrow, wide = Distribution(100, times, 1_000), Distribution(100, times, 50_000)
    unknown = Distribution(100, times, None)
    limits = {"rows_max": 100, "bytes_max": 10_000}
    for fresh, parts in ((narrow, 1), (wide, 5), (unknown, 1)):
        found = releases(fresh=fresh, **limits)
        assert len(found) == parts
        stored = segments_of(fresh, batch=1, min_us=11, max_us=20, **limits)
        assert len(stored) == parts
        assert sum(one.rows for one in stored) == 100
    waiting = replace(segment("a", 11, 20, rows=100), quantiles_us=times, size_bytes=50_000)
    assert len(releases(segments=(waiting,), **limits)) == 5
    assert len(releases(segments=(waiting,), rows_max=100)) == 1
