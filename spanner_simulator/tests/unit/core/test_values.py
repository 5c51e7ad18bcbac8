from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pytest

from spanner_simulator.core.values import Plain, Value, ValueType, decode, encode
from spanner_simulator.errors import Code, SpannerError

WIDEST = "9" * 29 + "." + "9" * 9
PG_NUMERIC = ValueType("NUMERIC", annotation="PG_NUMERIC")
TOO_LONG = "New value exceeds the maximum size limit for this column: T.C, size: 3, limit: 2."
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
    (ValueType("FLOAT32"), 3.140000104904175, 3.140000104904175),
    (ValueType("FLOAT32"), "Infinity", math.inf),
    (PG_NUMERIC, "1.50", Decimal("1.50")),
    (ValueType("JSON", annotation="PG_JSONB"), '{"a": [1], "z": 1}', '{"a": [1], "z": 1}'),
    (ValueType("INT64", annotation="PG_OID"), "7", 7),
    (
        ValueType("UUID"),
        "0a1b2c3d-0000-1111-2222-333344445555",
        "0a1b2c3d-0000-1111-2222-333344445555",
    ),
    (ValueType("INTERVAL"), "P1Y2M3DT4H5M6.5S", "P1Y2M3DT4H5M6.5S"),
    (ValueType("PROTO", proto_name="a.B"), "CAE=", b"\x08\x01"),
    (ValueType("ENUM", proto_name="a.E"), "3", 3),
]


@pytest.mark.parametrize(("value_type", "plain", "value"), ROUND_TRIPS)
def test_plain_form_and_value(value_type: ValueType, plain: Plain, value: Value) -> None:
    assert decode(value_type, plain, where="c") == value
    assert encode(value_type, value) == plain


@pytest.mark.parametrize(
    ("value_type", "texts"),
    [
        # The shortest form, with all 38 digits.
        (ValueType("NUMERIC"), {"1.50": "1.5", "1e3": "1000", WIDEST: WIDEST}),
        # Its scale is kept, and there is no exponent.
        (PG_NUMERIC, {"1.50": "1.50", "1e3": "1000", "-0.00": "0.00", ".5": "0.5", "nan": "NaN"}),
    ],
)
def test_numbers_are_printed(value_type: ValueType, texts: dict[str, str]) -> None:
    for text, printed in texts.items():
        assert encode(value_type, decode(value_type, text, where="c")) == printed
    assert encode(ValueType("FLOAT64"), math.nan) == "NaN"


@pytest.mark.parametrize(
    ("value_type", "plain", "message"),
    [
        (ValueType("STRING", None, 2), "abc", TOO_LONG),
        (ValueType("BYTES", None, 2), "AAAA", TOO_LONG),
        (ValueType("ARRAY", ValueType("STRING", None, 2)), ["abc"], TOO_LONG),
        (ValueType("ARRAY", ValueType("INT64")), ["x"], "Could not parse x as an integer"),
        (
            ValueType("ARRAY", ValueType("INT64")),
            "x",
            'Could not parse string_value: "x"\n as ARRAY<INT64>',
        ),
    ],
)
def test_a_wrong_value_is_refused(value_type: ValueType, plain: Plain, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        decode(value_type, plain, where="T.C")
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert caught.value.message == message


def test_types_print_as_ddl_and_as_change_record_json() -> None:
    array = ValueType("ARRAY", ValueType("STRING"))
    assert array.ddl() == "ARRAY<STRING(MAX)>"
    assert ValueType("BYTES", None, 8).ddl() == "BYTES(8)"
    assert ValueType("ENUM", proto_name="a.B").ddl() == "`a.B`"
    assert ValueType("ARRAY", ValueType("ENUM", proto_name="a.B")).wire_name() == "ARRAY<ENUM<a.B>>"
    assert array.json_text() == '{"array_element_type":{"code":"STRING"},"code":"ARRAY"}'
    assert PG_NUMERIC.json_text() == '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'
    assert ValueType("PROTO", proto_name="a.B").json_text() == (
        '{"code":"PROTO","proto_type_fqn":"a.B"}'
    )


@pytest.mark.parametrize(
    ("value_type", "text"),
    [
        (ValueType("STRING", None, 8), "character varying(8)"),
        (ValueType("STRING"), "character varying"),
        (ValueType("BYTES"), "bytea"),
        (PG_NUMERIC, "numeric"),
        (ValueType("JSON", annotation="PG_JSONB"), "jsonb"),
        (ValueType("INT64", annotation="PG_OID"), "oid"),
        (ValueType("ARRAY", ValueType("FLOAT32")), "real[]"),
    ],
)
def test_types_print_in_postgresql(value_type: ValueType, text: str) -> None:
    assert value_type.ddl("POSTGRESQL") == text


def test_only_some_types_make_keys() -> None:
    others = (PG_NUMERIC, ValueType("JSON"), ValueType("ARRAY", ValueType("INT64")))
    assert all(one.is_key_type for one in (ValueType("FLOAT32"), ValueType("UUID")))
    assert not any(one.is_key_type for one in others)
