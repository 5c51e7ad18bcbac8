"""Health: alive while the loop steps, ready when it says so."""

from __future__ import annotations

import pytest

from tidegate.program.health import Health


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(stalled_after_s=10, clock=clock)


def test_it_starts_alive_and_not_ready(health):
    assert health.fault == ""
    assert health.not_ready == "starting"


def test_ready_until_it_waits(health):
    health.set_ready()
    assert health.not_ready == ""
    health.set_not_ready("waiting for topics")
    assert health.not_ready == "waiting for topics"


def test_a_loop_that_stands_still_is_neither_alive_nor_ready(health, clock):
    health.set_ready()
    clock.seconds += 10
    assert health.fault == ""
    clock.seconds += 1
    assert health.fault == health.not_ready == "no step for 11 s"


def test_a_step_makes_it_alive(health, clock):
    health.set_ready()
    clock.seconds += 11
    health.step()
    assert health.fault == health.not_ready == ""
