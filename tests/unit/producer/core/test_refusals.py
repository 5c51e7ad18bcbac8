"""Refusals: how long a stopped stream partition has to wait, and that they are forgotten."""

from __future__ import annotations

from tidegate.producer.core.refusals import Refusals


def test_a_token_waits_from_when_it_was_stopped():
    refusals = Refusals(100)
    refusals.add("a", 1_000)

    assert refusals.query_not_before_us("a") == 1_100
    assert refusals.query_not_before_us("b") == 0


def test_the_last_time_counts():
    refusals = Refusals(100)
    refusals.add("a", 1_000)
    refusals.add("b", 1_010)
    refusals.add("a", 1_050)

    assert refusals.query_not_before_us("a") == 1_150


def test_what_is_long_ago_is_forgotten():
    refusals = Refusals(100)
    for number in range(1_000):
        refusals.add(f"t{number}", number)

    assert len(refusals._stopped_us) == 100
    assert refusals.query_not_before_us("t0") == 0
