"""Translators of each envelope over one table of all types, and readers of what they write."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

from tests.unit.producer.translation.test_translator_properties import TABLE
from tests.unit.producer.translation.translation_building import read_framed
from tidegate.producer.translation.event_writer import EventForm
from tidegate.producer.translation.translator import TableEncoding, Translator
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.output_form import ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema

FORM = EventForm(prefix="bank", project="p", instance="i", database="d", change_stream="Feed")
KEY = RegisteredSchema(1, key_schema("bank.t", TABLE))


@cache
def value_of(envelope):
    schema = value_schema("bank.t", TABLE, TimestampForm.MICROS, envelope)
    return RegisteredSchema(7, schema)


def translator_of(envelope, value_format=ValueFormat.AVRO):
    encoding = TableEncoding(
        TABLE, "bank.t", KEY, value_of(envelope),
        event_form=replace(FORM, value_format=value_format),
    )  # fmt: skip
    return Translator({"t": encoding}, change_stream="Feed")


def read_event(message, envelope, value_format=ValueFormat.AVRO):
    if value_format is ValueFormat.JSON:
        return json.loads(message.value)
    return read_framed(message.value, {7: value_of(envelope).schema}.get)
