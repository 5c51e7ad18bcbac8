"""Debezium's schema: the fields that its own classes make, and what is added to them.

`records.json` is what Debezium 3.6.3 writes (`tests/unit/producer/translation/debezium`).
"""

from __future__ import annotations

import fastavro
import pytest

from tests.unit.producer.translation.debezium_golden import RECORDS, TABLE, TOPIC
from tidegate.schemas.change_schema import (
    envelope_of,
    row_fields,
    unwatched_columns,
    value_schema,
    with_row,
    without,
)
from tidegate.schemas.debezium_schema import DEBEZIUM_SOURCE, debezium_type, is_text
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

SCHEMA = value_schema(TOPIC, TABLE, TimestampForm.MICROS, Envelope.DEBEZIUM)
OURS = {"before_columns", "after_columns"}
KINDS = {"int32": "int", "int64": "long", "float": "float", "double": "double",
         "boolean": "boolean", "string": "string", "bytes": "bytes"}  # fmt: skip


def avro_of(connect):
    """The Avro type of a Connect schema, as JSON shows it, without names of its own."""
    if connect["type"] == "array":
        kind = {"type": "array", "items": avro_of(connect["items"])}
    elif connect["type"] == "struct":
        kind = {field["field"]: avro_of(field) for field in connect["fields"]}
    else:
        kind = KINDS[connect["type"]]
    return ["null", kind] if connect["optional"] else kind


def plain(avro):
    """The same of a type of ours."""
    match avro:
        case list():
            kinds = [plain(one) for one in avro if one != "null"]
            return ["null", *kinds]
        case {"type": "record"}:
            return {field["name"]: plain(field["type"]) for field in avro["fields"]}
        case {"type": "array"}:
            return {"type": "array", "items": plain(avro["items"])}
        case dict():
            return avro["type"]
    return avro


def nullable(kind):
    return kind if isinstance(kind, list) else ["null", kind]


def test_the_fields_are_those_of_debezium_in_its_order():
    theirs, ours = avro_of(RECORDS["value_schema"]), plain(SCHEMA)
    assert list(ours) == list(theirs)
    source = ours["source"]
    assert [name for name in source if name not in OURS] == list(theirs["source"])
    assert list(source)[-2:] == sorted(OURS, reverse=True)
    # Debezium has a value for each field that it calls optional by a default, and so have we.
    assert {n: t for n, t in source.items() if n not in OURS} == {
        **theirs["source"],
        "snapshot": ["null", "string"],
    }
    for name in ("op", "ts_ms", "ts_us", "ts_ns", "transaction"):
        assert ours[name] == theirs[name]


def test_each_column_has_debeziums_type_and_may_be_null():
    theirs, ours = avro_of(RECORDS["value_schema"]), plain(SCHEMA)
    (_, before), (_, of_debezium) = ours["before"], theirs["before"]
    assert set(before) == set(of_debezium)
    assert before == {name: nullable(of_debezium[name]) for name in before}
    assert ours["after"] == ["null", f"{TABLE.name}.Value"]


def test_names_of_records_are_those_of_debezium():
    parsed = fastavro.parse_schema(SCHEMA)
    assert parsed["name"] == RECORDS["value_schema"]["name"] == f"{TOPIC}.Envelope"
    by_name = {field["field"]: field for field in RECORDS["value_schema"]["fields"]}
    assert by_name["before"]["name"] == f"{TABLE.name}.Value"
    assert by_name["source"]["name"] == "com.google.spanner.connector.Source"
    snapshot = next(f for f in by_name["source"]["fields"] if f["field"] == "snapshot")
    ours = next(f for f in DEBEZIUM_SOURCE["fields"] if f["name"] == "snapshot")
    assert ours["type"][0]["connect.parameters"] == snapshot["parameters"]
    assert ours["default"] == snapshot["default"] == "false"
    assert by_name["transaction"]["name"] == "event.block"


def test_the_row_is_found_and_replaced():
    assert envelope_of(SCHEMA) is Envelope.DEBEZIUM
    assert list(row_fields(SCHEMA)) == [column.name for column in TABLE.columns]
    narrowed = without(SCHEMA, {"doc"})
    assert unwatched_columns([narrowed]) == {"doc"}
    assert with_row(narrowed, row_fields(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("code", ["PROTO", "ENUM", "INTERVAL"])
def test_what_debezium_cannot_carry_is_as_in_our_own_envelope(code):
    expected = {"PROTO": "bytes", "ENUM": "long", "INTERVAL": "string"}[code]
    assert debezium_type(ColumnType(code)) == expected
    items = debezium_type(ColumnType("ARRAY", ColumnType(code)))["items"]
    assert items == ["null", expected]
    assert is_text(ColumnType(code)) is (code == "INTERVAL")
