"""Values of columns: every type, each notation, as Avro and as JSON, and nothing rounded."""

import base64
import io
import itertools
import json
import math
import re
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.producer.translation.test_translator_properties import TABLE, VALUES, of
from tidegate.producer.translation.avro_fields import (
    field_writer,
    write_boolean,
    write_long,
    write_text,
)
from tidegate.producer.translation.event_fields import debezium_field, json_field
from tidegate.producer.translation.values import converter
from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.debezium_schema import debezium_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCALARS = ["INT64", "ENUM", "FLOAT64", "FLOAT32", "BOOL", "STRING", "JSON", "INTERVAL", "BYTES",
           "PROTO", "NUMERIC", "DATE", "TIMESTAMP", "UUID"]  # fmt: skip
INT64, TIMESTAMP, STRING = map(ColumnType, ("INT64", "TIMESTAMP", "STRING"))
PG_NUMERIC = ColumnType("NUMERIC", annotation="PG_NUMERIC")
TYPES = [*map(ColumnType, SCALARS), PG_NUMERIC]
CASES = [
    *((kind, TimestampForm.MICROS) for one in TYPES for kind in (one, ColumnType("ARRAY", one))),
    (TIMESTAMP, TimestampForm.STRING),
    (ColumnType("ARRAY", TIMESTAMP), TimestampForm.STRING),
]


def convert(code, value, **type_fields):
    return converter(ColumnType(code, **type_fields))(value)


def or_refused(convert_it, *arguments):
    try:
        return convert_it(*arguments)
    except SchemaError:
        return SchemaError


def read_avro(avro, data):
    """What an Avro reader gets of a nullable field."""
    buffer = io.BytesIO(data)
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": ["null", avro]}]}
    found = fastavro.schemaless_reader(buffer, fastavro.parse_schema(schema), None)["v"]
    assert not buffer.read()
    return found


