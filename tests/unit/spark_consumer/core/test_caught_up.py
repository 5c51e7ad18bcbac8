"""The end of a run that is to catch up, and what it says until then."""

from types import SimpleNamespace

import pytest

from tidegate.lineage.frontier import Watermark
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.caught_up import CaughtUp

BEGUN_US = 1_000_000_000


def state(batch, watermark_us, **rest):
    return State(prefix="bank", query_id="q", batch=batch, watermark_us=watermark_us, **rest)


def frontier(watermark):
    return SimpleNamespace(watermark=lambda: watermark)


@pytest.mark.parametrize(
    ("seen", "is_reached"),
    [
        (state(0, BEGUN_US - 1), False),
        (state(0, BEGUN_US), True),
        (state(0, 5, stream_has_ended=True), True),
        (state(0, BEGUN_US, next_release=3, mirror_release=1), False),
        (state(0, 5, stream_has_ended=True, next_release=3, mirror_release=1), False),
    ],
)
def test_it_ends_with_the_watermark_or_with_the_stream(seen, is_reached):
    goal = CaughtUp(BEGUN_US, now_s=0)
    assert not goal.is_reached
    goal.finish_batch(seen, now_s=1)
    assert goal.is_reached is is_reached


def test_a_stream_that_had_ended_before_gives_no_batch():
    goal = CaughtUp(BEGUN_US, now_s=0)
    goal.resume(None)
    assert not goal.is_reached
    goal.resume(state(7, 5, stream_has_ended=True))
    assert goal.is_reached


def test_a_state_that_was_read_late_hides_no_younger_one():
    goal = CaughtUp(BEGUN_US, now_s=0)
    goal.finish_batch(state(8, BEGUN_US), now_s=1)
    goal.resume(state(7, 5))
    assert goal.is_reached


def test_it_says_once_in_half_a_minute_what_it_waits_for():
    goal = CaughtUp(BEGUN_US, now_s=100)
    assert [goal.is_due(now_s=now_s) for now_s in (129, 130, 131, 159, 160)] == [
        False, True, False, False, True
    ]  # fmt: skip
    goal.finish_batch(state(0, BEGUN_US), now_s=170)
    assert not goal.is_due(now_s=200)


@pytest.mark.parametrize("known", [None, frontier(None)])
def test_without_a_watermark_it_waits_for_the_first_records(known):
    waiting = CaughtUp(BEGUN_US, now_s=100).waiting(known, now_s=142.04)
    assert (waiting.behind_s, waiting.idle_s) == (None, 42.0)
    assert "first progress records" in waiting.waits_for


def test_it_names_the_slowest_stream_partition_and_a_fleet_that_stands_still():
    goal = CaughtUp(BEGUN_US, now_s=100)
    goal.finish_batch(state(0, 5), now_s=110)
    slow = frontier(Watermark(BEGUN_US - 2_500_000, "token7"))
    running = goal.waiting(slow, now_s=112)
    assert (running.behind_s, running.idle_s) == (2.5, 2)
    assert running.waits_for == "stream partition token7, which is the slowest"
    assert "has written nothing new" in goal.waiting(slow, now_s=140).waits_for


@pytest.mark.parametrize("known", [None, frontier(Watermark(BEGUN_US - 2_500_000, "token7"))])
def test_a_long_batch_is_not_blamed_on_the_fleet(known):
    waiting = CaughtUp(BEGUN_US, now_s=100).waiting(known, now_s=190, batch_s=88.04)
    assert (waiting.idle_s, waiting.batch_s) == (90, 88.0)
    assert "the running batch, for 88 s" in waiting.waits_for
    assert "fleet" not in waiting.waits_for
