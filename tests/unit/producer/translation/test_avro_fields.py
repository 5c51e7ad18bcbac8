"""Values of columns become the bytes that fastavro writes, or are refused."""

import io
import math

import fastavro
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate.producer.translation.avro_fields import (
    field_writer,
    write_boolean,
    write_long,
    write_text,
)
from tidegate.producer.translation.values import converter
from tidegate.schemas.change_schema import avro_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

SCALARS = ["INT64", "ENUM", "FLOAT64", "FLOAT32", "BOOL", "STRING", "JSON", "INTERVAL", "BYTES",
           "PROTO", "NUMERIC", "DATE", "TIMESTAMP", "UUID"]  # fmt: skip
TYPES = [
    *map(ColumnType, SCALARS),
    *(ColumnType("ARRAY", ColumnType(code)) for code in SCALARS),
    ColumnType("NUMERIC", annotation="PG_NUMERIC"),
    ColumnType("ARRAY", ColumnType("NUMERIC", annotation="PG_NUMERIC")),
]
DIGITS = st.integers(0, 40).flatmap(
    lambda size: st.text("0123456789", min_size=size, max_size=size)
)
NUMBERS = st.builds(
    lambda sign, whole, point, fraction: sign + whole + point + fraction,
    st.sampled_from(["", "-", "+", "--"]),
    DIGITS,
    st.sampled_from(["", ".", "e", "..", "_"]),
    DIGITS,
)
TEXTS = (
    st.text(max_size=9)
    | NUMBERS
    | st.integers(-(2**64), 2**64).map(str)
    | st.decimals(-(10**30), 10**30, places=9).map(str)
    | st.datetimes().map(lambda at: f"{at.isoformat()}Z")
    | st.dates().map(str)
    | st.uuids().map(str)
    | st.sampled_from(
        ["", "-", ".", "-.", "0", "-0", "٣", "-٣", "aGVsbG8=", "NaN", "\ud800", "é" * 64]
    )
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


def by_fastavro(column_type, value, form=TimestampForm.MICROS):
    """Converted to a plain value, and written by an independent library."""

    def without_logical_type(avro):
        return avro if isinstance(avro, str | list) else {**avro, "logicalType": "none"}

    schema = ["null", without_logical_type(avro_type(column_type, form))]
    plain = None if value is None else converter(column_type, form)(value)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), plain)
    return buffer.getvalue()


@pytest.mark.parametrize("column_type", TYPES, ids=str)
@settings(max_examples=60)
@given(value=JSON_VALUES)
@example(value=None)
@example(value="9223372036854775807")
@example(value="-9223372036854775808")
@example(value="9223372036854775808")
@example(value="99999999999999999999999999999.999999999")
@example(value="-99999999999999999999999999999.999999999")
@example(value="0.0000000001")
@example(value=".-5")
@example(value=["7.-5"])
@example(value=[None, "5", None])
@example(value=[])
@example(value=["1"] * 64)
def test_any_value_is_what_fastavro_writes_or_refused(column_type, value):
    try:
        expected = by_fastavro(column_type, value)
    except (SchemaError, UnicodeEncodeError):
        with pytest.raises(SchemaError):
            field_writer(column_type)(value)
        return
    assert field_writer(column_type)(value) == expected


NANOSECONDS = st.integers(0, 2**62).map(format_rfc3339)
TIMESTAMP = ColumnType("TIMESTAMP")


@pytest.mark.parametrize("column_type", [TIMESTAMP, ColumnType("ARRAY", TIMESTAMP)], ids=str)
@given(value=JSON_VALUES | NANOSECONDS | st.lists(NANOSECONDS | st.none()))
def test_timestamps_as_text_are_what_fastavro_writes_or_refused(column_type, value):
    text = TimestampForm.STRING
    try:
        expected = by_fastavro(column_type, value, text)
    except (SchemaError, UnicodeEncodeError):
        with pytest.raises(SchemaError):
            field_writer(column_type, text)(value)
        return
    assert field_writer(column_type, text)(value) == expected


@pytest.mark.parametrize("code", ["FLOAT32", "FLOAT64"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0, 1.5])
def test_special_floats(code, number):
    value = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(number, number)
    value = "NaN" if math.isnan(number) else value
    column_type = ColumnType(code)
    assert field_writer(column_type)(value) == by_fastavro(column_type, value)


POWERS = [2**bits - below for bits in range(64) for below in (0, 1) if bits < 63 or below]


@pytest.mark.parametrize("number", [*POWERS, *(-power for power in POWERS), -(2**63)])
def test_integers_at_the_edges(number):
    expected = by_fastavro(ColumnType("INT64"), number)
    assert b"\x02" + write_long(number) == expected
    assert field_writer(ColumnType("INT64"))(str(number)) == expected


@pytest.mark.parametrize(
    "number", [2**63, -(2**63) - 1, 1 << 20_000], ids=["above", "below", "long"]
)
def test_integers_beyond_64_bits_are_refused(number):
    with pytest.raises(SchemaError, match="64 bits"):
        write_long(number)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 8191, 8192, 100_000])
@pytest.mark.parametrize("character", ["x", "é"])
def test_lengths(length, character):
    text, column_type = character * length, ColumnType("STRING")
    assert field_writer(column_type)(text) == by_fastavro(column_type, text)
    items, column_type = ["5"] * length, ColumnType("ARRAY", ColumnType("INT64"))
    assert field_writer(column_type)(items) == by_fastavro(column_type, items)


def test_texts_and_booleans():
    assert write_text("é") == b"\x04\xc3\xa9"
    assert write_boolean(True) + write_boolean(False) == b"\x01\x00"
    with pytest.raises(SchemaError, match="not Unicode"):
        write_text("\ud800")


def test_a_type_that_the_contract_lacks_is_refused():
    with pytest.raises(SchemaError, match="TOKENLIST"):
        field_writer(ColumnType("TOKENLIST"))
