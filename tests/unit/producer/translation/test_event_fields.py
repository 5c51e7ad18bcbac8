"""Columns of events: any values of any types, as JSON and as Debezium's Avro."""

from __future__ import annotations

import base64
import io
import json
import math
from decimal import Decimal

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_translator_properties import TABLE, VALUES, of
from tidegate.producer.translation.event_fields import debezium_field, json_field
from tidegate.schemas.debezium_schema import debezium_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.tables import ColumnType

BOTH = (Envelope.DEBEZIUM, Envelope.DATASTREAM)
COLUMNS = {column.name: column for column in TABLE.columns}
SOME = st.sampled_from(sorted(COLUMNS)).flatmap(
    lambda name: st.tuples(st.just(COLUMNS[name].type), of(COLUMNS[name]))
)
TEXTS = {"STRING", "NUMERIC", "DATE", "TIMESTAMP", "JSON", "INTERVAL"}


def as_json(column_type, given_value, envelope):
    """What a reader has to find, numbers with all their digits."""
    if given_value is None:
        return None
    if column_type.element is not None:
        return [as_json(column_type.element, item, envelope) for item in given_value]
    code = column_type.code
    if envelope is Envelope.DEBEZIUM and code in TEXTS:
        return given_value
    if code in {"INT64", "ENUM"}:
        return int(given_value)
    if code in {"FLOAT32", "FLOAT64"}:
        return given_value if isinstance(given_value, str) else float(given_value)
    if code in {"BYTES", "PROTO"}:
        return base64.b64encode(base64.b64decode(given_value)).decode()
    if code == "NUMERIC" and not column_type.annotation:
        return Decimal(given_value)
    if code == "JSON":
        return json.loads(given_value)
    if code == "UUID":
        return given_value.lower()
    return given_value


def same(found, expected):
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return float(found) == expected
    if isinstance(expected, Decimal):
        return Decimal(found) == expected
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)


@given(SOME, st.sampled_from(BOTH))
def test_json_holds_what_was_given(pair, envelope):
    column_type, (value, _) = pair
    text = json_field(column_type, envelope)(value)
    found = json.loads(text, parse_float=Decimal)
    expected = as_json(column_type, value, envelope)
    if column_type.code == "TIMESTAMP" and envelope is Envelope.DATASTREAM and value is not None:
        assert found.endswith("Z")
        assert found.rstrip("Z").rstrip("0").rstrip(".") == value.rstrip("Z").rstrip("0").rstrip(
            "."
        ) or found.startswith(value.rstrip("Z").rstrip("0"))
        return
    if column_type.element is not None and column_type.element.code == "TIMESTAMP":
        assert (found is None) is (value is None)
        return
    assert same(found, expected)


@given(SOME)
def test_debeziums_avro_holds_what_was_given(pair):
    column_type, (value, meant) = pair
    schema = fastavro.parse_schema(
        {"type": "record", "name": "R", "fields": [
            {"name": "c", "type": ["null", debezium_type(column_type)]}]}
    )  # fmt: skip
    buffer = io.BytesIO(debezium_field(column_type)(value))
    found = fastavro.schemaless_reader(buffer, schema, None)["c"]
    assert not buffer.read()
    code = (column_type.element or column_type).code
    if code in TEXTS:
        assert found == value
    elif code == "UUID":
        lower = [one and one.lower() for one in value] if isinstance(value, list) else value
        assert found == (lower.lower() if isinstance(lower, str) else lower)
    elif code in {"FLOAT32", "FLOAT64"}:
        pairs = zip(found, meant, strict=True) if isinstance(meant, list) else [(found, meant)]
        assert all(one == two or (math.isnan(one) and math.isnan(two)) for one, two in pairs)
    else:
        assert found == meant


@pytest.mark.parametrize("envelope", BOTH)
@pytest.mark.parametrize("code", sorted(VALUES))
def test_null_is_null_and_what_does_not_fit_is_refused(code, envelope):
    write = json_field(ColumnType(code), envelope)
    assert write(None) == "null"
    with pytest.raises(SchemaError):
        write({"an": "object"})
    with pytest.raises(SchemaError):
        json_field(ColumnType("ARRAY", ColumnType(code)), envelope)("text")
    with pytest.raises(SchemaError):
        debezium_field(ColumnType(code))({"an": "object"})
    with pytest.raises(SchemaError):
        debezium_field(ColumnType("ARRAY", ColumnType(code)))("text")


@pytest.mark.parametrize(
    ("code", "value", "of_debezium", "of_datastream"),
    [
        ("NUMERIC", "19.90", '"19.90"', "19.9"),
        ("NUMERIC", "-0.000000001", '"-0.000000001"', "-0.000000001"),
        ("NUMERIC", "100", '"100"', "100"),
        ("NUMERIC", "0", '"0"', "0"),
        ("JSON", '{"a": [1.50]}', '"{\\"a\\": [1.50]}"', '{"a": [1.50]}'),
        ("TIMESTAMP", "2023-11-14T22:13:20.123456789Z", '"2023-11-14T22:13:20.123456789Z"',
         '"2023-11-14T22:13:20.123456789Z"'),
        ("DATE", "1969-12-31", '"1969-12-31"', '"1969-12-31"'),
        ("FLOAT64", "NaN", '"NaN"', '"NaN"'),
        ("FLOAT64", "-Infinity", '"-Infinity"', '"-Infinity"'),
        ("INT64", "9223372036854775807", "9223372036854775807", "9223372036854775807"),
    ],
)  # fmt: skip
def test_each_product_has_its_own_json(code, value, of_debezium, of_datastream):
    column_type = ColumnType(code)
    assert json_field(column_type, Envelope.DEBEZIUM)(value) == of_debezium
    assert json_field(column_type, Envelope.DATASTREAM)(value) == of_datastream


@pytest.mark.parametrize("text", ["{", "NaN", "[1,]", "", "[" * 100_000])
def test_a_document_that_is_no_json_would_damage_the_event_and_is_refused(text):
    with pytest.raises(SchemaError, match="holds no JSON"):
        json_field(ColumnType("JSON"), Envelope.DATASTREAM)(text)
    assert json.loads(json_field(ColumnType("JSON"), Envelope.DEBEZIUM)(text)) == text


def test_a_document_may_have_more_digits_than_python_converts():
    text = "9" * 10_000
    assert json_field(ColumnType("JSON"), Envelope.DATASTREAM)(text) == text


def test_dates_and_numbers_that_are_not_what_they_look_like_are_refused():
    for code, value in (("DATE", "2023-02-30"), ("NUMERIC", "1e40"), ("TIMESTAMP", "yesterday")):
        with pytest.raises(SchemaError):
            debezium_field(ColumnType(code))(value)


@pytest.mark.parametrize(
    "number", ["10000000000000000000.000000001", "-99999999999999999999999999999.999999999"]
)
def test_a_numeric_keeps_more_digits_than_pythons_default(number):
    assert json_field(ColumnType("NUMERIC"), Envelope.DATASTREAM)(number) == number
