from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.key_encoding import (
    KeyPart,
    decode_key,
    encode_key,
    midpoint,
    successor,
    table_prefix,
)
from spanner_simulator.core.values import TypeCode, Value, ValueType

PREFIX = table_prefix("T")
WIDEST = Decimal("12345678901234567890123456789.123456789")
VALUES: dict[ValueType, st.SearchStrategy[Value]] = {
    ValueType("INT64"): st.integers(-(2**63), 2**63 - 1),
    ValueType("STRING"): st.text(st.characters(exclude_categories=("Cs",)), max_size=6),
    ValueType("BYTES"): st.binary(max_size=6),
    ValueType("BOOL"): st.booleans(),
    ValueType("FLOAT64"): st.floats(allow_nan=False),
    ValueType("DATE"): st.dates(),
    ValueType("TIMESTAMP"): st.integers(-(10**20), 10**20),
    ValueType("NUMERIC"): st.decimals(-(10**28), 10**28, places=9) | st.just(WIDEST),
    ValueType("FLOAT32"): st.floats(allow_nan=False, width=32),
    ValueType("UUID"): st.uuids().map(str),
    ValueType("ENUM", proto_name="a.E"): st.integers(-(2**31), 2**31 - 1),
}


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("value_type", list(VALUES), ids=lambda one: one.code)
@given(data=st.data())
def test_keys_sort_as_their_values_do(
    value_type: ValueType, descending: bool, data: st.DataObject
) -> None:
    first, second = (data.draw(VALUES[value_type]) for _ in range(2))
    parts = [KeyPart(value_type, descending), KeyPart(ValueType("INT64"), False)]
    one, other = (encode_key(PREFIX, parts, [value, 5]) for value in (first, second))

    if first == second:
        assert one == other
    else:
        assert (one < other) == ((first < second) != descending)  # type: ignore[operator]
    assert decode_key(one, PREFIX, parts) == [first, 5]


@pytest.mark.parametrize("is_greatest", [False, True])
@pytest.mark.parametrize("descending", [False, True])
def test_null_is_the_smallest_or_the_greatest_value(descending: bool, is_greatest: bool) -> None:
    parts = [KeyPart(ValueType("INT64"), descending, is_greatest)]
    null, low, high = (encode_key(PREFIX, parts, [one]) for one in (None, -(2**63), 2**63 - 1))
    assert (null > high if is_greatest else null < low) != descending
    assert decode_key(null, PREFIX, parts) == [None]


def test_a_prefix_of_a_key_bounds_all_keys_that_begin_with_it() -> None:
    parts = [KeyPart(ValueType("STRING"), False), KeyPart(ValueType("INT64"), False)]
    low = encode_key(PREFIX, parts, ["a"])
    high = successor(low)
    assert low <= encode_key(PREFIX, parts, ["a", 3]) < high
    assert not low <= encode_key(PREFIX, parts, ["a\x00", 3]) < high


def test_bytes_that_are_no_whole_key_are_not_decoded() -> None:
    parts = [KeyPart(ValueType("INT64"), False)]
    key = encode_key(PREFIX, parts, [1])
    assert decode_key(key[:-1], PREFIX, parts) is None
    assert decode_key(key + b"x", PREFIX, parts) is None
    assert decode_key(b"other", PREFIX, parts) is None


@given(st.binary(max_size=4), st.one_of(st.none(), st.binary(max_size=4)))
def test_a_midpoint_lies_strictly_inside(low: bytes, high: bytes | None) -> None:
    middle = midpoint(low, high)

    if middle is not None:
        assert low < middle
        assert high is None or middle < high
    else:
        assert high is not None
        assert high.rstrip(b"\x00") <= low + b"\x00\x00"


@pytest.mark.parametrize("code", ["FLOAT32", "FLOAT64"])
def test_nan_sorts_before_every_number(code: TypeCode) -> None:
    parts = [KeyPart(ValueType(code), False)]
    nan, lowest = (encode_key(PREFIX, parts, [value]) for value in (math.nan, -math.inf))
    decoded = decode_key(nan, PREFIX, parts)
    assert nan < lowest
    assert decoded is not None
    assert math.isnan(decoded[0])  # type: ignore[arg-type]  # a float


def test_arrays_are_no_keys() -> None:
    with pytest.raises(TypeError):
        encode_key(PREFIX, [KeyPart(ValueType("ARRAY", ValueType("INT64")), False)], [(1,)])