def by_fastavro(column_type, value, form=TimestampForm.MICROS):
    """Converted to a plain value, and written by an independent library."""
    avro = avro_type(column_type, form)
    if isinstance(avro, dict):
        avro = {**avro, "logicalType": "none"}
    plain = None if value is None else converter(column_type, form)(value)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(["null", avro]), plain)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("column_type", "value", "expected"),
    [
        ("INT64", "-9223372036854775808", -(2**63)), ("INT64", 1000, 1000), ("ENUM", "3", 3),
        (ColumnType("INT64", annotation="PG_OID"), "4294967295", 4294967295),
        ("FLOAT64", 2, 2.0), ("FLOAT64", "1e3", 1000.0), ("FLOAT64", "-Infinity", -math.inf),
        ("FLOAT32", 3.140000104904175, 3.140000104904175), ("BOOL", False, False),
        ("STRING", "naïve ☃", "naïve ☃"), ("BYTES", "aGVsbG8=", b"hello"),
        ("PROTO", "CAE=", b"\x08\x01"), ("NUMERIC", 7, Decimal(7)),
        ("NUMERIC", 0.1, Decimal("0.1")), ("NUMERIC", "1e2", Decimal(100)),
        ("NUMERIC", "-0.000000128", Decimal("-0.000000128")), (PG_NUMERIC, "1.50", "1.50"),
        (PG_NUMERIC, "NaN", "NaN"), (PG_NUMERIC, 15, "15"), (PG_NUMERIC, 1.25, "1.25"),
        ("DATE", "0001-01-01", date(1, 1, 1)),
        ("TIMESTAMP", "2024-01-02T03:04:05.678901000+00:00",
         datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
        ("TIMESTAMP", "1969-12-31T23:59:59.999999Z", EPOCH - timedelta(microseconds=1)),
        (ColumnType("JSON", annotation="PG_JSONB"), '{"a": 1}', '{"a": 1}'),
        ("INTERVAL", "P1Y2M3DT4H5M6.5S", "P1Y2M3DT4H5M6.5S"),
        ("UUID", "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
         uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")),
        (ColumnType("ARRAY", INT64), ["1", None, 3], [1, None, 3]),
        (ColumnType("ARRAY", PG_NUMERIC), ["1.50", None] * 25_000, ["1.50", None] * 25_000),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_a_value_means_the_same_to_an_avro_reader(column_type, value, expected):
    column_type = ColumnType(column_type) if isinstance(column_type, str) else column_type
    decoded = read_avro(avro_type(column_type), field_writer(column_type)(value))
    assert type(decoded) is type(expected)
    assert decoded == (pytest.approx(expected) if column_type.code == "FLOAT32" else expected)


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("INT64", ["9223372036854775808", "1.0", 1.0, True, "1_000", "9" * 5000]),
        ("FLOAT64", ["one", "1e999", 10**400, True]),
        ("FLOAT32", [1e39]),
        ("BOOL", ["true", 1]),
        ("STRING", [1, "\ud800"]),
        ("BYTES", ["a", "_-8=", 5]),
        ("NUMERIC", ["0.0000000001", "1" + "0" * 29, "NaN", "1e999", 0.12345678901234567, 10**40]),
        ("DATE", ["2023-02-29", "20240229", "2024-W01-1"]),
        ("TIMESTAMP", ["2024-01-02T03:04:05.678901001Z", "2024-01-02 03:04:05Z", 5, "yesterday"]),
        ("JSON", [{"a": 1}]),
        ("UUID", ["f81d4fae7dec11d0a76500a0c91e6bf6"]),
        ("ARRAY", ["[]"]),
    ],
)
def test_what_does_not_fit_is_refused_with_a_short_text(code, values):
    convert_it = converter(ColumnType(code, INT64 if code == "ARRAY" else None))
    for value in [*values, 10**5000]:
        with pytest.raises(SchemaError) as caught:
            convert_it(value)
        assert len(str(caught.value)) < 300


def test_a_type_that_the_contract_lacks_is_refused():
    for code in ("STRUCT", "", "ARRAY", "a.b.Message", "TOKENLIST"):
        with pytest.raises(SchemaError, match=code or None):
            converter(ColumnType(code))
        with pytest.raises(SchemaError, match=code or None):
            field_writer(ColumnType(code))


def test_timestamps_as_text_keep_every_digit_and_other_texts_are_refused():
    convert_text = converter(TIMESTAMP, TimestampForm.STRING)
    array = converter(ColumnType("ARRAY", TIMESTAMP), TimestampForm.STRING)
    for given_text, carried in (
        ("0001-01-01T00:00:00.000000001Z", "0001-01-01T00:00:00.000000001Z"),
        # Other texts of the same instant: a key must have one text.
        ("2024-01-02t03:04:05z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.000000100+01:00", "2024-01-02T02:04:05.0000001Z"),
    ):
        assert convert_text(given_text) == carried
        assert array([given_text, None]) == [carried, None]
    for value in ("2024-01-02T03:04:05.0000000001Z", "2024-02-30T00:00:00Z", "", 5, None, True,
                  ["2024-01-02T03:04:05Z"]):  # fmt: skip
        with pytest.raises(SchemaError):
            convert_text(value)


@given(st.integers(-62_135_596_800 * 10**9, 253_402_300_800 * 10**9 - 1), st.integers(0, 9))
def test_a_timestamp_has_one_text_in_which_nothing_is_lost(instant_ns, zeros):
    text = format_rfc3339(instant_ns)
    padded = (text[:-1] if "." in text else text[:-1] + ".0") + "0" * zeros
    convert_text = converter(TIMESTAMP, TimestampForm.STRING)
    carried = convert_text(text)
    assert parse_rfc3339_ns(carried) == instant_ns
    assert convert_text(padded[:29] + "Z") == convert_text(carried) == carried
    assert not carried.removesuffix("Z").partition(".")[2].endswith("0")


DIGITS = st.text("0123456789", max_size=45)
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+", "--", " "]),
    DIGITS,
    st.sampled_from(["", ".", "..", "e", "_", "٣"]),
    DIGITS,
)


def plain_integer(text):
    """The oracle: a pattern, then Python's integers."""
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    return SchemaError


def plain_numeric(text):
    """The oracle: a pattern, then exact decimals."""
    exact = Context(prec=200)
    if not re.fullmatch(
        r"[+-]?(?:[0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})(?:[eE][+-]?[0-9]{1,3})?", text
    ):
        return SchemaError
    scaled = exact.create_decimal(text).scaleb(9, context=exact)
    unscaled = int(scaled)
    if unscaled != scaled or abs(unscaled) >= 10**38:
        return SchemaError
    size = 1
    while not -(1 << 8 * size - 1) <= unscaled < 1 << 8 * size - 1:
        size += 1
    return unscaled.to_bytes(size, "big", signed=True)


