"""The sections of docs/protocol.md on events of other products, computed again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.tidy.protocol_page import code, example, section, table
from tests.tidy.test_protocol_page import hexadecimal, read_avro, the_table
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.producer.translation.event_writer import EventForm
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.datastream_schema import DATASTREAM_HEAD, datastream_fields
from tidegate.schemas.debezium_schema import DEBEZIUM_SOURCE, DEBEZIUM_TAIL
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.output_form import Envelope, ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema

IDS = {Envelope.DEBEZIUM: 4, Envelope.DATASTREAM: 5}
FORM = EventForm(
    prefix="eu-orders", project="p", instance="i", database="d", change_stream="Everything"
)


@pytest.mark.parametrize("envelope", IDS)
def test_the_schema_is_made_of_the_table(envelope):
    made = value_schema(example("schemas")["topic"], the_table(), TimestampForm.MICROS, envelope)
    # As text: the order of the attributes counts.
    assert json.dumps(example(str(envelope))["value_schema"]) == json.dumps(made)


def test_every_field_is_described():
    described = {
        name
        for names, _, _ in table("field of Debezium's envelope", "type", "meaning")
        for name in code(names)
    }
    assert described == {"before", "after", *(field["name"] for field in DEBEZIUM_TAIL)}
    of_source = code(section("3.9"))
    assert {field["name"] for field in DEBEZIUM_SOURCE["fields"]} <= set(of_source)
    rows = table("field of an event", "Avro", "JSON", "value")
    assert [name for names, *_ in rows for name in code(names)] == [
        field["name"] for field in datastream_fields([], "")
    ]
    rows = table("field of `source_metadata`", "Avro", "meaning")
    metadata = DATASTREAM_HEAD[-1]["type"]["fields"]
    assert {name for names, *_ in rows for name in code(names)} == {f["name"] for f in metadata}


def messages(envelope, value_format):
    """Yield the documented change with its message, for each of an example's changes."""
    schemas, given = example("schemas"), example("change")
    subject, record = the_table(), given["record"]
    types = {column.name: column for column in subject.columns}
    key = RegisteredSchema(1, schemas["key_schema"])
    value = RegisteredSchema(
        IDS[envelope], value_schema(schemas["topic"], subject, TimestampForm.MICROS, envelope)
    )
    encoding = TableEncoding(
        subject, schemas["topic"], key, value,
        event_form=replace(FORM, value_format=value_format),
    )  # fmt: skip
    translator = Translator({subject.name: encoding}, change_stream=given["change_stream"])
    columns = tuple(
        RecordColumn(name, types[name].type, bool(types[name].key_position), types[name].ordinal)
        for name in record["columns"]
    )
    (mod,) = record["mods"]
    plain = {name: item for name, item in record.items() if name != "commit_timestamp_us"}
    for mod_type, documents in (
        ("UPDATE", {name: mod[name] for name in ("new_values", "old_values")}),
        ("DELETE", {"new_values": {}, "old_values": {}}),
    ):
        changed = {
            "commit_timestamp_ns": record["commit_timestamp_us"] * NS_PER_US,
            "mod_type": mod_type,
            "columns": columns,
            "mods": (Mod(mod["keys"], **documents),),
        }
        (message,) = translator.translate(
            DataChangeRecord(**{**plain, **changed}), token=given["partition_token"]
        ).messages
        yield mod_type, message


def shown(envelope):
    """Return an example as the page has it."""
    schema = value_schema(example("schemas")["topic"], the_table(), TimestampForm.MICROS, envelope)
    in_avro = messages(envelope, ValueFormat.AVRO)
    in_json = messages(envelope, ValueFormat.JSON)
    return {
        "value_schema": schema,
        "changes": [
            {
                "mod_type": mod_type,
                "value_fields": hexadecimal(read_avro(schema, message.value)),
                "value": message.value.hex(),
                "json": json.loads(text.value),
            }
            for (mod_type, message), (_, text) in zip(in_avro, in_json, strict=True)
        ],
    }


@pytest.mark.parametrize("envelope", IDS)
def test_the_changes(envelope):
    assert json.dumps(example(str(envelope))) == json.dumps(shown(envelope))
    for _, message in messages(envelope, ValueFormat.AVRO):
        assert message.key.hex() == example("change")["key"]
        assert message.order_key.hex() == example("change")["headers"]["order"]
