"""Release times grow with the source's order, whatever arrives when."""

import random

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


def test_a_late_event_has_the_earliest_time_and_one_of_the_future_its_files():
    times = EventTimes()
    assert times.time_of(key(1), 20, earliest_us=30, latest_us=99) == (30, True)
    assert times.time_of(key(2), 2_000, earliest_us=30, latest_us=99) == (99, False)


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


def test_what_is_closed_is_forgotten():
    times = EventTimes()
    for number in range(100):
        times.time_of(key(number), number, earliest_us=0, latest_us=999)
    times.time_of(key(200), 200, earliest_us=90, latest_us=999)
    assert len(times._given) == 11
