"""Datastream's schema: the documented fields with their types, in the order of its files."""

from __future__ import annotations

import json
from pathlib import Path

import fastavro
import pytest

from tidegate.schemas.change_schema import (
    envelope_of,
    row_fields,
    unwatched_columns,
    value_schema,
    with_row,
    without,
)
from tidegate.schemas.datastream_schema import datastream_type, payload_key
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column, ColumnType, TableSchema

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DOCUMENTED = {
    "stream_name": "string",
    "read_method": "string",
    "object": "string",
    "schema_key": "string",
    "uuid": "string",
    "read_timestamp": MILLIS,
    "source_timestamp": MILLIS,
    "sort_keys": {"type": "array", "items": ["string", "long"]},
}
"""The generic metadata of Datastream's documentation, and their Avro types."""

IN_FILES = ["uuid", "read_timestamp", "source_timestamp", "object", "read_method", "stream_name",
            "schema_key", "sort_keys", "source_metadata", "payload"]  # fmt: skip
FILES = sorted((Path(__file__).resolve().parents[4] / "shared/data/datastream").glob("*cdc*.avro"))


def table(*names, kind="INT64"):
    columns = (Column(name, ColumnType(kind), number) for number, name in enumerate(names, 2))
    return TableSchema("shop.t", (Column("id", ColumnType("INT64"), 1, key_position=1), *columns))


def schema(*names, **options):
    return value_schema("p.t", table(*names, **options), TimestampForm.MICROS, Envelope.DATASTREAM)


def test_every_generic_field_is_there_with_its_documented_type():
    fields = {field["name"]: field["type"] for field in schema("a")["fields"]}
    assert list(fields) == IN_FILES
    assert {name: fields[name] for name in DOCUMENTED} == DOCUMENTED


@pytest.mark.skipif(not FILES, reason="needs files that Datastream wrote")
def test_the_fields_are_those_of_files_that_datastream_wrote():
    ours = {field["name"]: field["type"] for field in schema("a")["fields"]}
    for file in FILES:
        with file.open("rb") as opened:
            found = json.loads(fastavro.reader(opened).metadata["avro.schema"])
        theirs = {field["name"]: field["type"] for field in found["fields"]}
        assert list(theirs) == list(ours)
        same = [name for name in theirs if name not in {"source_metadata", "payload"}]
        assert {n: theirs[n] for n in same} == {n: ours[n] for n in same}
        assert theirs["payload"]["name"] == ours["payload"]["name"]
        assert theirs["source_metadata"]["name"] == ours["source_metadata"]["name"]


def test_the_metadata_of_the_source_have_the_fields_that_other_sources_have():
    fields = {field["name"]: field["type"] for field in schema("a")["fields"]}
    metadata = {one["name"]: one["type"] for one in fields["source_metadata"]["fields"]}
    of_postgresql = {"schema": "string", "table": "string", "is_deleted": "boolean",
                     "change_type": "string", "tx_id": "string",
                     "primary_keys": {"type": "array", "items": "string"}}  # fmt: skip
    assert {name: metadata[name] for name in of_postgresql} == of_postgresql
    assert metadata["database"] == metadata["record_sequence"] == "string"


@pytest.mark.parametrize(
    ("column_type", "avro"),
    [
        (ColumnType("BOOL"), "boolean"),
        (ColumnType("BYTES"), "bytes"),
        (ColumnType("DATE"), {"type": "int", "logicalType": "date"}),
        (ColumnType("FLOAT32"), "float"),
        (ColumnType("FLOAT64"), "double"),
        (ColumnType("INT64"), "long"),
        (ColumnType("JSON"), {"type": "string", "logicalType": "json"}),
        (
            ColumnType("NUMERIC"),
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
        ),
        (
            ColumnType("NUMERIC", annotation="PG_NUMERIC"),
            {"type": "string", "logicalType": "number"},
        ),
        (ColumnType("STRING"), "string"),
        (ColumnType("TIMESTAMP"), {"type": "long", "logicalType": "timestamp-micros"}),
        (
            ColumnType("ARRAY", ColumnType("JSON")),
            {"type": "array", "items": ["null", {"type": "string", "logicalType": "json"}]},
        ),
    ],
)
def test_columns_have_unified_types(column_type, avro):
    assert datastream_type(column_type, TimestampForm.MICROS) == avro


def test_the_column_of_an_index_is_in_the_schema():
    payload = schema("a", "b")["fields"][-1]["type"]
    assert [field["name"] for field in payload["fields"]] == ["id", "a", "b"]
    assert [field["type"] for field in payload["fields"]] == [["null", "long"]] * 3


def test_the_key_of_a_schema_changes_with_its_payload_alone():
    keys = {payload_key(row_fields(one).values()) for one in (schema("a"), schema("a"))}
    assert {len(key) for key in keys} == {40}
    assert len(keys) == 1
    other = {payload_key(row_fields(schema("a", kind=kind)).values()) for kind in ("INT64", "BOOL")}
    assert keys < other
    # As a registry may give it back.
    fields = [dict(reversed(field.items())) for field in row_fields(schema("a")).values()]
    assert payload_key(fields) in keys


def test_the_row_is_found_and_replaced():
    whole = schema("a", "b")
    assert envelope_of(whole) is Envelope.DATASTREAM
    assert list(row_fields(whole)) == ["id", "a", "b"]
    narrowed = without(whole, {"a"})
    assert unwatched_columns([narrowed]) == {"a"}
    assert with_row(narrowed, row_fields(whole)) == whole
    fastavro.parse_schema(whole)
