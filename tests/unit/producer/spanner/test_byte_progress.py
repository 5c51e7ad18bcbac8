"""A message that comes slowly is no silence, and one that comes byte by byte is."""

import itertools

import pytest

from tidegate.producer.spanner.byte_progress import RATE_MIN_BYTES_PER_S, ByteProgress

RATE = RATE_MIN_BYTES_PER_S


def signs(arrivals, *, until_s, every_s=1.0):
    """Return when a message says that it is not silent, of (second, bytes) that come of it."""
    progress, left, found = ByteProgress(), sorted(arrivals), []
    progress.wait(0.0, in_message=True)
    now = 0.0
    while now < until_s:
        now += every_s
        while left and left[0][0] <= now:
            progress.add(left.pop(0)[1])
        progress.wait(now, in_message=True)
        if progress.is_coming(now):
            found.append(now)
    return found


@pytest.mark.parametrize("bytes_per_s", [1, 10, 100, RATE - 1])
def test_bytes_that_come_more_slowly_than_the_least_rate_are_silence(bytes_per_s):
    """However long the limit of silence is: from one second on to the longest heartbeats'."""
    drops = [(second, bytes_per_s) for second in range(1, 3_001)]
    assert signs(drops, until_s=3_000) == []


@pytest.mark.parametrize("bytes_per_s", [RATE, 5 * RATE, 600_000])
def test_a_slow_link_is_no_silence(bytes_per_s):
    drops = [(second, bytes_per_s) for second in range(1, 61)]
    assert signs(drops, until_s=60) == [float(second) for second in range(1, 61)]


def test_a_link_in_bursts_is_no_silence():
    """16 KiB of each of 80 calls in turns, over a link of 4.8 Mbit/s: one in two seconds."""
    bursts = [(second, 16_384) for second in range(2, 60, 2)]
    found = signs(bursts, until_s=60)
    assert max(b - a for a, b in itertools.pairwise(found)) <= 2


def test_what_came_fast_pays_for_no_silence_after_it():
    """Not even megabytes: else a peer could hold a query for hours with its last byte."""
    drops = [(1, 10_000_000), *((second, 1) for second in range(2, 600))]
    assert signs(drops, until_s=600) == [1.0]


def test_each_message_begins_again():
    progress = ByteProgress()
    progress.wait(0.0, in_message=True)
    progress.add(1)
    progress.end_message()
    assert not progress.is_coming(1.0)  # nothing is waited for
    progress.wait(500.0, in_message=True)
    progress.add(2 * RATE)
    assert progress.is_coming(501.0)


def behind(progress, *seconds):
    return [second for second in seconds if progress.is_behind(second)]


def test_a_call_is_behind_others_for_a_time():
    progress = ByteProgress()
    assert behind(progress, 60) == []
    progress.wait(0.0, in_message=False)
    assert behind(progress, 0, 1, 2, 60, 120, 121, 3_600) == [2, 60, 120]
    progress.add(16_384)
    assert behind(progress, 60) == []
    progress.wait(100.0, in_message=True)
    assert behind(progress, 101, 102, 220, 221) == [102, 220]
    progress.end_message()
    progress.wait(300.0, in_message=False)
    assert behind(progress, 301, 302) == [302]


def test_single_bytes_do_not_let_a_call_be_behind_others_for_good():
    progress, found = ByteProgress(), []
    for second in range(0, 1_000, 3):
        progress.wait(float(second), in_message=True)
        found += behind(progress, second)
        progress.add(1)
    assert max(found) == 120
