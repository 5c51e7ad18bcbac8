"""The manual clock: it moves only when a test moves it, and a sleep takes no time of the test's."""

from __future__ import annotations

from tidegate.producer.memory.clock import ManualClock


def test_time_passes_on_both_clocks():
    clock = ManualClock(wall_us=1_000)
    clock.advance(50)
    clock.sleep(0.002)

    assert (clock.monotonic_us(), clock.wall_us()) == (2_050, 3_050)


def test_the_wall_clock_is_set_alone():
    clock = ManualClock(wall_us=1_000)
    clock.step_wall(-400)

    assert (clock.monotonic_us(), clock.wall_us()) == (0, 600)
