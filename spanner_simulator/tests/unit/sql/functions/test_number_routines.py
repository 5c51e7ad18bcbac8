"""What Google's emulator has no answer to, by PostgreSQL's and GoogleSQL's own rules."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
