"""Equal keys are equal bytes, and keys of versions that kept the sign of a zero are found again."""

import itertools
import math
import struct
from decimal import Decimal
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.event_reading import FORM
from tests.unit.producer.translation.test_translator_properties import record
from tests.unit.producer.translation.translation_building import columns_of
from tidegate.producer.messages import FORM_MESSAGE, FORM_RECORD, KEY_PARKED, ParkedChange
from tidegate.producer.records import Mod
from tidegate.producer.translation import change_writer, event_fields
from tidegate.producer.translation.avro_fields import field_writer
from tidegate.producer.translation.keys import key_converter, key_field_writer
from tidegate.producer.translation.parked_changes import ParkedTranslator
from tidegate.producer.translation.parked_record import write_parked_record
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.producer.translation.values import converter
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import Envelope, KeyFormat, ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema

pytestmark = pytest.mark.usefixtures("each_way")

PG_NUMERIC = ColumnType("NUMERIC", None, "PG_NUMERIC")
OTHER_NAN = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
TINY32 = 1e-60
"""Rounded to 0 in 32 bits."""
EQUAL = [
    ("INT64", ["0", 0, "-0", "+0", "000"], ["1", "+1", 1], ["-9223372036854775808"]),
    ("ENUM", ["7", 7], ["8"]),
    ("FLOAT64", [0.0, -0.0, 0, "0", "-0", "-0.0", "0e5"], ["NaN", math.nan, OTHER_NAN, "nan"],
     ["Infinity", "inf"], ["-Infinity"], [1, 1.0, "1.0"], [5e-324], [-5e-324]),
    ("FLOAT32", [0.0, -0.0, 0, "-0.0", TINY32, -TINY32], ["NaN", math.nan, OTHER_NAN],
     [0.1, 0.10000000149011612], ["Infinity"], ["-Infinity"]),
    ("BOOL", [True], [False]), ("STRING", ["a"], ["A"], [""], ["\u00e9"], ["e\u0301"], ["-0.0"]),
    ("BYTES", ["AQ==", "AR=="], [""]),
    ("NUMERIC", ["1", "1.0", "1.000000000", 1, 1.0, "1e0", "+1", "01"], ["0", "-0", "-0.0", 0],
     ["-1", "-1.0"], ["99999999999999999999999999999.999999999"]),
    (PG_NUMERIC, ["1", "1.0", "1.000", "01", "+1", 1], ["0", "-0", "0.00", "-0.0", ".0", "0.", 0],
     ["NaN", "nan"], ["10", "10.0"], ["0.1", ".10"], ["-1.5", "-1.50"], ["1" * 99, "1" * 99 + ".0"],
     ["-"], ["."], ["1e5"]),
    ("DATE", ["2024-02-29"], ["0001-01-01"]),
    ("TIMESTAMP", ["2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000Z",
                   "2024-01-02T03:04:05.000000000Z", "2024-01-02T04:04:05+01:00"],
     ["2024-01-02T03:04:05.1Z", "2024-01-02T03:04:05.100Z", "2024-01-02T03:04:05.100000Z"]),
    ("UUID", ["6b1f9f2e-5a0e-4d2b-9d5a-0f3f1f7a7a10", "6B1F9F2E-5A0E-4D2B-9D5A-0F3F1F7A7A10"]),
]  # fmt: skip
"""Values of each type: in each list those that are equal, as any source may write them."""
FORMS = [
    *((envelope, ValueFormat.AVRO, KeyFormat.AVRO) for envelope in Envelope),
    *((envelope, ValueFormat.JSON, key_format)
      for envelope in (Envelope.DEBEZIUM, Envelope.DATASTREAM) for key_format in KeyFormat),
]  # fmt: skip


def kind_of(code):
    return code if isinstance(code, ColumnType) else ColumnType(code)


def translator_of(kind, timestamps, envelope, value_format, key_format):
    table = TableSchema("T", (Column("k", kind, 1, 1), Column("v", kind, 2)))
    return translator_over(table, timestamps, envelope, value_format, key_format)


def translator_over(table, timestamps=TimestampForm.MICROS, envelope=Envelope.TIDEGATE,
                    value_format=ValueFormat.AVRO, key_format=KeyFormat.AVRO):  # fmt: skip
    encoding = TableEncoding(
        table, "p.T", RegisteredSchema(1, key_schema("p.T", table, timestamps)),
        RegisteredSchema(2, value_schema("p.T", table, timestamps, envelope)),
        timestamps=timestamps,
        event_form=FORM.__class__(value_format=value_format, key_format=key_format),
    )  # fmt: skip
    return Translator({"T": encoding}, change_stream="S"), table


def insert_of(table, keys, **values):
    mods = (Mod(keys, values, {}),)
    one = record([], "INSERT", 5, "1")
    return one._replace(table_name="T", columns=columns_of(table), mods=mods)


def message_of(translator, *insert, **values):
    (message,) = translator.translate(insert_of(*insert, **values), token="t").messages
    return message


@pytest.mark.parametrize("shapes_max", [256, 0], ids=["compiled", "not compiled"])
def test_equal_keys_are_equal_bytes(monkeypatch, shapes_max):
    monkeypatch.setattr(change_writer, "_SHAPES_MAX", shapes_max)
    for (code, *groups), timestamps, form in itertools.product(EQUAL, TimestampForm, FORMS):
        kind = kind_of(code)
        translator, table = translator_of(kind, timestamps, *form)
        found = []
        for values in groups:
            keys = set()
            for value in values:
                keys.add(message_of(translator, table, {"k": value}, v=None).key)
                keys.add(translator.place(insert_of(table, {"k": value}, v=None)).key)
            assert len(keys) == 1, (form, kind, values, keys)
            found += keys
        assert len(set(found)) == len(groups), (kind, found)
        assert key_field_writer(kind)(None) == b"\0"


