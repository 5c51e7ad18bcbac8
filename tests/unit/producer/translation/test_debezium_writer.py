"""Debezium's envelope: its own classes' records of the same changes, and changes of any shape."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.debezium_golden import (
    CHANGES,
    FORM,
    RECORDS,
    TABLE,
    TOPIC,
    record_of,
)
from tests.unit.producer.translation.event_reading import read_event, translator_of
from tests.unit.producer.translation.test_translator_properties import (
    MODS,
    left,
    record,
    right,
    same,
)
from tests.unit.producer.translation.test_translator_properties import TABLE as ALL_TYPES
from tidegate.producer.translation.debezium_writer import DebeziumWriter
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.debezium_schema import DEBEZIUM_TAIL, is_text
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import Envelope, KeyFormat, ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.wire_format import unframe

pytestmark = pytest.mark.usefixtures("each_way")

KEY = RegisteredSchema(1, key_schema(TOPIC, TABLE))
VALUE = RegisteredSchema(2, value_schema(TOPIC, TABLE, TimestampForm.STRING, Envelope.DEBEZIUM))
EACH = list(zip(CHANGES["changes"], RECORDS["records"], strict=True))
OURS = {"before_columns", "after_columns"}
OTHERS = {"version": "tidegate"}
"""What differs on purpose: Debezium's version is a number of its release."""


def written(change, value_format, key_format=KeyFormat.AVRO):
    form = replace(FORM, value_format=value_format, key_format=key_format)
    encoding = TableEncoding(TABLE, TOPIC, KEY, VALUE, event_form=form)
    translator = Translator({TABLE.name: encoding}, change_stream=FORM.change_stream)
    (message,) = translator.translate(record_of(change), token=CHANGES["partition_token"]).messages
    return message


def as_debezium(event):
    """An event without what is ours alone, bytes as JSON has them."""
    source = {name: one for name, one in event["source"].items() if name not in OURS}
    rows = {
        place: event[place] and {
            name: base64.b64encode(one).decode() if isinstance(one, bytes) else one
            for name, one in event[place].items()
        }
        for place in ("before", "after")
    }  # fmt: skip
    return {**event, **rows, "source": source}


def expected_of(change, value):
    """Debezium's record, but for its row before an UPDATE without old values: we say null."""
    has_before = change["mod_type"] == "DELETE" or (
        change["mod_type"] == "UPDATE" and change["old_values"]
    )
    before = value["before"] if has_before else None
    if change["mod_type"] == "UPDATE" and not has_before:
        # Debezium's is a row of which it knows the key alone.
        assert {name for name, one in value["before"].items() if one is not None} <= set(
            change["keys"]
        )
    return {**value, "before": before, "source": {**value["source"], **OTHERS}}


@pytest.mark.parametrize("value_format", ValueFormat)
@pytest.mark.parametrize(("change", "theirs"), EACH)
def test_a_change_is_what_debeziums_classes_write_of_it(change, theirs, value_format):
    event = read_golden(written(change, value_format), value_format)
    expected = expected_of(change, theirs["value"])
    found = as_debezium(event)
    assert found == expected
    # In JSON the order counts for people.
    assert [name for name in event["source"] if name not in OURS] == list(theirs["value"]["source"])
    assert list(found) == list(expected)


@pytest.mark.parametrize(("change", "theirs"), EACH)
def test_a_key_in_json_is_what_debeziums_converter_writes(change, theirs):
    message = written(change, ValueFormat.JSON, KeyFormat.JSON)
    assert json.loads(message.key) == theirs["key"]
    assert message.value == written(change, ValueFormat.JSON).value
    # Without spaces, and in the order of the primary key: the bytes decide the topic partition.
    names = [column.name for column in TABLE.key_columns]
    assert list(json.loads(message.key)) == names
    assert b" " not in message.key
    assert written(change, ValueFormat.JSON).key.startswith(b"\0")


def json_key_of(keys, **types):
    """Return the key in JSON of a table with these columns, all of the key."""
    columns = tuple(
        Column(name, kind, place, place) for place, (name, kind) in enumerate(types.items(), 1)
    )
    table = TableSchema("T", columns)
    form = replace(FORM, value_format=ValueFormat.JSON, key_format=KeyFormat.JSON)
    value = value_schema("bank.T", table, TimestampForm.MICROS, Envelope.DEBEZIUM)
    key = RegisteredSchema(1, key_schema("bank.T", table))
    writer = TableEncoding(table, "bank.T", key, RegisteredSchema(2, value), event_form=form).writer
    return writer.key(keys)


