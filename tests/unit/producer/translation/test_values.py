"""Values: every type, both notations, and nothing rounded."""

import base64
import io
import math
import re
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.producer.translation.values import converter
from tidegate.schemas.change_schema import avro_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def convert(code, value, **type_fields):
    return converter(ColumnType(code, **type_fields))(value)


def through_avro(column_type, value):
    """What an Avro reader gets from a converted value: the oracle for its meaning."""
    schema = fastavro.parse_schema(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "v", "type": ["null", avro_type(column_type)]}],
        }
    )
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, {"v": converter(column_type)(value)})
    buffer.seek(0)
    return fastavro.schemaless_reader(buffer, schema, schema)["v"]


@pytest.mark.parametrize(
    ("code", "value", "expected"),
    [
        ("INT64", "12", 12),
        ("INT64", "-9223372036854775808", -(2**63)),
        ("INT64", 1000, 1000),
        ("ENUM", "3", 3),
        ("FLOAT64", 1.5, 1.5),
        ("FLOAT64", 2, 2.0),
        ("FLOAT64", "1e3", 1000.0),
        ("FLOAT64", "Infinity", math.inf),
        ("FLOAT64", "-Infinity", -math.inf),
        ("FLOAT32", 3.140000104904175, 3.140000104904175),
        ("BOOL", True, True),
        ("BOOL", False, False),
        ("STRING", "", ""),
        ("STRING", "naïve ☃", "naïve ☃"),
        ("BYTES", "aGVsbG8=", b"hello"),
        ("BYTES", "", b""),
        ("PROTO", "CAE=", b"\x08\x01"),
        ("NUMERIC", "1.5", Decimal("1.5")),
        ("NUMERIC", 7, Decimal(7)),
        ("NUMERIC", 0.1, Decimal("0.1")),
        ("NUMERIC", "-99999999999999999999999999999.999999999",
         Decimal("-99999999999999999999999999999.999999999")),
        ("NUMERIC", "-0.000000128", Decimal("-0.000000128")),
        ("NUMERIC", "1e2", Decimal(100)),
        ("DATE", "2024-02-29", date(2024, 2, 29)),
        ("DATE", "0001-01-01", date(1, 1, 1)),
        ("TIMESTAMP", "2024-01-02T03:04:05.678901Z",
         datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
        ("TIMESTAMP", "2024-01-02T03:04:05.678901000+00:00",
         datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
        ("TIMESTAMP", "1969-12-31T23:59:59.999999Z", EPOCH - timedelta(microseconds=1)),
        ("JSON", '{"a":[1],"z":1}', '{"a":[1],"z":1}'),
        ("INTERVAL", "P1Y2M3DT4H5M6.5S", "P1Y2M3DT4H5M6.5S"),
        ("UUID", "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
         uuid.UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6")),
    ],
)  # fmt: skip
def test_a_value_means_the_same_to_an_avro_reader(code, value, expected):
    read = through_avro(ColumnType(code), value)
    if code == "FLOAT32":
        assert read == pytest.approx(expected)
    else:
        assert read == expected
        assert type(read) is type(expected)


def test_nan_stays_nan():
    assert math.isnan(convert("FLOAT64", "NaN"))
    assert math.isnan(convert("FLOAT32", "NaN"))


def test_an_array_keeps_its_nulls():
    column_type = ColumnType("ARRAY", ColumnType("INT64"))
    assert through_avro(column_type, ["1", None, 3]) == [1, None, 3]
    assert through_avro(column_type, []) == []


@pytest.mark.parametrize("text", ["1.50", "NaN", "1" * 200 + ".5"])
def test_postgresqls_numeric_stays_text(text):
    assert convert("NUMERIC", text, annotation="PG_NUMERIC") == text


def test_annotated_types_are_written_as_the_contract_has_them():
    numeric = ColumnType("NUMERIC", annotation="PG_NUMERIC")
    items = [str(number) if number % 3 else None for number in range(50_000)]
    assert through_avro(ColumnType("ARRAY", numeric), ["1.50", None, "NaN"]) == [
        "1.50",
        None,
        "NaN",
    ]
    assert through_avro(ColumnType("ARRAY", numeric), items) == items
    assert through_avro(ColumnType("JSON", annotation="PG_JSONB"), '{"a": 1}') == '{"a": 1}'
    assert through_avro(ColumnType("INT64", annotation="PG_OID"), "4294967295") == 4294967295


def test_postgresqls_numeric_reads_numbers():
    assert convert("NUMERIC", 15, annotation="PG_NUMERIC") == "15"
    assert convert("NUMERIC", 1.25, annotation="PG_NUMERIC") == "1.25"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("INT64", "9223372036854775808"),
        ("INT64", "1.0"),
        ("INT64", 1.0),
        ("INT64", True),
        ("INT64", "1_000"),
        ("INT64", "9" * 5000),
        ("FLOAT64", "one"),
        ("FLOAT64", "1e999"),
        ("FLOAT64", 10**400),
        ("FLOAT64", True),
        ("FLOAT32", 1e39),
        ("BOOL", "true"),
        ("BOOL", 1),
        ("STRING", 1),
        ("STRING", "\ud800"),
        ("BYTES", "a"),
        ("BYTES", "_-8="),
        ("BYTES", 5),
        ("NUMERIC", "0.0000000001"),
        ("NUMERIC", "100000000000000000000000000000"),
        ("NUMERIC", "NaN"),
        ("NUMERIC", "1e999"),
        ("NUMERIC", 0.12345678901234567),
        ("NUMERIC", 10**40),
        ("NUMERIC", None),
        ("DATE", "2023-02-29"),
        ("DATE", "20240229"),
        ("DATE", "2024-W01-1"),
        ("TIMESTAMP", "2024-01-02T03:04:05.678901001Z"),
        ("TIMESTAMP", "2024-01-02 03:04:05Z"),
        ("TIMESTAMP", 5),
        ("JSON", {"a": 1}),
        ("UUID", "f81d4fae7dec11d0a76500a0c91e6bf6"),
        ("ARRAY", "[]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(code, value):
    element = ColumnType("INT64") if code == "ARRAY" else None
    with pytest.raises(SchemaError):
        convert(code, value, element=element)


def nested(depth):
    value = "1"
    for _ in range(depth):
        value = [value]
    return value


HOSTILE = {"a long integer": 10**5000, "a negative one": -(10**5000), "deep": nested(5_000)}


@pytest.mark.parametrize("code", ["INT64", "FLOAT64", "FLOAT32", "BOOL", "STRING", "BYTES",
                                  "NUMERIC", "DATE", "TIMESTAMP", "UUID"])  # fmt: skip
@pytest.mark.parametrize("what", HOSTILE)
def test_telling_what_does_not_fit_does_not_fail_itself(code, what):
    with pytest.raises(SchemaError) as caught:
        convert(code, HOSTILE[what])
    assert len(str(caught.value)) < 300


def test_a_refused_value_is_named_but_not_repeated_at_length():
    with pytest.raises(SchemaError) as caught:
        convert("INT64", "x" * 10_000)
    assert len(str(caught.value)) < 300
    with pytest.raises(SchemaError) as caught:
        convert("TIMESTAMP", "x" * 10_000)
    assert len(str(caught.value)) < 300
    with pytest.raises(SchemaError, match="microseconds"):
        convert("TIMESTAMP", "2024-01-02T03:04:05.000000001Z")


@pytest.mark.parametrize("code", ["STRUCT", "", "ARRAY", "a.b.Message"])
def test_an_unknown_type_is_refused(code):
    with pytest.raises(SchemaError):
        converter(ColumnType(code))


@given(st.decimals(min_value=-(10**28), max_value=10**28, places=9))
def test_numerics_are_exact(number):
    assert through_avro(ColumnType("NUMERIC"), f"{number:f}") == number


@given(st.integers(1 - 10**38, 10**38 - 1))
def test_numeric_bytes_are_as_short_as_they_go(unscaled):
    whole, fraction = divmod(abs(unscaled), 10**9)
    text = f"{'-' if unscaled < 0 else ''}{whole}.{fraction:09d}"
    encoded = convert("NUMERIC", text)
    assert int.from_bytes(encoded, "big", signed=True) == unscaled
    if len(encoded) > 1:
        assert int.from_bytes(encoded[1:], "big", signed=True) != unscaled


@given(st.binary())
def test_bytes_come_back(data):
    assert convert("BYTES", base64.b64encode(data).decode()) == data


@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamps_are_microseconds_since_1970(instant):
    text = instant.isoformat().replace("+00:00", "Z")
    assert convert("TIMESTAMP", text) == (instant - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("given_text", "carried"),
    [
        ("2024-01-02T03:04:05Z", None),
        ("2024-01-02T03:04:05.123456789Z", None),
        ("2024-01-02T03:04:05.1Z", None),
        ("0001-01-01T00:00:00.000000001Z", None),
        ("9999-12-31T23:59:59.999999999Z", None),
        # Other texts of the same instant: a key must have one text.
        ("2024-01-02T03:04:05.100Z", "2024-01-02T03:04:05.1Z"),
        ("2024-01-02T03:04:05.123456000Z", "2024-01-02T03:04:05.123456Z"),
        ("2024-01-02T03:04:05.000Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02t03:04:05z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05.000000100+01:00", "2024-01-02T02:04:05.0000001Z"),
    ],
)
def test_timestamps_as_text_keep_every_digit(given_text, carried):
    convert_text = converter(ColumnType("TIMESTAMP"), TimestampForm.STRING)
    assert convert_text(given_text) == (carried or given_text)
    array = converter(ColumnType("ARRAY", ColumnType("TIMESTAMP")), TimestampForm.STRING)
    assert array([given_text, None]) == [carried or given_text, None]


@pytest.mark.parametrize("value", ["2024-01-02T03:04:05.0000000001Z", "2024-02-30T00:00:00Z", "", 5,
                                   None, True, ["2024-01-02T03:04:05Z"]])  # fmt: skip
def test_what_is_no_timestamp_is_refused_as_text_too(value):
    with pytest.raises(SchemaError):
        converter(ColumnType("TIMESTAMP"), TimestampForm.STRING)(value)


@given(st.integers(-62_135_596_800 * 10**9, 253_402_300_800 * 10**9 - 1), st.integers(0, 9))
def test_a_timestamp_has_one_text_in_which_nothing_is_lost(instant_ns, zeros):
    """However many zeros end the text that is given."""
    text = format_rfc3339(instant_ns)
    padded = (text[:-1] if "." in text else text[:-1] + ".0") + "0" * zeros
    padded = padded[:29] + "Z"
    convert_text = converter(ColumnType("TIMESTAMP"), TimestampForm.STRING)
    carried = convert_text(text)
    assert parse_rfc3339_ns(carried) == instant_ns
    assert convert_text(padded) == convert_text(carried) == carried
    assert not carried.removesuffix("Z").partition(".")[2].endswith("0")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
CODES = ("INT64", "ENUM", "FLOAT64", "FLOAT32", "BOOL", "STRING", "JSON", "INTERVAL", "BYTES",
         "PROTO", "NUMERIC", "DATE", "TIMESTAMP", "UUID")  # fmt: skip


@given(st.sampled_from(CODES), JSON_VALUES)
def test_any_json_value_is_converted_so_that_avro_takes_it_or_refused(code, value):
    column_type = ColumnType(code)
    if value is None:
        return
    try:
        converted = converter(column_type)(value)
    except SchemaError:
        return
    schema = fastavro.parse_schema(avro_type(column_type))
    fastavro.schemaless_writer(io.BytesIO(), schema, converted)


DIGITS = st.text("0123456789", max_size=45)
NUMBERS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-", "+", "--", " "]),
    DIGITS,
    st.sampled_from(["", ".", "..", "e", "_", "٣"]),
    DIGITS,
)


def or_refused(convert_it):
    """The result, or the kind of error."""
    try:
        return convert_it()
    except SchemaError:
        return SchemaError


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


@given(NUMBERS | st.text())
@example("-")
@example("")
@example("-0")
@example("9" * 18)
@example("-" + "9" * 19)
@example("٣")
def test_an_integers_text_is_read_as_its_pattern_says(text):
    assert or_refused(lambda: convert("INT64", text)) == plain_integer(text)


@given(NUMBERS | st.text())
@example("-.5")
@example("-0.5")
@example("1.")
@example(".")
@example("-")
@example("1.-5")
@example("9" * 29 + "." + "9" * 9)
@example("9" * 30)
@example("0" * 30)
@example("0.0000000010")
@example("1.٣")
def test_a_numerics_text_is_read_as_exact_decimals_read_it(text):
    assert or_refused(lambda: convert("NUMERIC", text)) == plain_numeric(text)


@pytest.mark.parametrize(
    "text",
    [str(uuid.UUID(int=1 << 127 | 0xABCDEF)).upper(), "F81d4fae-7dec-11d0-A765-00a0c91e6bF6"],
)
def test_a_uuid_is_written_in_lower_case(text):
    """A key of another case would stand in another topic partition."""
    assert convert("UUID", text) == text.lower()