@pytest.mark.parametrize("code", ["FLOAT64", "FLOAT32"])
def test_the_values_of_a_row_keep_their_sign(code):
    for form in FORMS:
        translator, table = translator_of(ColumnType(code), TimestampForm.MICROS, *form)
        one, other = (message_of(translator, table, {"k": 1.0}, v=zero) for zero in (0.0, -0.0))
        assert one.key == other.key
        assert one.value != other.value


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=6).map(lambda n: f"{n:f}")


@given(NUMBERS, st.integers(0, 4), NUMBERS)
def test_decimals_of_any_scale(text, zeros, other):
    convert = key_converter(PG_NUMERIC)
    longer = f"{text}{'0' * zeros}" if "." in text else f"{text}.{'0' * zeros}"
    assert convert(longer) == convert(text)
    assert Decimal(convert(text)) == Decimal(text)
    assert (convert(text) == convert(other)) == (Decimal(text) == Decimal(other))


class Limits:
    def bytes_max(self, _topic):
        return 1_000_000


def earlier(monkeypatch, make):
    """Return what `make` returns in a version that wrote the key as it was read."""
    with monkeypatch.context() as patched:
        patched.setattr(change_writer, "key_field_writer", field_writer)
        patched.setattr(event_fields, "key_converter", converter)
        return make()[0]


def test_every_key_of_an_earlier_version_is_found_again(monkeypatch):
    differing = set()
    for (code, *groups), timestamps, form in itertools.product(EQUAL, TimestampForm, FORMS):
        kind = kind_of(code)
        now, table = translator_of(kind, timestamps, *form)
        before = earlier(monkeypatch, partial(translator_of, kind, timestamps, *form))
        for value in itertools.chain(*groups):
            message = message_of(now, table, {"k": value}, v=None)
            former = message_of(before, table, {"k": value}, v=None)
            assert now.todays_key("p.T", former.key) == message.key, (form, kind, value)
            assert now.todays_key("p.T", message.key) == message.key
            assert now.todays_key("p.other", former.key) == former.key
            if former.key == message.key:
                continue
            differing.add(kind.code)
            # What Spanner can have in a key is known by its later changes too.
            if kind.code != "NUMERIC" and float(value) == 0 and value not in {TINY32, -TINY32}:
                assert message.former_keys == (former.key,), (form, kind, value)
    assert differing == {"FLOAT64", "FLOAT32", "NUMERIC"}


KINDS = {"a": "FLOAT64", "b": "STRING", "c": "FLOAT32"}
ZEROS = TableSchema(
    "T", tuple(Column(name, ColumnType(KINDS[name]), n, n) for n, name in enumerate("abc", 1))
)


def zeros(translator, *key):
    return message_of(translator, ZEROS, dict(zip("abc", key, strict=True)))


def test_a_key_of_several_zeros_has_had_several_forms(monkeypatch):
    now, _ = translator_over(ZEROS)
    before = earlier(monkeypatch, partial(translator_over, ZEROS))
    text = '"a":0.0,' + struct.pack("<d", 0.0).decode()  # no number, though it looks like one
    spelled = [zeros(before, a, text, c).key for a, c in itertools.product((0.0, -0.0), repeat=2)]
    message = zeros(now, -0.0, text, 0.0)
    assert message.key == spelled[0]
    assert set(message.former_keys) == set(spelled[1:])
    assert zeros(now, 1.0, text, 2.0).former_keys == ()
    # Bytes that are not a key of the table stay.
    key = message.key
    for data in (b"", b"key", key[:-1], key + b"x", b"\0\0\0\0\2" + key[5:], b"\0\0\0\0\1\7", b"{",
                 b'{"a":1}'):  # fmt: skip
        assert now.todays_key("p.T", data) == data


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("code", ["FLOAT64", "FLOAT32"])
def test_what_an_earlier_version_has_parked_is_put_back_under_todays_key(monkeypatch, code, form):
    make = partial(translator_of, ColumnType(code), TimestampForm.MICROS, *form)
    (now, table), before = make(), earlier(monkeypatch, make)
    one = insert_of(table, {"k": -0.0}, v=-0.0)
    was = message_of(before, table, {"k": -0.0}, v=-0.0)
    expected = message_of(now, table, {"k": -0.0}, v=-0.0)
    assert was.key != expected.key
    place = was.order_key, was.mod
    letters = [
        ParkedChange("p.T", was.key, *place, write_parked_record(one), FORM_RECORD, "SchemaError",
                     "why", "t"),
        ParkedChange("p.T", was.key, *place, was.value, FORM_MESSAGE, KEY_PARKED, "", "t"),
    ]  # fmt: skip
    parked = ParkedTranslator(now, Limits(), dict, now.todays_key)
    for letter in letters:
        message = parked.message(letter)
        assert message._replace(former_keys=()) == expected._replace(former_keys=())
        assert message.value == was.value  # the row keeps its sign
    # Another row's key stays an error.
    other = message_of(now, table, {"k": 1.5}, v=None)
    with pytest.raises(SchemaError, match="another key"):
        parked.message(letters[0]._replace(key=other.key))
