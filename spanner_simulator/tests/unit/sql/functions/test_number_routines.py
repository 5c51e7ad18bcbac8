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
    first, second = (numbers.pg_numeric_order(f"{value:f}") for value in (one, other))
    assert (first < second, first == second) == (one < other, one == other)


@pytest.mark.parametrize(
    ("small", "large"),
    [("-1.25", "-1.2"), ("0", "1e-300"), ("9.99", "10"), ("-1e200", "-99"), ("1e200", "NaN")],
)
def test_the_order_knows_no_limit_of_digits(small: str, large: str) -> None:
    assert numbers.pg_numeric_order(small) < numbers.pg_numeric_order(large)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (numbers.pg_numeric_aggregate(["1.0", None, "2.25"], "sum"), "3.25"),
        (numbers.pg_numeric_aggregate([None], "sum"), None),
        (numbers.pg_numeric_aggregate(["1", "2"], "avg"), "1.5000000000000000"),
        (numbers.pg_numeric_aggregate(["9.5", "10.5", None], "max"), "10.5"),
        (numbers.pg_numeric_aggregate(["9.5", "10.5", "NaN"], "min"), "9.5"),
        (numbers.pg_numeric_computed("0", "/", "5.0"), "0.00000000000000000000"),
        (numbers.pg_numeric_computed("NaN", "/", "0"), "NaN"),
        (numbers.pg_numeric_computed("-7.5", "%", "2"), "-1.5"),
        (numbers.float_to_pg_numeric(0.1), "0.1"),
        (numbers.float_to_pg_numeric(math.nan), "NaN"),
        (numbers.text_to_float(" -Infinity "), "-inf"),
        (numbers.text_to_int("-0x1F"), -31),
    ],
)
def test_values(found: object, expected: object) -> None:
    assert found == expected


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: numbers.pg_numeric_to_int("1e30"), Code.OUT_OF_RANGE),
        (lambda: numbers.text_to_pg_numeric("1,5"), Code.INVALID_ARGUMENT),
        (lambda: numbers.pg_text_to_float("x"), Code.INVALID_ARGUMENT),
        (lambda: numbers.text_to_int("9223372036854775808"), Code.OUT_OF_RANGE),
        (
            lambda: numbers.numeric_computed(Decimal("1e28"), "*", Decimal("1e28")),
            Code.OUT_OF_RANGE,
        ),
    ],
)
def test_refusals(call, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        call()
    assert caught.value.code is code
