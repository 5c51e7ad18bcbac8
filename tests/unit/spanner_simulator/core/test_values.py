from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pytest

from tidegate.spanner_simulator.core.values import Plain, Value, ValueType, decode, encode
from tidegate.spanner_simulator.errors import Code, SpannerError

ROUND_TRIPS: list[tuple[ValueType, Plain, Value]] = [
    (ValueType("INT64"), "-9223372036854775808", -(2**63)),
    (ValueType("FLOAT64"), 1.5, 1.5),
    (ValueType("FLOAT64"), "-Infinity", -math.inf),
    (ValueType("BOOL"), True, True),
    (ValueType("STRING"), "ü\x00", "ü\x00"),
    (ValueType("BYTES"), "aGVsbG8=", b"hello"),
    (ValueType("NUMERIC"), "1.5", Decimal("1.5")),
    (ValueType("DATE"), "2024-01-02", datetime.date(2024, 1, 2)),
    (ValueType("TIMESTAMP"), "1970-01-01T00:00:00.000000001Z", 1),
    (ValueType("JSON"), '{"a":[1],"z":1}', '{"a":[1],"z":1}'),
    (ValueType("ARRAY", ValueType("INT64")), ["1", None], (1, None)),
    (ValueType("STRING"), None, None),
]


@pytest.mark.parametrize(("value_type", "plain", "value"), ROUND_TRIPS)
def test_plain_form_and_value(value_type: ValueType, plain: Plain, value: Value) -> None:
    assert decode(value_type, plain, where="c") == value
    assert encode(value_type, value) == plain


def test_numeric_is_printed_in_its_shortest_form_with_all_38_digits() -> None:
    numeric = ValueType("NUMERIC")
    widest = "9" * 29 + "." + "9" * 9

    assert encode(numeric, decode(numeric, "1.50", where="c")) == "1.5"
    assert encode(numeric, decode(numeric, "1e3", where="c")) == "1000"
    assert encode(numeric, decode(numeric, widest, where="c")) == widest


def test_json_is_normalised() -> None:
    assert decode(ValueType("JSON"), '{ "z": 1, "a": [1 ]}', where="c") == '{"a":[1],"z":1}'


def test_nan_is_a_word() -> None:
    assert encode(ValueType("FLOAT64"), math.nan) == "NaN"


@pytest.mark.parametrize(
    ("value_type", "plain"),
    [
        (ValueType("INT64"), 1.0),
        (ValueType("INT64"), "x"),
        (ValueType("INT64"), "9223372036854775808"),
        (ValueType("BOOL"), "true"),
        (ValueType("BYTES"), "not base64"),
        (ValueType("NUMERIC"), "1.0000000001"),
        (ValueType("NUMERIC"), "1" + "0" * 29),
        (ValueType("DATE"), "2024-02-30"),
        (ValueType("JSON"), "{"),
        (ValueType("STRING", None, 2), "abc"),
        (ValueType("ARRAY", ValueType("INT64")), ["x"]),
    ],
)
def test_a_wrong_value_is_refused_with_the_place_named(value_type: ValueType, plain: Plain) -> None:
    with pytest.raises(SpannerError, match="here") as caught:
        decode(value_type, plain, where="here")

    assert caught.value.code is Code.FAILED_PRECONDITION


def test_types_print_as_ddl_and_as_change_record_json() -> None:
    array = ValueType("ARRAY", ValueType("STRING"))

    assert array.ddl() == "ARRAY<STRING(MAX)>"
    assert ValueType("BYTES", None, 8).ddl() == "BYTES(8)"
    assert array.json_text() == '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}'
