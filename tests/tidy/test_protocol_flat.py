"""The section of docs/protocol.md on flat values, computed again."""

from __future__ import annotations

import json

from tests.tidy.protocol_page import code, example, table
from tests.tidy.test_protocol_page import hexadecimal, read_avro, the_table
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.flat_schema import FLAT_FIELDS
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema


def test_the_schema_is_made_of_the_table():
    topic = example("schemas")["topic"]
    made = value_schema(topic, the_table(), TimestampForm.MICROS, Envelope.FLAT)
    # As text: the order of the attributes counts.
    assert json.dumps(example("flat")["value_schema"]) == json.dumps(made)


def test_every_field_is_described_with_its_type():
    described = {
        name: types.split(",")[0].replace("array of strings", "array")
        for names, types, _ in table("field of a flat value", "type", "meaning")
        for name in code(names)
    }
    for field in FLAT_FIELDS:
        kind = field["type"] if isinstance(field["type"], str) else field["type"]["type"]
        assert described.pop(field["name"]) == kind
    assert not described


def test_the_changes():
    schemas, given, flat = example("schemas"), example("change"), example("flat")
    subject, record = the_table(), given["record"]
    types = {column.name: column for column in subject.columns}
    key, value = (
        RegisteredSchema(1, schemas["key_schema"]),
        RegisteredSchema(3, flat["value_schema"]),
    )
    translator = Translator(
        {subject.name: TableEncoding(subject, schemas["topic"], key, value)},
        change_stream=given["change_stream"],
    )
    columns = tuple(
        RecordColumn(name, types[name].type, bool(types[name].key_position), types[name].ordinal)
        for name in record["columns"]
    )
    (mod,) = record["mods"]
    plain = {name: item for name, item in record.items() if name != "commit_timestamp_us"}
    for change in flat["changes"]:
        documents = {name: change.get(name, mod[name]) for name in ("new_values", "old_values")}
        changed = {
            "commit_timestamp_ns": record["commit_timestamp_us"] * NS_PER_US,
            "mod_type": change["mod_type"],
            "columns": columns,
            "mods": (Mod(mod["keys"], **documents),),
        }
        (message,) = translator.translate(
            DataChangeRecord(**{**plain, **changed}), token=given["partition_token"]
        ).messages
        assert message.key.hex() == given["key"]
        assert message.order_key.hex() == given["headers"]["order"]
        assert message.value.hex() == change["value"]
        assert hexadecimal(read_avro(flat["value_schema"], message.value)) == change["value_fields"]
