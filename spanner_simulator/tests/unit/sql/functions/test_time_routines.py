from __future__ import annotations

import calendar
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.timestamps import MAX_NS, MIN_NS
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions import time_routines as times

ZONES = st.sampled_from(["UTC", "America/Los_Angeles", "Asia/Kolkata", "+05:30", "Europe/Paris"])


@given(st.integers(MIN_NS, MAX_NS), ZONES)
def test_the_text_of_a_timestamp_means_that_timestamp(timestamp_ns: int, zone: str) -> None:
    text = times.timestamp_text(timestamp_ns, zone)
    assert times.text_to_timestamp(text) == timestamp_ns


@given(st.dates(), st.integers(-200_000, 200_000))
def test_months_are_added_as_the_calendar_has_them(day: dt.date, count: int) -> None:
    year, month = divmod(day.year * 12 + day.month - 1 + count, 12)
    if not 1 <= year <= 9999:
        with pytest.raises(SpannerError):
            times.date_add_part(day, count, "MONTH")
        return
    last = calendar.monthrange(year, month + 1)[1]
    expected = dt.date(year, month + 1, min(last, day.day))
    assert times.date_add_part(day, count, "MONTH") == expected


@pytest.mark.parametrize(
    ("zone", "timestamp_ns"), [("America/Los_Angeles", MIN_NS), ("+05:00", MAX_NS)]
)
def test_a_time_without_a_year_in_its_zone_is_refused_but_can_be_told(
    zone: str, timestamp_ns: int
) -> None:
    for call in (
        times.timestamp_date,
        lambda *one: times.timestamp_extract(one[0], "YEAR", one[1]),
    ):
        with pytest.raises(SpannerError, match="out of range in time zone") as caught:
            call(timestamp_ns, zone)
        assert caught.value.code is Code.OUT_OF_RANGE
    assert times.timestamp_text(timestamp_ns, zone).endswith("+00")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: times.zone("+15:00"), Code.OUT_OF_RANGE),
        (lambda: times.zone("../etc/passwd"), Code.OUT_OF_RANGE),
        (lambda: times.text_to_timestamp("9999-12-31 23:59:59-08"), Code.OUT_OF_RANGE),
        (lambda: times.text_to_timestamp("0001-01-01 00:00:00+08"), Code.OUT_OF_RANGE),
        (lambda: times.timestamp_diff(MAX_NS, MIN_NS, "NANOSECOND"), Code.OUT_OF_RANGE),
        (lambda: times.timestamp_add(MAX_NS, 1, "NANOSECOND"), Code.OUT_OF_RANGE),
        (lambda: times.date_extract(dt.date(2024, 1, 1), "HOUR"), Code.INVALID_ARGUMENT),
        (lambda: times.pg_text_to_date("2024-02-30"), Code.INVALID_ARGUMENT),
        (lambda: times.pg_text_to_timestamp("x"), Code.INVALID_ARGUMENT),
    ],
)
def test_refusals(call, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        call()
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (times.date_trunc_part(dt.date(2024, 1, 3), "WEEK"), dt.date(2023, 12, 31)),
        (times.timestamp_extract(1_234_567_891, "NANOSECOND", "UTC"), 234_567_891),
        (times.timestamp_extract(1_234_567_891, "MICROSECOND", "UTC"), 234_567),
        (times.timestamp_unix(-1, 10**9), -1),
        (times.timestamp_diff(0, 1, "SECOND"), 0),
        (times.timestamp_trunc(-1, "SECOND", "UTC"), -(10**9)),
    ],
)
def test_values(found: object, expected: object) -> None:
    assert found == expected
