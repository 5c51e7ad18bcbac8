"""Equal keys are equal bytes: every type, every envelope, both ways of writing."""

from __future__ import annotations

import itertools
import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.event_reading import FORM
from tests.unit.producer.translation.test_translator_properties import record
from tidegate.producer.records import Mod, RecordColumn
from tidegate.producer.translation import change_writer
from tidegate.producer.translation.keys import key_converter, key_field_writer
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.change_schema import key_schema, value_schema
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
    ("BOOL", [True], [False]),
    ("STRING", ["a"], ["A"], [""], ["\u00e9"], ["e\u0301"], ["-0.0"]),
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
    encoding = TableEncoding(
        table, "p.T",
        RegisteredSchema(1, key_schema("p.T", table, timestamps)),
        RegisteredSchema(2, value_schema("p.T", table, timestamps, envelope)),
        timestamps=timestamps,
        event_form=FORM.__class__(value_format=value_format, key_format=key_format),
    )  # fmt: skip
    return Translator({"T": encoding}, change_stream="S"), table


def insert_of(columns, key, value):
    mods = (Mod({"k": key}, {"v": value}, {}),)
    return record([], "INSERT", 5, "1")._replace(table_name="T", columns=columns, mods=mods)


@pytest.mark.parametrize("shapes_max", [256, 0], ids=["compiled", "not compiled"])
def test_equal_keys_are_equal_bytes(monkeypatch, shapes_max):
    monkeypatch.setattr(change_writer, "_SHAPES_MAX", shapes_max)
    for (code, *groups), timestamps, form in itertools.product(EQUAL, TimestampForm, FORMS):
        kind = kind_of(code)
        translator, table = translator_of(kind, timestamps, *form)
        columns = tuple(RecordColumn(c.name, kind, c.name == "k", c.ordinal) for c in table.columns)
        found = []
        for values in groups:
            keys = set()
            for value in values:
                one = insert_of(columns, value, None)
                keys.add(translator.translate(one, token="t").messages[0].key)
                keys.add(translator.place(one).key)
            assert len(keys) == 1, (form, kind, values, keys)
            found += keys
        assert len(set(found)) == len(groups), (kind, found)


@pytest.mark.parametrize("code", ["FLOAT64", "FLOAT32"])
def test_the_values_of_a_row_keep_their_sign(code):
    kind = ColumnType(code)
    for form in FORMS:
        translator, table = translator_of(kind, TimestampForm.MICROS, *form)
        columns = tuple(RecordColumn(c.name, kind, c.name == "k", c.ordinal) for c in table.columns)
        written = []
        for zero in (0.0, -0.0):
            one = insert_of(columns, 1.0, zero)
            written.append(translator.translate(one, token="t").messages[0])
        assert written[0].key == written[1].key
        assert written[0].value != written[1].value


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=6).map(lambda n: f"{n:f}")


@given(NUMBERS, st.integers(0, 4), NUMBERS)
def test_decimals_of_any_scale(text, zeros, other):
    convert = key_converter(PG_NUMERIC)
    longer = f"{text}{'0' * zeros}" if "." in text else f"{text}.{'0' * zeros}"
    assert convert(longer) == convert(text)
    assert Decimal(convert(text)) == Decimal(text)
    assert (convert(text) == convert(other)) == (Decimal(text) == Decimal(other))


@pytest.mark.parametrize("code", [one[0] for one in EQUAL], ids=str)
def test_null_is_null(code):
    kind = kind_of(code)
    assert key_field_writer(kind)(None) == b"\0"
    assert avro_type(kind)
