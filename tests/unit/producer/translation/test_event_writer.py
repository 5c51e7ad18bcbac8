"""Events of both products and in both formats: what is alike in all of them."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.translation.event_reading import FORM, read_event, translator_of
from tests.unit.producer.translation.test_translator_properties import (
    MODS,
    TABLE,
    left,
    record,
)
from tidegate.producer.errors import TableChanged
from tidegate.producer.records import Mod, UnreadableValues
from tidegate.producer.translation.event_writer import EventForm
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import Envelope, ValueFormat

pytestmark = pytest.mark.usefixtures("each_way")

EVENTS = (Envelope.DEBEZIUM, Envelope.DATASTREAM)
EACH = list(product(EVENTS, ValueFormat))
MOD_TYPES = ("INSERT", "UPDATE", "DELETE")
NAMES = [column.name for column in TABLE.columns]
KEY_NAMES = [column.name for column in TABLE.columns if column.key_position]


@pytest.mark.parametrize(("envelope", "value_format"), EACH)
@given(st.sampled_from(MOD_TYPES), MODS)
def test_all_but_the_value_is_as_in_our_own_envelope(envelope, value_format, mod_type, mods):
    one = record(mods, mod_type, 5_000, "00000007")
    ours = translator_of(Envelope.TIDEGATE).translate(one, token="k").messages
    events = translator_of(envelope, value_format).translate(one, token="k").messages
    assert [event._replace(value=b"") for event in events] == [
        change._replace(value=b"") for change in ours
    ]


@pytest.mark.parametrize(("envelope", "value_format"), EACH)
@given(st.sampled_from(MOD_TYPES), MODS)
def test_an_event_is_a_function_of_its_change(envelope, value_format, mod_type, mods):
    """Read again, in parts, by another worker: the same bytes."""
    one = record(mods, mod_type, 5_000, "00000007")
    first = translator_of(envelope, value_format).translate(one, token="k").messages
    parts = [
        message
        for position in range(len(mods))
        for message in translator_of(envelope, value_format)
        .translate(one.part(position), token="k")
        .messages
    ]
    assert tuple(parts) == first


@pytest.mark.parametrize("envelope", EVENTS)
@given(st.sampled_from(MOD_TYPES), MODS)
def test_json_and_avro_say_which_columns_were_captured(envelope, mod_type, mods):
    one = record(mods, mod_type, 5_000, "00000007")
    for value_format in ValueFormat:
        messages = translator_of(envelope, value_format).translate(one, token="k").messages
        for message, (keys, new, old) in zip(messages, mods, strict=True):
            row, names = captured_row(envelope, read_event(message, envelope, value_format),
                                      mod_type)  # fmt: skip
            meant = {**left(old if mod_type == "DELETE" else new), **left(keys)}
            assert names == [name for name in NAMES if name in meant]
            nulls = {name for name in names if meant[name] is None}
            # A document that is null is null in JSON, as a column without a value is.
            documents = {name for name in names if name == "c_JSON" and meant[name] == "null"}
            assert {name for name in names if row[name] is None} - documents == nulls
            assert not any(row.get(name) for name in NAMES if name not in names)


def captured_row(envelope, event, mod_type):
    """The row after a change, of a DELETE that before it, and the names of what was captured."""
    if envelope is Envelope.DATASTREAM:
        return event["payload"], event["source_metadata"]["captured_columns"]
    place = "before" if mod_type == "DELETE" else "after"
    return event[place], event["source"][f"{place}_columns"]


@pytest.mark.parametrize(("envelope", "value_format"), EACH)
def test_what_cannot_be_written_is_named(envelope, value_format):
    translator = translator_of(envelope, value_format)
    keys = dict.fromkeys(KEY_NAMES)
    good = record([], "INSERT", 5_000, "00000007")

    def refused(mod, mod_type="INSERT"):
        changed = good._replace(mods=(mod,), mod_type=mod_type)
        with pytest.raises((SchemaError, TableChanged)) as caught:
            translator.translate(changed, token="k")
        return caught.value

    wrong = refused(Mod(keys, {"c_BOOL": "no", "c_DATE": "2023-01-01"}, {}))
    assert wrong.fields["column"] == "c_BOOL"
    assert wrong.fields["record_sequence"] == "00000007"
    assert refused(Mod({**keys, KEY_NAMES[0]: []}, {}, {})).fields["column"] == KEY_NAMES[0]
    assert isinstance(refused(Mod(keys, {"later": "1"}, {})), TableChanged)
    assert "primary key" in str(refused(Mod({}, {}, {})))
    unreadable = UnreadableValues("{", SchemaError("values cannot be read"))
    assert "cannot be read" in str(refused(Mod(keys, {}, unreadable), "DELETE"))
    assert "cannot be read" in str(refused(Mod(keys, unreadable, {})))
    assert "cannot be read" in str(refused(Mod(keys, {}, unreadable), "UPDATE"))


@pytest.mark.parametrize("envelope", EVENTS)
def test_texts_that_are_not_unicode_are_refused(envelope):
    wrong = record([], "INSERT", 5_000, "00000007")._replace(
        mods=(Mod(dict.fromkeys(KEY_NAMES), {}, {}),), transaction_tag="\ud800"
    )
    for value_format in ValueFormat:
        with pytest.raises(SchemaError):
            translator_of(envelope, value_format).translate(wrong, token="k")


def test_json_has_no_frame_and_no_spaces():
    one = record([], "INSERT", 5_000, "00000007")._replace(
        mods=(Mod(dict.fromkeys(KEY_NAMES), {"c_STRING": "a b"}, {}),)
    )
    for envelope in EVENTS:
        (message,) = translator_of(envelope, ValueFormat.JSON).translate(one, token="k").messages
        text = message.value.decode()
        assert json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) == text


def test_a_form_names_its_stream():
    expected = "projects/p/instances/i/databases/d/changeStreams/Feed"
    assert FORM.stream_path == expected
    assert EventForm().value_format is ValueFormat.AVRO
