"""The benchmark of the limits of files still runs, on a part of what they are."""

from __future__ import annotations

from benchmarks.producer.file_limits import FILE_LIMITS, formula_bytes, held, release_times


def test_what_is_held_grows_with_objects_and_with_both_limits():
    # Far above what the process itself may need more: a megabyte or two.
    uuids = held("hold", 1, 50_000, 0, 0)["held_bytes"]
    both = held("hold", 1, 50_000, 10_000, 0)["held_bytes"]
    of_two = held("hold", 2, 50_000, 10_000, 20_000)
    assert 60 * 50_000 < uuids < both < of_two["held_bytes"] <= of_two["most_bytes"]


def test_the_same_is_held_of_files():
    found = held("read", 20_000)
    assert 0.5 < found["held_bytes"] / formula_bytes(uuids=20_000, times=20_000) < 2


def test_giving_a_time_takes_some_in_each_order():
    found = release_times(4_000, events=50)
    assert list(found) == [
        "in_order_40_us", "anywhere_40_us", "before_40_us",
        "in_order_3800_us", "anywhere_3800_us", "before_3800_us", "beyond_us",
    ]  # fmt: skip
    assert all(value > 0 for value in found.values())


def test_what_is_measured_has_its_names():
    assert list(FILE_LIMITS) == [
        "files, memory of 1 object", "files, memory of 10 objects", "files, release times",
    ]  # fmt: skip