NUMBER_TEXTS = ("-", "", "-0", "9" * 18, "-" + "9" * 19, "٣", "-.5", "1.", ".", "1.-5", "9" * 30,
                "9" * 29 + "." + "9" * 9, "0" * 30, "0.0000000010", "1.٣")  # fmt: skip


@given(NUMBERS | st.text() | st.integers(1 - 10**38, 10**38 - 1).map(lambda n: f"{n}e-9"))
def test_a_number_in_a_text_is_read_as_its_pattern_says(drawn):
    for text in (drawn, *NUMBER_TEXTS):
        assert or_refused(convert, "INT64", text) == plain_integer(text)
        assert or_refused(convert, "NUMERIC", text) == plain_numeric(text)


TEXTS = (
    st.text(max_size=9)
    | NUMBERS
    | st.integers(-(2**64), 2**64).map(str)
    | st.decimals(-(10**30), 10**30, places=9).map(str)
    | st.datetimes().map(lambda at: f"{at.isoformat()}Z")
    | st.integers(0, 2**62).map(format_rfc3339)
    | st.dates().map(str)
    | st.uuids().map(str)
    | st.sampled_from(
        ["", "-", ".", "-.", "0", "-0", "٣", "-٣", "aGVsbG8=", "NaN", "\ud800", "é" * 64]
    )
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


EXTREMES = [
    None, "9223372036854775807", "-9223372036854775808", "9223372036854775808",
    "99999999999999999999999999999.999999999", "-99999999999999999999999999999.999999999",
    "0.0000000001", ".-5", ["7.-5"], [None, "5", None], [], ["1"] * 64,
]  # fmt: skip


def assert_written_by_fastavro_too(case, value):
    try:
        expected = by_fastavro(case[0], value, case[1])
    except (SchemaError, UnicodeEncodeError):
        expected = SchemaError
    assert or_refused(field_writer(*case), value) == expected


@pytest.mark.parametrize("case", CASES, ids=str)
@settings(max_examples=60)
@given(value=JSON_VALUES)
def test_any_value_is_what_fastavro_writes_or_refused(case, value):
    assert_written_by_fastavro_too(case, value)


EDGES = [2**bits - less for bits in range(64) for less in (0, 1) if bits < 63 or less]
SIZES = (0, 1, 63, 64, 8191, 8192, 100_000)


def test_edges_are_what_fastavro_writes():
    for case, value in itertools.product(CASES, EXTREMES):
        assert_written_by_fastavro_too(case, value)
    for number in (*EDGES, *(-edge for edge in EDGES), -(2**63)):
        expected = by_fastavro(INT64, number)
        assert field_writer(INT64)(str(number)) == b"\x02" + write_long(number) == expected
    many = ColumnType("ARRAY", INT64)
    for kind, values in (
        (ColumnType("FLOAT32"), ["NaN", "Infinity", "-Infinity", -0.0, 1.5]),
        (ColumnType("FLOAT64"), ["NaN", "Infinity", "-Infinity", -0.0, 1.5]),
        (STRING, [character * size for character in "xé" for size in SIZES]),
        (many, [["5"] * size for size in SIZES]),
    ):
        for value in values:
            assert field_writer(kind)(value) == by_fastavro(kind, value)
    for number in (2**63, -(2**63) - 1, 1 << 20_000):
        with pytest.raises(SchemaError, match="64 bits"):
            write_long(number)
    assert write_text("é") == b"\x04\xc3\xa9"
    assert write_boolean(True) + write_boolean(False) == b"\x01\x00"
    with pytest.raises(SchemaError, match="not Unicode"):
        write_text("\ud800")


BOTH = (Envelope.DEBEZIUM, Envelope.DATASTREAM)
COLUMNS = {column.name: column for column in TABLE.columns}
SOME = st.sampled_from(sorted(COLUMNS)).flatmap(
    lambda name: st.tuples(st.just(COLUMNS[name].type), of(COLUMNS[name]))
)
AS_TEXT = {"STRING", "NUMERIC", "DATE", "TIMESTAMP", "JSON", "INTERVAL"}


def as_json(column_type, given_value, envelope):
    """What a reader has to find, numbers with all their digits."""
    if given_value is None:
        return None
    if column_type.element is not None:
        return [as_json(column_type.element, item, envelope) for item in given_value]
    code = column_type.code
    if envelope is Envelope.DEBEZIUM and code in AS_TEXT:
        return given_value
    if code in {"INT64", "ENUM"}:
        return int(given_value)
    if code in {"FLOAT32", "FLOAT64"}:
        return given_value if isinstance(given_value, str) else float(given_value)
    if code in {"BYTES", "PROTO"}:
        return base64.b64encode(base64.b64decode(given_value)).decode()
    if code == "NUMERIC" and not column_type.annotation:
        return Decimal(given_value)
    if code == "TIMESTAMP":
        text = format_rfc3339(parse_rfc3339_ns(given_value))
        return re.sub(r"0+Z$", "Z", text) if "." in text else text
    if code == "JSON":
        return json.loads(given_value)
    return given_value.lower() if code == "UUID" else given_value


def same(found, expected):
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, float):
        return float(found) == expected or (math.isnan(float(found)) and math.isnan(expected))
    if isinstance(expected, Decimal):
        return Decimal(found) == expected
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)


