"""Patience ends after its seconds on a quiet machine, and later on a busy one."""

from __future__ import annotations

import pytest

from tests.chaos.patience import Patience


@pytest.mark.parametrize(("load", "lasts_s"), [(0.0, 10), (2.0, 10), (4.0, 20), (20.0, 100)])
def test_the_time_that_programs_wait_for_a_core_does_not_count(load, lasts_s):
    now = [100.0]
    patience = Patience(10.0, clock=lambda: now[0], load=lambda: load, cores=2)

    while not patience.is_over:
        now[0] += 1.0
    assert now[0] - 100.0 == pytest.approx(lasts_s, abs=1.5)


def test_the_load_of_the_moment_counts():
    now, load = [0.0], [20.0]
    patience = Patience(10.0, clock=lambda: now[0], load=lambda: load[0], cores=2)
    now[0] = 50.0
    assert not patience.is_over  # five seconds are left
    load[0], now[0] = 1.0, 56.0
    assert patience.is_over
