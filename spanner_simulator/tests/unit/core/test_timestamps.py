from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.timestamps import (
    MAX_NS,
    MIN_NS,
    CommitClock,
    format_ns,
    format_us,
    parse_ns,
)
from spanner_simulator.errors import Code, SpannerError


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        ("2000-01-01 00:00:00", 946_684_800 * 10**9),
    ],
)
def test_parse(text: str, nanoseconds: int) -> None:
    assert parse_ns(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2024-13-01T00:00:00Z", "2024-01-01", "\uff12\uff1024-01-01T00:00:00Z"],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ns(text)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_the_fraction_is_as_long_as_it_must_be() -> None:
    assert format_us(0) == "1970-01-01T00:00:00Z"
    assert format_us(1) == "1970-01-01T00:00:00.000001Z"
    assert format_us(500_000) == "1970-01-01T00:00:00.5Z"
    assert format_ns(1) == "1970-01-01T00:00:00.000000001Z"


@given(st.integers(MIN_NS, MAX_NS))
def test_format_and_parse_are_inverse(timestamp_ns: int) -> None:
    assert parse_ns(format_ns(timestamp_ns)) == timestamp_ns


def test_commit_timestamps_grow_and_come_after_a_closed_time() -> None:
    clock = CommitClock()
    given_out = []
    for now_us in (100, 100, 50, 200):
        given_out.append(clock.next_us(now_us))
        clock.committed(given_out[-1])
    clock.close(500)
    assert (given_out, clock.next_us(100)) == ([100, 101, 102, 200], 501)


@pytest.mark.parametrize(
    ("event", "next_us"), [("committed", 301), ("turned", 300), ("schema_changed", 301)]
)
def test_a_strong_read_sees_what_is_ahead_of_the_clock_and_closes_it(
    event: str, next_us: int
) -> None:
    clock = CommitClock()
    getattr(clock, event)(300)
    assert clock.is_last_open() == (event == "committed")
    assert (clock.newest_us, clock.next_us(100)) == (300, next_us)
    assert clock.read_now_us(100) == 300
    assert not clock.is_last_open()
    assert clock.next_us(100) == 301
