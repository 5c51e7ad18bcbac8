"""Framing, places of keys, instants, and values as JSON text."""

from __future__ import annotations

import json
import math
import re
import struct
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.json_values import date_text, decimal_text, double_text, float_text, quoted
from tidegate.schemas.partitioner import murmur2, topic_partition_of
from tidegate.schemas.wire_format import HEADER_BYTES, frame, frame_prefix, unframe


def test_the_hash_is_that_of_javas_client():
    """The values are from the tests of Kafka's own clients (UtilsTest.testMurmur2)."""
    for data, expected in (
        (b"21", -973932308),
        (b"a-little-bit-long-string", -985981536),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ):
        assert murmur2(data) == expected & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("00ffffffff02ffffffffffffffffff010204c3a4", -311594014),
        ("000000012c02020208c280c3bf", -193280515),
        ("00000000070202020206e38182c3", -1928775434),
        ("000000000702020204c3a4", -521334770),
    ],
)
def test_framed_avro_keys_stand_where_javas_client_puts_them(key, expected):
    """Keys begin with zeros and hold bytes beyond 127, here of each length modulo four.

    The values are those of Kafka's `Utils.murmur2`, line by line, with Java's 32-bit arithmetic.
    """
    assert murmur2(bytes.fromhex(key)) == expected % 2**32
    for count in (1, 6, 997):
        place = (expected & 0x7FFFFFFF) % count
        assert topic_partition_of(bytes.fromhex(key), count) == place


def test_the_header_is_a_zero_and_the_schema_id():
    assert frame(258, b"body") == b"\x00\x00\x00\x01\x02body"
    assert frame_prefix(258) == b"\x00\x00\x00\x01\x02"
    assert HEADER_BYTES == 5
    for other in (b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01x"):
        with pytest.raises(SchemaError):
            unframe(other)


@given(st.integers(0, 2**32 - 1), st.binary())
def test_what_is_framed_comes_back(schema_id, body):
    assert unframe(frame(schema_id, body)) == (schema_id, body)


YEAR_1_NS, YEAR_10000_NS = -62_135_596_800 * 10**9, 253_402_300_800 * 10**9


@pytest.mark.parametrize(
    ("text", "instant_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500_000_000),
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


def test_formatting():
    expected = {
        0: "1970-01-01T00:00:00Z",
        1_000: "1970-01-01T00:00:00.000001Z",
        1: "1970-01-01T00:00:00.000000001Z",
        YEAR_1_NS: "0001-01-01T00:00:00Z",
    }
    assert {instant_ns: format_rfc3339(instant_ns) for instant_ns in expected} == expected


@given(st.lists(st.integers(YEAR_1_NS, YEAR_10000_NS - 1), min_size=2, max_size=2).map(sorted))
def test_instants_are_formatted_in_their_order_and_come_back(instants):
    texts = [format_rfc3339(instant) for instant in instants]
    first, second = (text.removesuffix("Z") for text in texts)
    assert first <= second
    assert [parse_rfc3339_ns(text) for text in texts] == instants


NEARLY = st.builds(
    "{:.19}{}{}".format,
    st.datetimes().map(datetime.isoformat) | st.from_regex(r"[0-9]{4}(-[0-9]{2}){2}[Tt ][0-9:]{8}"),
    st.from_regex(r"([.,][0-9٣]{0,10})?", fullmatch=True),
    st.from_regex(r"(Z|z|[+-][0-2][0-9]:[0-5][0-9])?", fullmatch=True),
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


def as_float32(number):
    return struct.unpack(">f", struct.pack(">f", number))[0]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_is_read_again_as_itself(number):
    assert json.loads(double_text(number)) == number
    with suppress(OverflowError):
        narrow = as_float32(number)
        assert as_float32(json.loads(float_text(narrow))) == narrow


@pytest.mark.parametrize(
    "number", [0.1, 1.5, 3.4e38, 3.4028235e38, 1e-45, 1.42609065e-27, 123456.79, -2.0]
)
def test_a_float_of_32_bits_has_the_digits_that_it_needs(number):
    assert float_text(as_float32(number)) == repr(number)


@pytest.mark.parametrize("text", [float_text, double_text])
def test_what_json_has_no_number_for_is_spanners_text(text):
    assert [text(one) for one in (math.nan, math.inf, -math.inf)] == [
        '"NaN"', '"Infinity"', '"-Infinity"',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "text"),
    [("0E-9", "0"), ("1.500000000", "1.5"), ("100", "100"), ("-0.000000001", "-0.000000001"),
     ("99999999999999999999999999999.999999999", "99999999999999999999999999999.999999999")],
)  # fmt: skip
def test_decimals_have_all_digits_and_no_exponent(number, text):
    assert decimal_text(Decimal(number)) == text


def test_dates_and_texts():
    assert (date_text(0), date_text(-1)) == ('"1970-01-01"', '"1969-12-31"')
    assert quoted('ä"\n') == '"ä\\"\\n"'