def test_equal_keys_are_equal_bytes_however_the_service_writes_them():
    types = {
        "at": ColumnType("TIMESTAMP"), "price": ColumnType("NUMERIC"), "id": ColumnType("UUID"),
        "day": ColumnType("DATE"), "data": ColumnType("BYTES"), "text": ColumnType("STRING"),
    }  # fmt: skip
    uuid = "6b1f9f2e-5a0e-4d2b-9d5a-0f3f1f7a7a10"
    one = {
        "at": "2023-11-14T22:13:20Z", "price": "19.9", "id": uuid, "day": "1999-12-31",
        "data": "AAEC/w==", "text": 'Ü"',
    }  # fmt: skip
    other = {**one, "at": "2023-11-14T22:13:20.000Z", "price": "19.900", "id": uuid.upper()}
    assert json_key_of(one, **types) == json_key_of(other, **types)
    assert json.loads(json_key_of(other, **types)) == one
    nulls = dict.fromkeys(one)
    assert json.loads(json_key_of(nulls, **types)) == nulls


def test_a_key_of_32_bits_has_the_digits_that_it_needs():
    """A change stream writes 0.1, a read of the table the double that is next to it."""
    types = {"weight": ColumnType("FLOAT32")}
    for weight in (0.1, 0.10000000149011612):
        assert json_key_of({"weight": weight}, **types) == b'{"weight":0.1}'
    assert json_key_of({"weight": "NaN"}, **types) == b'{"weight":"NaN"}'
    assert json_key_of({"weight": None}, **types) == b'{"weight":null}'


def test_a_key_in_json_that_is_not_the_primary_key_is_refused():
    types = {"id": ColumnType("INT64")}
    assert json_key_of({"id": "9223372036854775807"}, **types) == b'{"id":9223372036854775807}'
    for keys in ({}, {"id": "1", "other": "2"}, {"id": "x"}):
        with pytest.raises(SchemaError):
            json_key_of(keys, **types)


def read_golden(message, value_format):
    if value_format is ValueFormat.JSON:
        return json.loads(message.value)
    _, body = unframe(message.value)
    schema = fastavro.parse_schema(json.loads(json.dumps(VALUE.schema)))
    return fastavro.schemaless_reader(io.BytesIO(body), schema, None)


def test_topics_are_named_as_debezium_names_them():
    assert RECORDS["topic"] == TOPIC


@given(st.sampled_from(["INSERT", "UPDATE", "DELETE"]), MODS)
def test_rows_before_and_after_are_what_was_captured(mod_type, mods):
    one = record(mods, mod_type, 5_000, "00000007")
    messages = translator_of(Envelope.DEBEZIUM).translate(one, token="token").messages
    for number, (message, (keys, new, old)) in enumerate(zip(messages, mods, strict=True)):
        event = read_event(message, Envelope.DEBEZIUM)
        has_before = mod_type == "DELETE" or (mod_type == "UPDATE" and old)
        assert_row(event, "before", {**old, **keys} if has_before else None)
        assert_row(event, "after", None if mod_type == "DELETE" else {**new, **keys})
        source = event["source"]
        assert event["op"] == {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}[mod_type]
        assert (source["mod_number"], source["sequence"]) == (number, "7")
        assert event["ts_ms"] == source["ts_ms"] == 5
        assert event["ts_us"] == source["ts_us"] == 5_000
        assert event["ts_ns"] == source["ts_ns"] == 5_000_999
        assert source["partition_token"] == "token"
        assert source["read_at_timestamp"] is source["low_watermark"] is None


def assert_row(event, place, pairs):
    row, names = event[place], event["source"][f"{place}_columns"]
    if pairs is None:
        assert row is names is None
        return
    assert names == [column.name for column in ALL_TYPES.columns if column.name in pairs]
    given_values, meant = left(pairs), right(pairs)
    for column in ALL_TYPES.columns:
        name, kind = column.name, column.type.element or column.type
        if name not in pairs:
            assert row[name] is None
        elif is_text(kind):
            assert row[name] == given_values[name]
        elif kind.code == "UUID":
            expected = meant[name]
            expected = (
                [one and str(one) for one in expected]
                if isinstance(expected, list)
                else expected and str(expected)
            )
            assert row[name] == expected
        else:
            assert same(row[name], meant[name])


def test_a_sequence_of_two_numbers_stays_text():
    one = record([], "INSERT", 5_000, "0a-1f")._replace(mods=())
    assert translator_of(Envelope.DEBEZIUM).translate(one, token="k").messages == ()
    writer = DebeziumWriter(TABLE, key=KEY, value=VALUE, form=FORM)
    change = record_of(CHANGES["changes"][0])._replace(record_sequence="0a-1f")
    ((_, value),) = DebeziumWriter(
        TABLE, key=KEY, value=VALUE, form=replace(FORM, value_format=ValueFormat.JSON)
    ).write_events(change, "k")
    assert json.loads(value)["source"]["sequence"] == "0a-1f"
    assert writer.write_events(change, "k")


@pytest.mark.parametrize(
    "fields",
    [
        [*VALUE.schema["fields"][:2], *DEBEZIUM_TAIL[::-1]],
        [*VALUE.schema["fields"][1::-1], *DEBEZIUM_TAIL],
        VALUE.schema["fields"][:-1],
    ],
)
def test_a_registered_schema_of_another_form_is_refused(fields):
    with pytest.raises(SchemaError, match="not that of a change"):
        DebeziumWriter(
            TABLE, key=KEY, value=RegisteredSchema(9, {**VALUE.schema, "fields": fields})
        )
