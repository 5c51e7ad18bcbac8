"""Texts of values in JSON: no digit is lost, none is invented."""

import json
import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.schemas.json_values import (
    date_text,
    decimal_text,
    double_text,
    float_text,
    quoted,
)


def as_float32(number):
    return struct.unpack(">f", struct.pack(">f", number))[0]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_of_32_bits_is_read_again_as_itself(number):
    assert as_float32(json.loads(float_text(number))) == number


@pytest.mark.parametrize("number", [0.1, 1.5, 3.4e38, 1e-45, 123456.79, -2.0])
def test_a_float_of_32_bits_has_the_digits_that_it_needs(number):
    assert float_text(as_float32(number)) == repr(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_of_64_bits_is_read_again_as_itself(number):
    assert json.loads(double_text(number)) == number


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
