"""Release times grow with the source's order, whatever arrives when."""

import random

import pytest

from tidegate.producer.datastream_source.event_times import EventTimes


def key(number):
    return b"\1" + number.to_bytes(8, "big")


def test_an_event_in_order_has_its_own_time():
    times = EventTimes()
    found = [times.time_of(key(n), 10 * n, earliest_us=0, latest_us=99)[0] for n in range(1, 5)]
    assert found == [10, 20, 30, 40]


def test_a_clock_that_goes_backwards_does_not_reorder():
    times = EventTimes()
    assert times.time_of(key(1), 50, earliest_us=0, latest_us=99) == (50, False)
    assert times.time_of(key(3), 70, earliest_us=0, latest_us=99) == (70, False)
    assert times.time_of(key(2), 10, earliest_us=0, latest_us=99) == (50, False)
    assert times.time_of(key(2), 90, earliest_us=0, latest_us=99) == (50, False)
    assert times.time_of(key(0), 60, earliest_us=0, latest_us=99) == (50, False)


def test_equal_keys_have_equal_times():
    times = EventTimes()
    assert times.time_of(key(1), 20, earliest_us=0, latest_us=99)[0] == 20
    assert times.time_of(key(1), 21, earliest_us=0, latest_us=99)[0] == 20
    assert times.time_of(key(1), 5, earliest_us=0, latest_us=99)[0] == 20


@pytest.mark.rule("datastream-late-events")
def test_a_late_event_has_the_earliest_time_and_one_of_the_future_its_files():
    times = EventTimes()
    assert times.time_of(key(1), 20, earliest_us=30, latest_us=99) == (30, True)
    assert times.time_of(key(2), 2_000, earliest_us=30, latest_us=99) == (99, False)


@pytest.mark.rule("datastream-in-order")
def test_in_any_order_of_arrival_times_grow_with_keys():
    for seed in range(50):
        rng = random.Random(seed)
        numbers = list(range(60))
        own = {n: 1_000 + 5 * n + rng.randrange(-40, 40) for n in numbers}
        arrival = sorted(numbers, key=lambda n: n + rng.uniform(0, 15))
        times = EventTimes()
        found = {
            n: times.time_of(key(n), own[n], earliest_us=0, latest_us=5_000)[0] for n in arrival
        }
        ordered = [found[n] for n in numbers]
        assert ordered == sorted(ordered)


def arrivals(rng):
    """Return key, own time and earliest open time of events that all come in time."""
    found, newest_us = [], 0
    own = {n: 1_000 + 5 * n + rng.randrange(-40, 40) for n in range(300)}
    for n in sorted(own, key=lambda n: n + rng.uniform(0, 15)):
        newest_us = max(newest_us, own[n])
        found.append((n, own[n], newest_us - 200))
    return found


def test_above_the_limit_those_that_are_not_late_are_in_order_and_the_others_named():
    named = 0
    for seed in range(100):
        events = arrivals(random.Random(seed))
        times, all_times, found = EventTimes(kept_max=8), EventTimes(), {}
        for n, own_us, earliest_us in events:
            more = {"earliest_us": earliest_us, "latest_us": 9_999}
            assert not all_times.time_of(key(n), own_us, **more)[1]
            time_us, is_late = times.time_of(key(n), own_us, **more)
            assert time_us >= earliest_us
            assert len(times._given) <= 8
            named += is_late
            if not is_late:
                found[n] = time_us
        in_order = [found[n] for n in sorted(found)]
        assert in_order == sorted(in_order)
        assert len(found) > 200
    assert named > 100


def test_what_is_above_the_forgotten_ones_is_never_late_and_what_was_among_them_is():
    times = EventTimes(kept_max=4)
    more = {"earliest_us": 100, "latest_us": 9_999}
    for n, own_us in ((10, 1_000), (20, 1_010), (30, 1_020), (40, 1_030), (50, 1_040)):
        assert times.time_of(key(n), own_us, **more) == (own_us, False)
    assert times.time_of(key(31), 500, **more) == (1_020, False)
    assert times.time_of(key(30), 500, **more) == (1_020, False)
    assert times.time_of(key(15), 500, **more) == (100, True)
    more["earliest_us"] = 1_021
    assert times.time_of(key(15), 1_022, **more) == (1_022, False)  # the forgotten are closed


def test_what_is_closed_is_forgotten():
    times = EventTimes()
    for number in range(100):
        times.time_of(key(number), number, earliest_us=0, latest_us=999)
    times.time_of(key(200), 200, earliest_us=90, latest_us=999)
    assert len(times._given) == 11
