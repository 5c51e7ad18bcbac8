"""Stalls: how long a query may be silent, and which time counts as silence."""

from __future__ import annotations

import pytest

from tidegate.producer.core.stall_watch import StallWatch, stall_after_us
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.schemas.progress import ChildPartition

SECOND_US = 1_000_000
LIMIT_US = 10 * SECOND_US


def partition(token):
    return StreamPartition(ChildPartition(token, (), 1_000))


@pytest.fixture
def watch():
    one = StallWatch(LIMIT_US)
    one.tick(0)
    return one


def let_pass(watch, seconds, *, begin=0):
    for second in range(seconds):
        watch.tick((begin + second + 1) * SECOND_US)


@pytest.mark.rule("spanner-heartbeat-silence")
def test_a_query_is_silent_from_when_it_was_heard(watch):
    a, b = partition("a"), partition("b")
    watch.hear(1, a)
    watch.hear(2, b)
    let_pass(watch, 9)
    watch.hear(1, a)
    let_pass(watch, 1, begin=9)
    assert watch.stalled() == [b]

    let_pass(watch, 9, begin=10)
    assert watch.stalled() == [b, a]


def test_what_ended_or_waits_is_not_expected(watch):
    watch.hear(1, partition("a"))
    watch.forget(1)
    watch.forget(7)
    let_pass(watch, 60)

    assert watch.stalled() == []


def test_a_worker_that_stood_still_has_heard_nothing_from_anybody(watch):
    watch.hear(1, partition("a"))
    watch.tick(3_600 * SECOND_US)

    assert watch.stalled() == []


@pytest.mark.rule("spanner-heartbeat-silence")
@pytest.mark.parametrize(
    ("heartbeat_ms", "seconds"), [(1_000, 10), (300_000, 3_000), (100, 5), (500, 5)]
)
def test_ten_heartbeats_and_never_less_than_a_busy_host_needs(heartbeat_ms, seconds):
    assert stall_after_us(heartbeat_ms) == seconds * SECOND_US
