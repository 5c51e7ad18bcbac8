"""Points in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns

YEAR_1_NS, YEAR_10000_NS = -62_135_596_800 * 10**9, 253_402_300_800 * 10**9


@pytest.mark.parametrize(
    ("text", "instant_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01t00:00:00.5z", 500_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("9999-12-31T23:59:59.999999999Z", YEAR_10000_NS - 1),
        ("0001-01-01T00:00:00Z", YEAR_1_NS),
    ],
)
def test_parsing(text, instant_ns):
    assert parse_rfc3339_ns(text) == instant_ns


@pytest.mark.parametrize(
    "text",
    ["", "now", "1970-01-01", "1970-01-01T00:00:00", "1970-01-01 00:00:00Z",
     "1970-02-30T00:00:00Z", "1970-01-01T00:00:00.0000000001Z", "1970-01-01T00:00:60Z",
     "1970-01-01T00:00:00.Z", "٢٠٢٤-01-01T00:00:00Z", "1970-01-01T00:00:00Z\n",
     "1970-01-01T00:00:00+99:99", "0000-01-01T00:00:00Z"],
)  # fmt: skip
def test_what_is_no_timestamp_is_refused(text):
    with pytest.raises(SchemaError):
        parse_rfc3339_ns(text)


@pytest.mark.parametrize(
    ("instant_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (1, "1970-01-01T00:00:00.000000001Z"),
        (YEAR_1_NS, "0001-01-01T00:00:00Z"),
    ],
)
def test_formatting(instant_ns, text):
    assert format_rfc3339(instant_ns) == text


@given(st.integers(YEAR_1_NS, YEAR_10000_NS - 1))
def test_what_is_formatted_comes_back(instant_ns):
    assert parse_rfc3339_ns(format_rfc3339(instant_ns)) == instant_ns
