"""When a run ends because it has caught up, and when it starts its query again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.lineage.frontier import Watermark
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.runs import CaughtUp, QueryRestarts, is_late_write


def test_spark_says_in_two_ways_that_another_run_has_written():
    for text, is_late in (
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple", True),
        ("Multiple streaming queries are concurrently using file:/check/spark/commits.", True),
        ("[CONCURRENT_QUERY] Another instance of this query was just started", False),
        ("[STREAM_FAILED] Query terminated with exception: Some data may have been lost", False),
    ):
        assert is_late_write(text) == is_late


def test_a_query_is_started_again_a_few_times_in_a_while():
    restarts = QueryRestarts(restarts_max=2, within_s=10)
    found = [restarts.may_restart(now_s=now_s) for now_s in (0, 9, 9.5, 10, 10.5, 19, 19.5)]
    assert found == [True, True, False, True, False, True, False]


BEGUN_US = 1_000_000_000


def state_of(batch, watermark_us, **rest):
    return State(prefix="bank", query_id="q", batch=batch, watermark_us=watermark_us, **rest)


def frontier(watermark):
    return SimpleNamespace(watermark=lambda: watermark)


def test_it_ends_with_the_watermark_or_with_the_stream():
    behind, has_ended = {"next_release": 3, "mirror_release": 1}, {"stream_has_ended": True}
    for seen, is_reached in (
        (state_of(0, BEGUN_US - 1), False),
        (state_of(0, BEGUN_US), True),
        (state_of(0, 5, **has_ended), True),
        (state_of(0, BEGUN_US, **behind), False),
        (state_of(0, 5, **has_ended, **behind), False),
    ):
        goal = CaughtUp(BEGUN_US, now_s=0)
        assert not goal.is_reached
        goal.finish_batch(seen, now_s=1)
        assert goal.is_reached is is_reached


def test_a_stream_that_had_ended_before_gives_no_batch():
    goal = CaughtUp(BEGUN_US, now_s=0)
    goal.resume(None)
    assert not goal.is_reached
    goal.resume(state_of(7, 5, stream_has_ended=True))
    assert goal.is_reached
    goal = CaughtUp(BEGUN_US, now_s=0)
    goal.finish_batch(state_of(8, BEGUN_US), now_s=1)
    goal.resume(state_of(7, 5))  # a state that was read late hides no younger one
    assert goal.is_reached


def test_it_says_once_in_half_a_minute_what_it_waits_for():
    goal = CaughtUp(BEGUN_US, now_s=100)
    assert [goal.is_due(now_s=now_s) for now_s in (129, 130, 131, 159, 160)] == [
        False, True, False, False, True
    ]  # fmt: skip
    goal.finish_batch(state_of(0, BEGUN_US), now_s=170)
    assert not goal.is_due(now_s=200)


SLOW = frontier(Watermark(BEGUN_US - 2_500_000, "token7"))


@pytest.mark.parametrize("known", [None, frontier(None), SLOW])
def test_it_names_what_it_waits_for(known):
    goal = CaughtUp(BEGUN_US, now_s=100)
    if known is not SLOW:
        waiting = goal.waiting(known, now_s=142.04)
        assert (waiting.behind_s, waiting.idle_s) == (None, 42.0)
        assert "first progress records" in waiting.waits_for
    # A long batch is not blamed on the fleet.
    waiting = goal.waiting(known, now_s=190, batch_s=88.04)
    assert (waiting.idle_s, waiting.batch_s) == (90, 88.0)
    assert "the running batch, for 88 s" in waiting.waits_for
    assert "fleet" not in waiting.waits_for
    goal.finish_batch(state_of(0, 5), now_s=110)
    running = goal.waiting(SLOW, now_s=112)
    assert (running.behind_s, running.idle_s) == (2.5, 2)
    assert running.waits_for == "stream partition token7, which is the slowest"
    assert "has written nothing new" in goal.waiting(SLOW, now_s=140).waits_for
