"""Points in time."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
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
     "1970-01-01T00:00:00+99:99", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59",
     "9999-12-31T23:59:59-00:01", "x" * 100_000],
)  # fmt: skip
def test_what_is_no_timestamp_is_refused(text):
    with pytest.raises(SchemaError) as caught:
        parse_rfc3339_ns(text)
    assert len(str(caught.value)) < 200


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


OFFSETS = st.integers(-24 * 60 + 1, 24 * 60 - 1)


@given(
    st.datetimes(timezones=OFFSETS.map(lambda minutes: timezone(timedelta(minutes=minutes)))),
    st.text("0123456789", max_size=9),
)
def test_an_offset_is_taken_off_and_leads_no_further_than_the_calendar(local, fraction):
    text = local.replace(microsecond=0).isoformat()
    whole, zone = text[:19], text[19:]
    written = f"{whole}.{fraction}{zone}" if fraction else text
    year_1 = datetime(1, 1, 1, tzinfo=UTC)
    elapsed_s = (local.replace(microsecond=0) - year_1) // timedelta(seconds=1)
    if not 0 <= elapsed_s < (YEAR_10000_NS - YEAR_1_NS) // 10**9:
        with pytest.raises(SchemaError):
            parse_rfc3339_ns(written)
        return
    instant_ns = YEAR_1_NS + elapsed_s * 10**9 + int((fraction or "0").ljust(9, "0"))
    assert parse_rfc3339_ns(written) == instant_ns
    assert parse_rfc3339_ns(format_rfc3339(instant_ns)) == instant_ns


@given(st.lists(st.integers(YEAR_1_NS, YEAR_10000_NS - 1), min_size=2, max_size=2).map(sorted))
def test_later_instants_are_never_written_as_earlier(instants):
    first, second = (format_rfc3339(instant).removesuffix("Z") for instant in instants)
    assert first <= second


NEARLY = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9٣]{0,10})?"
    r"(Z|z|[+-][0-9]{2}:[0-9]{2})?",
    fullmatch=True,
)


def plainly_parsed(text):
    """The oracle: one pattern for the whole text, and nothing remembered."""
    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)",
        text,
        re.ASCII | re.IGNORECASE,
    )
    if match is None:
        return None
    seconds, fraction, zone = match.groups()
    try:
        local = datetime.fromisoformat(seconds + ("+00:00" if zone in "Zz" else zone))
        elapsed = local.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return elapsed // timedelta(seconds=1) * 10**9 + int((fraction or "").ljust(9, "0"))


@given(st.text() | NEARLY)
@example("2024-01-02T03:04:05.Z")
@example("2024-01-02T03:04:05.1234567890Z")
@example("2024-01-02T03:04:05.٣Z")
@example("2024-01-02T03:04:05.-1Z")
@example("2024-01-02T03:04:05.1_0Z")
@example("2024-01-02T03:04:05,5Z")
@example("2024-01-02T03:04:0Z")
@example("Z")
def test_any_text_is_parsed_as_by_one_pattern(text):
    # Twice: the second time its seconds are known.
    for _ in range(2):
        expected = plainly_parsed(text)
        if expected is not None:
            assert parse_rfc3339_ns(text) == expected
            continue
        with pytest.raises(SchemaError) as caught:
            parse_rfc3339_ns(text)
        assert caught.value.fields["text"] == text[:80]


def test_instants_of_one_second_differ_below_a_microsecond():
    texts = [f"2024-01-02T03:04:05.{fraction:09d}Z" for fraction in (0, 1, 999, 1_000, 999_999_999)]
    first, *others = (parse_rfc3339_ns(text) for text in texts)
    assert [other - first for other in others] == [1, 999, 1_000, 999_999_999]
