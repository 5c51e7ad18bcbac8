"""Translators of each envelope over one table of all types, and readers of what they write."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import cache

import fastavro

from tests.unit.producer.translation.test_translator_properties import TABLE
from tidegate.producer.translation.event_writer import EventForm
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.output_form import ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.wire_format import unframe

FORM = EventForm(prefix="bank", project="p", instance="i", database="d", change_stream="Feed")
KEY = RegisteredSchema(1, key_schema("bank.t", TABLE))


@cache
def value_of(envelope):
    schema = value_schema("bank.t", TABLE, TimestampForm.MICROS, envelope)
    return RegisteredSchema(7, schema)


def translator_of(envelope, value_format=ValueFormat.AVRO):
    """Return a new translator, as every worker makes its own."""
    encoding = TableEncoding(
        TABLE, "bank.t", KEY, value_of(envelope),
        event_form=replace(FORM, value_format=value_format),
    )  # fmt: skip
    return Translator({"t": encoding}, change_stream="Feed")


@cache
def parsed(envelope):
    return fastavro.parse_schema(json.loads(json.dumps(value_of(envelope).schema)))


def read_event(message, envelope, value_format=ValueFormat.AVRO):
    """Return an event as an independent reader finds it."""
    if value_format is ValueFormat.JSON:
        return json.loads(message.value)
    schema_id, body = unframe(message.value)
    assert schema_id == 7
    buffer = io.BytesIO(body)
    found = fastavro.schemaless_reader(buffer, parsed(envelope), None)
    assert not buffer.read()
    return found
