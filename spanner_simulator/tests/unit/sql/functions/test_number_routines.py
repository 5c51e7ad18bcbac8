"""What Google's emulator has no answer to, by PostgreSQL's and GoogleSQL's own rules."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions import number_routines as numbers

DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=12)


@given(DECIMALS, DECIMALS)
def test_numerics_have_the_order_of_their_keys(one: Decimal, other: Decimal) -> None:
    first, second = (numbers.pg_numeric_order(numbers.pg_text(value)) for value in (one, other))
    assert (first < second, first == second) == (one < other, one == other)


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ("-1.25", "-1.2"), ("-0.001", "0"), ("0", "1e-300"), ("9.99", "10"), ("99", "1e200"),
        ("-1e200", "-99"), ("1e200", "NaN"), ("1", "1.000000000000000000001"),
    ],
)  # fmt: skip
def test_the_order_knows_no_limit_of_digits(small: str, large: str) -> None:
    assert numbers.pg_numeric_order(small) < numbers.pg_numeric_order(large)
    assert numbers.pg_numeric_order(small) == numbers.pg_numeric_order(f"{small}")


def test_a_number_has_one_key_however_it_is_written() -> None:
    keys = {numbers.pg_numeric_order(text) for text in ("1", "1.0", "1.00", "0001", "1e0")}
    assert len(keys) == 1
    assert numbers.pg_numeric_order("-0.00") == numbers.pg_numeric_order("0")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (numbers.pg_numeric_sum(["1.0", None, "2.25"]), "3.25"),
        (numbers.pg_numeric_sum([None]), None),
        (numbers.pg_numeric_average(["1", "2"]), "1.5000000000000000"),
        (numbers.pg_numeric_average([]), None),
        (numbers.pg_numeric_extreme(["9.5", "10.5", None], True), "10.5"),
        (numbers.pg_numeric_extreme(["9.5", "10.5", "NaN"], False), "9.5"),
        (numbers.pg_numeric_extreme(["9.5", "NaN"], True), "NaN"),
        (numbers.pg_numeric_extreme([None], True), None),
        (numbers.pg_numeric_subtract("5.5", "1.25"), "4.25"),
        (numbers.pg_numeric_divide("0", "5.0"), "0.00000000000000000000"),
        (numbers.pg_numeric_divide("NaN", "5.0"), "NaN"),
        (numbers.pg_numeric_mod("-7.5", "2"), "-1.5"),
        (numbers.pg_numeric_abs("-1.50"), "1.50"),
        (numbers.pg_numeric_round("2.567", 2), "2.57"),
        (numbers.float_to_pg_numeric(0.1), "0.1"),
        (numbers.float_to_pg_numeric(math.nan), "NaN"),
        (numbers.float32_text(math.inf), "inf"),
        (numbers.text_to_float(" -Infinity "), "-inf"),
        (numbers.bit_reversed(1, True), 2**62),
        (numbers.bit_reversed(-1, True), -1),
        (numbers.bit_reversed(1, False), -(2**63)),
        (numbers.shifted_left(-1, 63), -(2**63)),
        (numbers.shifted_left(1, 2**62), 0),
        (numbers.shifted_right(-1, 64), 0),
        (numbers.shifted_right(-8, 1), 2**63 - 4),
    ],
)
def test_values(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: numbers.pg_numeric_mod("1", "0"), Code.OUT_OF_RANGE),
        (lambda: numbers.pg_numeric_divide("1", "0"), Code.OUT_OF_RANGE),
        (lambda: numbers.pg_numeric_to_int("1e30"), Code.OUT_OF_RANGE),
        (lambda: numbers.pg_numeric_to_int("NaN"), Code.UNIMPLEMENTED),
        (lambda: numbers.float_to_pg_numeric(-math.inf), Code.INVALID_ARGUMENT),
        (lambda: numbers.text_to_pg_numeric("1,5"), Code.INVALID_ARGUMENT),
        (lambda: numbers.pg_text_to_float("x"), Code.INVALID_ARGUMENT),
        (lambda: numbers.text_to_int("9223372036854775808"), Code.OUT_OF_RANGE),
        (lambda: numbers.numeric_add(Decimal(99999999999999999999999999999), Decimal(1)),
         Code.OUT_OF_RANGE),
        (lambda: numbers.numeric_multiply(Decimal("1e28"), Decimal("1e28")), Code.OUT_OF_RANGE),
        (lambda: numbers.array_place(2, 2, 2), Code.OUT_OF_RANGE),
        (lambda: numbers.shifted_right(1, -1), Code.OUT_OF_RANGE),
    ],
)  # fmt: skip
def test_refusals(call, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        call()
    assert caught.value.code is code
