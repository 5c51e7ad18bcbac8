"""Keys of versions that kept the sign of a zero: found again, and put back as today's."""

from __future__ import annotations

import itertools
import struct
from functools import partial

import pytest

from tests.unit.producer.translation.test_keys import EQUAL, FORMS, TINY32, insert_of, kind_of
from tests.unit.producer.translation.test_keys import translator_of as table_of
from tidegate.producer.messages import FORM_MESSAGE, FORM_RECORD, KEY_PARKED, ParkedChange
from tidegate.producer.records import Mod, RecordColumn
from tidegate.producer.translation import change_writer, event_fields, translator
from tidegate.producer.translation.avro_fields import field_writer
from tidegate.producer.translation.parked_record import write_parked_record
from tidegate.producer.translation.putting_back import ParkedTranslator
from tidegate.producer.translation.values import converter
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema


class Limits:
    def bytes_max(self, _topic):
        return 1_000_000


def columns_of(table):
    keys = {column.name for column in table.key_columns}
    return tuple(RecordColumn(c.name, c.type, c.name in keys, c.ordinal) for c in table.columns)


def earlier(monkeypatch, make):
    """Return what `make` returns in a version that wrote the key as it was read."""
    with monkeypatch.context() as patched:
        patched.setattr(change_writer, "key_field_writer", field_writer)
        patched.setattr(event_fields, "key_converter", converter)
        return make()


def test_every_key_of_an_earlier_version_is_found_again(monkeypatch):
    differing = set()
    for (code, *groups), timestamps, form in itertools.product(EQUAL, TimestampForm, FORMS):
        kind = kind_of(code)
        now, table = table_of(kind, timestamps, *form)
        before, _ = earlier(monkeypatch, partial(table_of, kind, timestamps, *form))
        for values in groups:
            for value in values:
                one = insert_of(columns_of(table), value, None)
                (message,) = now.translate(one, token="t").messages
                (former,) = before.translate(one, token="t").messages
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


def zeros_table():
    table = TableSchema(
        "T",
        (
            Column("a", ColumnType("FLOAT64"), 1, 1),
            Column("b", ColumnType("STRING"), 2, 2),
            Column("c", ColumnType("FLOAT32"), 3, 3),
        ),
    )
    encoding = translator.TableEncoding(
        table, "p.T", RegisteredSchema(1, key_schema("p.T", table)),
        RegisteredSchema(2, value_schema("p.T", table)),
    )  # fmt: skip
    return translator.Translator({"T": encoding}, change_stream="S"), table


def change(table, *key):
    mods = (Mod(dict(zip("abc", key, strict=True)), {}, {}),)
    return insert_of(columns_of(table), 1, None)._replace(mods=mods, columns=columns_of(table))


def test_a_key_of_several_zeros_has_had_several_forms(monkeypatch):
    now, table = zeros_table()
    before, _ = earlier(monkeypatch, zeros_table)
    text = '"a":0.0,' + struct.pack("<d", 0.0).decode()  # no number, though it looks like one
    spelled = [
        before.translate(change(table, a, text, c), token="t").messages[0].key
        for a, c in itertools.product((0.0, -0.0), repeat=2)
    ]

    (message,) = now.translate(change(table, -0.0, text, 0.0), token="t").messages

    assert message.key == spelled[0]
    assert set(message.former_keys) == set(spelled[1:])
    assert now.translate(change(table, 1.0, text, 2.0), token="t").messages[0].former_keys == ()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_an_earlier_version_has_parked_is_put_back_under_todays_key(monkeypatch, form):
    for kind, number in ((ColumnType("FLOAT64"), -0.0), (ColumnType("FLOAT32"), -0.0)):
        now, table = table_of(kind, TimestampForm.MICROS, *form)
        before, _ = earlier(monkeypatch, partial(table_of, kind, TimestampForm.MICROS, *form))
        one = insert_of(columns_of(table), number, -0.0)
        (was,) = before.translate(one, token="t").messages
        (expected,) = now.translate(one, token="t").messages
        assert was.key != expected.key
        place = was.order_key, was.mod
        letters = [
            ParkedChange("p.T", was.key, *place, write_parked_record(one), FORM_RECORD,
                         "SchemaError", "why", "t"),
            ParkedChange("p.T", was.key, *place, was.value, FORM_MESSAGE, KEY_PARKED, "", "t"),
        ]  # fmt: skip
        parked = ParkedTranslator(now, Limits(), dict, now.todays_key)
        for letter in letters:
            message = parked.message(letter)
            assert message._replace(former_keys=()) == expected._replace(former_keys=())
            assert message.value == was.value  # the row keeps its sign
        # Another row's key stays an error.
        (other,) = now.translate(insert_of(columns_of(table), 1.5, None), token="t").messages
        with pytest.raises(SchemaError, match="another key"):
            parked.message(letters[0]._replace(key=other.key))


def test_bytes_that_are_no_key_of_the_table_stay():
    now, table = zeros_table()
    (message,) = now.translate(change(table, -0.0, "x", 0.0), token="t").messages
    for data in (b"", b"key", message.key[:-1], message.key + b"x", b"\0\0\0\0\2" + message.key[5:],
                 b"\0\0\0\0\1\7", b"{", b'{"a":1}'):  # fmt: skip
        assert now.todays_key("p.T", data) == data
