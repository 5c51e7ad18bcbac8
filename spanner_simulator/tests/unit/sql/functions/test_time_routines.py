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
    with pytest.raises(SpannerError, match="out of range in time zone"):
        times.timestamp_date(timestamp_ns, zone)
    assert times.timestamp_text(timestamp_ns, zone).endswith("+00")


@pytest.mark.parametrize(
    "call",
    [
        lambda: times.zone("+15:00"),
        lambda: times.zone("../etc/passwd"),
        lambda: times.text_to_timestamp("9999-12-31 23:59:59-08"),
        lambda: times.text_to_timestamp("0001-01-01 00:00:00+08"),
        lambda: times.timestamp_diff(MAX_NS, MIN_NS, "NANOSECOND"),
        lambda: times.timestamp_add(MAX_NS, 1, "NANOSECOND"),
    ],
)
def test_refusals(call) -> None:
    with pytest.raises(SpannerError) as caught:
        call()
    assert caught.value.code is Code.OUT_OF_RANGE
