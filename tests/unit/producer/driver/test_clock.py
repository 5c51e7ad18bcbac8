"""The clocks of the operating system, in microseconds."""

from __future__ import annotations

import time

from tidegate.producer.driver.clock import SystemClock, now_on

TOLERANCE_US = 5_000_000


def test_the_monotonic_clock_never_goes_back():
    clock = SystemClock()
    seen = [clock.monotonic_us() for _ in range(1_000)]

    assert seen == sorted(seen)


def test_the_wall_clock_counts_microseconds_since_1970():
    assert abs(SystemClock().wall_us() - time.time() * 1e6) < TOLERANCE_US


def test_a_sleep_takes_its_time():
    clock = SystemClock()
    before = clock.monotonic_us()
    clock.sleep(0.01)

    assert clock.monotonic_us() - before >= 10_000


def test_now_is_both_clocks():
    now = now_on(SystemClock())

    assert abs(now.wall_us - time.time() * 1e6) < TOLERANCE_US
    assert abs(now.monotonic_us - time.monotonic() * 1e6) < TOLERANCE_US