@given(SOME)
def test_columns_of_events_hold_what_was_given(pair):
    column_type, (value, meant) = pair
    for envelope in BOTH:
        found = json.loads(json_field(column_type, envelope)(value), parse_float=Decimal)
        assert same(found, as_json(column_type, value, envelope))
    found = read_avro(debezium_type(column_type), debezium_field(column_type)(value))
    code = (column_type.element or column_type).code
    if code in AS_TEXT:
        assert found == value
    elif code == "UUID":
        assert found == as_json(column_type, value, Envelope.DEBEZIUM)
    else:
        assert same(found, meant)


@pytest.mark.parametrize("code", sorted(VALUES))
def test_null_is_null_and_what_does_not_fit_is_refused(code):
    kind, array = ColumnType(code), ColumnType("ARRAY", ColumnType(code))
    for write_of in (lambda kind: json_field(kind, Envelope.DEBEZIUM), debezium_field,
                     lambda kind: json_field(kind, Envelope.DATASTREAM)):  # fmt: skip
        assert write_of(kind)(None) in ("null", b"\0")
        for wrong in ((kind, {"an": "object"}), (array, "text")):
            with pytest.raises(SchemaError):
                write_of(wrong[0])(wrong[1])


LONG = "-99999999999999999999999999999.999999999"


@pytest.mark.parametrize(
    ("code", "value", "of_debezium", "of_datastream"),
    [
        ("NUMERIC", "19.90", '"19.90"', "19.9"), ("NUMERIC", LONG, f'"{LONG}"', LONG),
        ("NUMERIC", "100", '"100"', "100"), ("NUMERIC", "0", '"0"', "0"),
        ("JSON", '{"a": [1.50]}', '"{\\"a\\": [1.50]}"', '{"a": [1.50]}'),
        ("JSON", "9" * 10_000, f'"{"9" * 10_000}"', "9" * 10_000),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_each_product_has_its_own_json(code, value, of_debezium, of_datastream):
    assert json_field(ColumnType(code), Envelope.DEBEZIUM)(value) == of_debezium
    assert json_field(ColumnType(code), Envelope.DATASTREAM)(value) == of_datastream


def test_what_would_damage_an_event_is_refused():
    for text in ("{", "NaN", "[1,]", "", "[" * 100_000):  # documents that are not JSON
        with pytest.raises(SchemaError, match="holds no JSON"):
            json_field(ColumnType("JSON"), Envelope.DATASTREAM)(text)
        assert json.loads(json_field(ColumnType("JSON"), Envelope.DEBEZIUM)(text)) == text
    for code, value in (("DATE", "2023-02-30"), ("NUMERIC", "1e40"), ("TIMESTAMP", "yesterday")):
        with pytest.raises(SchemaError):
            debezium_field(ColumnType(code))(value)
