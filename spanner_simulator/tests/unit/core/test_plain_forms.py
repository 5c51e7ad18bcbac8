from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core import plain_forms
from spanner_simulator.core.json_text import normalise_json, normalise_jsonb
from spanner_simulator.core.values import Plain
from spanner_simulator.errors import Code, SpannerError


# Wording of Google's emulator 1.5.28, up to the hint at the documentation.
@pytest.mark.parametrize(
    ("name", "plain", "message"),
    [
        ("int", "abc", "Could not parse abc as an integer"),
        ("int", "9223372036854775808", "Could not parse 9223372036854775808 as an integer"),
        ("int", 5, "Could not parse number_value: 5\n as INT64"),
        ("int", True, "Could not parse bool_value: true\n as INT64"),
        ("bool", "true", 'Could not parse string_value: "true"\n as BOOL'),
        ("string", ["x"], "Could not parse list_value {\n  values {\n    string_value: "),
        ("float64", "5", "Could not parse 5 as a FLOAT64. Only the following string values"),
        ("float64", True, "Could not parse bool_value: true\n as FLOAT64"),
        ("float32", "x", "Could not parse x as a FLOAT32. Only"),
        ("float32", 1e300, "Could not parse number_value: 1e+300\n as FLOAT32"),
        ("numeric", "1e40", "Could not parse 1e40 as a NUMERIC. The NUMERIC type supports 38"),
        ("pg_numeric", "1e150000", "Could not parse 1e150000 as a PG.NUMERIC. See"),
        ("numeric", "NaN", "Could not parse NaN as a NUMERIC."),
        ("bytes", "!!", "Could not parse !! as BYTES. Byte strings must be base64-encoded."),
        ("date", "2024-13-01", "Could not parse 2024-13-01 as a DATE. Dates must be in"),
        ("timestamp", "2024-01-01T00:00:00+01:00", "Could not parse 2024-01-01T00:00:00+01:00 as"),
        ("json", "{", "Could not parse { as a JSON. See"),
        ("jsonb", "{", "Could not parse { as a JSONB. See"),
        ("uuid", "0a1b", "Could not parse 0a1b as a UUID"),
        ("interval", "1Y", "Could not parse 1Y as an INTERVAL."),
        *((name, None, "Could not parse null_value") for name in ("numeric", "json", "uuid")),
        *((name, {}, "Could not parse struct_value") for name in ("date", "bytes", "jsonb")),
        *(
            (name, 1, "Could not parse number_value")
            for name in ("timestamp", "interval", "pg_numeric")
        ),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, plain: Plain, message: str) -> None:
    with pytest.raises(SpannerError, match=re.escape(message)) as caught:
        getattr(plain_forms, f"read_{name}")(plain)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_enums_have_32_bits_and_messages_any_bytes() -> None:
    for number in (-(2**31), 2**31 - 1):
        assert plain_forms.read_enum(str(number), "E") == number
    assert plain_forms.read_proto("//8=", "P") == b"\xff\xff"
    for read, plain, message in (
        (plain_forms.read_enum, "GOLD", "GOLD as an integer"),
        (plain_forms.read_enum, "2147483648", "2147483648 as an integer"),
        (plain_forms.read_enum, 1, "number_value: 1\n as X"),
        (plain_forms.read_proto, 5, "number_value: 5\n as X"),
        (plain_forms.read_proto, "$$", "[$][$] as BYTES"),
    ):
        with pytest.raises(SpannerError, match=f"FAILED_PRECONDITION: Could not parse {message}"):
            read(plain, "X")


def test_the_year_zero_is_an_invalid_argument() -> None:
    with pytest.raises(SpannerError, match="INVALID_ARGUMENT: Invalid date value: 0000-01-01"):
        plain_forms.read_date("0000-01-01")
    with pytest.raises(SpannerError, match="INVALID_ARGUMENT: Timestamp out of range"):
        plain_forms.read_timestamp("0000-01-01T00:00:00Z")


def test_generous_forms() -> None:
    assert plain_forms.read_int(" 5 ") == 5
    assert str(plain_forms.read_date("2024-1-2")) == "2024-01-02"
    assert plain_forms.read_float32(3.14) == 3.140000104904175
    assert plain_forms.read_uuid("{0A1B2C3D0000111122223333" + "44445555}") == (
        "0a1b2c3d-0000-1111-2222-333344445555"
    )


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


# Learnt from Google's emulator 1.5.28.
@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ('{"b":1,"a":2,"b":3}', '{"a":2,"b":1}'),
        ('{"a":1.50,"b":100000000000000.0}', '{"a":1.5,"b":100000000000000.0}'),
        ("[1e15, -1.5e15, 1e16, 1e-7]", "[1e+15,-1.5e+15,1e+16,1e-07]"),
        ("1E5", "100000.0"),
        ("-0", "0"),
        ("-0.0", "-0.0"),
        (
            "[-9223372036854775808, -9223372036854775809]",
            "[-9223372036854775808,-9.223372036854776e+18]",
        ),
        ("18446744073709551615", "18446744073709551615"),
        (' "a\\/b\\u00e9\\n\\ud83d\\ude00" ', '"a/bé\\n😀"'),
    ],
)
def test_json(text: str, normal: str) -> None:
    assert normalise_json(text) == normal


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ('{"b":1.50,"aa":1e2,"a":[1, 2.0],"b":2}', '{"a": [1, 2.0], "b": 2, "aa": 100}'),
        (
            '{"x":1.500e1, "y":-0, "z":12345678901234567890123.10}',
            '{"x": 15.00, "y": 0, "z": 12345678901234567890123.10}',
        ),
        ("1e400", "1" + "0" * 400),
        ('{"a":{}}', '{"a": {}}'),
        ("null", "null"),
    ],
)
def test_jsonb(text: str, normal: str) -> None:
    assert normalise_jsonb(text) == normal


@pytest.mark.parametrize(
    "text", ["{", "NaN", '["\\ud83d"]', "", "[" * 81 + "]" * 81, "[" * 100_000, "1 2"]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    for normalise in (normalise_json, normalise_jsonb):
        with pytest.raises(ValueError, match=r"."):
            normalise(text)


def test_a_number_that_no_double_holds_is_only_for_jsonb() -> None:
    with pytest.raises(ValueError, match="range"):
        normalise_json("1e400")
    with pytest.raises(ValueError, match="digits"):
        normalise_jsonb("1e200000")


@given(DOCUMENTS)
def test_normalising_keeps_the_document_and_is_stable(document: object) -> None:
    text = json.dumps(document)
    for normalise in (normalise_json, normalise_jsonb):
        normal = normalise(text)
        assert json.loads(normal) == document
        assert normalise(normal) == normal
