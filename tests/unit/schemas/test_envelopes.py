"""The other envelopes (flat, Debezium's, Datastream's) and how a stream's start names them."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import fastavro
import pytest

from tests.unit.producer.translation.debezium_golden import RECORDS, TABLE, TOPIC
from tidegate.schemas.change_schema import (
    FLAT_FIELDS,
    envelope_of,
    excludes,
    is_flat,
    reserved_names,
    row_fields,
    unwatched_columns,
    value_schema,
    with_row,
    without,
)
from tidegate.schemas.datastream_event import (
    datastream_type,
    event_facts,
    facts_as_json,
    payload_key,
    record_facts,
)
from tidegate.schemas.debezium_schema import DEBEZIUM_SOURCE, debezium_type, is_text
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.output_form import (
    Envelope,
    KeyFormat,
    OutputForm,
    ValueFormat,
    left_out,
    recorded_form,
)
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


def table(*names, kind="INT64", **options):
    columns = [Column("id", INT64, 1, key_position=1)]
    columns += (Column(name, ColumnType(kind), number) for number, name in enumerate(names, 2))
    return TableSchema("shop.t", tuple(columns), **options)


def schema_of(envelope, *names, **options):
    return value_schema("p.t", table(*names, **options), TimestampForm.MICROS, envelope)


flat = partial(schema_of, Envelope.FLAT)
schema = partial(schema_of, Envelope.DATASTREAM)


@pytest.mark.parametrize("envelope", Envelope)
def test_the_row_of_each_envelope_is_found_narrowed_and_replaced(envelope):
    whole = schema_of(envelope, "a", "b")
    assert envelope_of(whole) is envelope
    assert list(row_fields(whole)) == ["id", "a", "b"]
    narrowed = without(whole, {"a"})
    assert unwatched_columns([narrowed, schema_of(envelope, "b")]) == {"a"}
    assert with_row(narrowed, row_fields(whole)) == whole
    fastavro.parse_schema(whole)


def test_a_row_stands_before_the_fields_of_the_change():
    flat_schema = flat("new_values", "source", excludes=("exclude_delete",))
    assert is_flat(flat_schema)
    assert not is_flat(value_schema("p.t", table("__op")))
    names = [field["name"] for field in fastavro.parse_schema(flat_schema)["fields"]]
    own = [field["name"] for field in FLAT_FIELDS]
    assert names == ["id", "new_values", "source", *own]
    assert reserved_names(own) == own
    assert excludes([flat_schema]) == ("exclude_delete",)
    assert list(row_fields(flat_schema)) == ["id", "new_values", "source"]
    assert without(flat("a", "b"), {"a"})["fields"][3:] == list(FLAT_FIELDS)


@pytest.mark.parametrize("name", ["__op", "__"])
def test_a_column_with_a_name_of_the_envelope_is_refused(name):
    assert reserved_names(["a", name, "_x", "x__y"]) == [name]
    with pytest.raises(SchemaError, match="a flat value cannot have a column") as caught:
        flat(name)
    assert caught.value.fields == {"table": "shop.t", "column": name}
    assert "columns_left_out" in (caught.value.hint or "")


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
            kinds = [plain(branch) for branch in avro if branch != "null"]
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


def test_what_debezium_cannot_carry_is_as_in_our_own_envelope():
    for code, expected in (("PROTO", "bytes"), ("ENUM", "long"), ("INTERVAL", "string")):
        assert debezium_type(ColumnType(code)) == expected
        items = debezium_type(ColumnType("ARRAY", ColumnType(code)))["items"]
        assert items == ["null", expected]
        assert is_text(ColumnType(code)) == (code == "INTERVAL")


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
OF_JSON = {"type": "string", "logicalType": "json"}
OF_NUMERIC = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}
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


def test_every_documented_field_is_there_with_its_type():
    fields = {field["name"]: field["type"] for field in schema("a", "b")["fields"]}
    assert list(fields) == IN_FILES
    assert {name: fields[name] for name in DOCUMENTED} == DOCUMENTED
    metadata = {field["name"]: field["type"] for field in fields["source_metadata"]["fields"]}
    of_postgresql = {"schema": "string", "table": "string", "is_deleted": "boolean",
                     "change_type": "string", "tx_id": "string",
                     "primary_keys": {"type": "array", "items": "string"}}  # fmt: skip
    assert {name: metadata[name] for name in of_postgresql} == of_postgresql
    assert metadata["database"] == metadata["record_sequence"] == "string"
    payload = {field["name"]: field["type"] for field in fields["payload"]["fields"]}
    assert payload == {name: ["null", "long"] for name in ("id", "a", "b")}


@pytest.mark.skipif(not FILES, reason="needs files that Datastream wrote")
def test_the_fields_are_those_of_files_that_datastream_wrote():
    ours = {field["name"]: field["type"] for field in schema("a")["fields"]}
    for file in FILES:
        with file.open("rb") as opened:
            file_schema = json.loads(fastavro.reader(opened).metadata["avro.schema"])
        theirs = {field["name"]: field["type"] for field in file_schema["fields"]}
        assert list(theirs) == list(ours)
        same = [name for name in theirs if name not in {"source_metadata", "payload"}]
        assert {n: theirs[n] for n in same} == {n: ours[n] for n in same}
        assert theirs["payload"]["name"] == ours["payload"]["name"]
        assert theirs["source_metadata"]["name"] == ours["source_metadata"]["name"]


@pytest.mark.parametrize(
    ("column_type", "avro"),
    [
        (ColumnType("BOOL"), "boolean"),
        (ColumnType("BYTES"), "bytes"),
        (ColumnType("DATE"), {"type": "int", "logicalType": "date"}),
        (ColumnType("FLOAT32"), "float"),
        (ColumnType("FLOAT64"), "double"),
        (ColumnType("INT64"), "long"),
        (ColumnType("JSON"), OF_JSON),
        (ColumnType("NUMERIC"), OF_NUMERIC),
        (
            ColumnType("NUMERIC", annotation="PG_NUMERIC"),
            {"type": "string", "logicalType": "number"},
        ),
        (ColumnType("STRING"), "string"),
        (ColumnType("TIMESTAMP"), {"type": "long", "logicalType": "timestamp-micros"}),
        (ColumnType("ARRAY", ColumnType("JSON")), {"type": "array", "items": ["null", OF_JSON]}),
    ],
)
def test_columns_have_unified_types(column_type, avro):
    assert datastream_type(column_type, TimestampForm.MICROS) == avro


def test_the_key_of_a_schema_changes_with_its_payload_alone():
    keys = {
        payload_key(row_fields(value_schema).values())
        for value_schema in (schema("a"), schema("a"))
    }
    assert {len(key) for key in keys} == {40}
    assert len(keys) == 1
    other = {payload_key(row_fields(schema("a", kind=kind)).values()) for kind in ("INT64", "BOOL")}
    assert keys < other
    # As a registry may give it back.
    fields = [dict(reversed(field.items())) for field in row_fields(schema("a")).values()]
    assert payload_key(fields) in keys


SOURCE = {
    "commit_timestamp": 1_700_000_000_123_456,
    "server_transaction_id": "MTIz",
    "record_sequence": "00000002",
    "is_last_record_in_transaction_in_partition": True,
    "number_of_records_in_transaction": 3,
    "number_of_partitions_in_transaction": 2,
    "transaction_tag": "tag",
    "is_system_transaction": False,
    "value_capture_type": "NEW_ROW",
    "partition_token": "not in an event",
    "mod_number": 9,
}


def facts(number=0, mod_type="UPDATE", table="shop.Items", stream="s", **source):
    of_record = record_facts(
        {**SOURCE, **source}, mod_type=mod_type, table=table, key_columns=["Id"],
        stream=stream, database="d", schema_key="k",
    )  # fmt: skip
    return event_facts(of_record, number=number, captured=["Id", "Name"])


def test_every_fact_of_the_source_has_its_place():
    metadata = facts(number=4)["source_metadata"]
    assert metadata == {
        "database": "d", "schema": "shop", "table": "Items", "primary_keys": ["Id"],
        "is_deleted": False, "change_type": "UPDATE", "tx_id": "MTIz",
        "record_sequence": "00000002", "mod_number": 4,
        "commit_timestamp": SOURCE["commit_timestamp"],
        "is_last_record_in_transaction_in_partition": True,
        "number_of_records_in_transaction": 3, "number_of_partitions_in_transaction": 2,
        "transaction_tag": "tag", "is_system_transaction": False,
        "value_capture_type": "NEW_ROW", "captured_columns": ["Id", "Name"],
    }  # fmt: skip
    assert facts(mod_type="DELETE")["source_metadata"]["is_deleted"] is True
    assert facts(table="Orders")["source_metadata"]["schema"] == ""


def test_an_id_depends_on_the_stream_and_the_place_alone():
    assert facts(3)["uuid"] == facts(3, transaction_tag="other")["uuid"]
    ids = [facts()["uuid"], facts(1)["uuid"], facts(stream="t")["uuid"],
           facts(commit_timestamp=1)["uuid"], facts(server_transaction_id="a")["uuid"],
           facts(record_sequence="00000003")["uuid"]]  # fmt: skip
    assert len(set(ids)) == len(ids)
    # The example of docs/protocol.md, 3.10, is of the same function.
    assert [len(part) for part in ids[0].split("-")] == [8, 4, 4, 4, 12]
    assert ids[0][14] == "8"


def test_sort_keys_sort_as_places_do():
    places = [(1, "b", "9", 0), (1, "b", "10", 0), (1, "b", "10", 1), (2, "a", "1", 0)]
    keys = [
        facts(n, commit_timestamp=at, server_transaction_id=tx, record_sequence=seq)["sort_keys"]
        for at, tx, seq, n in places
    ]
    assert all(sort_key < other for sort_key, other in pairwise(keys))


@pytest.mark.parametrize(
    ("commit_us", "at"),
    [(1_700_000_000_123_456, "2023-11-14T22:13:20.123Z"),
     (1_700_000_000_010_999, "2023-11-14T22:13:20.010Z"), (0, "1970-01-01T00:00:00.000Z")],
)  # fmt: skip
def test_json_has_times_as_text(commit_us, at):
    event = facts(commit_timestamp=commit_us)
    shown = facts_as_json(event)
    assert shown["read_timestamp"] == shown["source_timestamp"] == at
    assert parse_rfc3339_ns(shown["source_metadata"]["commit_timestamp"]) == commit_us * 1_000
    assert event["source_metadata"]["commit_timestamp"] == commit_us


def test_coordinates_that_are_not_unicode_are_refused():
    with pytest.raises(SchemaError, match="not Unicode"):
        facts(server_transaction_id="\ud800")
    with pytest.raises(SchemaError, match="record sequence"):
        facts(record_sequence="x")


FORMS = {
    OutputForm(): (),
    OutputForm(tombstones=True, envelope=Envelope.FLAT): (
        "producer.envelope=flat",
        "producer.tombstones=true",
    ),
    OutputForm(
        envelope=Envelope.DEBEZIUM, value_format=ValueFormat.JSON, key_format=KeyFormat.JSON
    ): ("producer.envelope=debezium", "producer.value_format=json", "producer.key_format=json"),
}


@pytest.mark.parametrize(("form", "described"), FORMS.items())
def test_what_is_described_is_read_back_and_leaves_nothing_out(form, described):
    assert form.described == described
    assert OutputForm.of(("exclude_delete", "producer.tables=A,B", *described)) == form
    filters = ("exclude_delete", "producer.mod_types=insert", "producer.tables=producer.tombstones")
    assert left_out(form.described) == ()
    template = "producer.topic_template={prefix}-{table}"
    assert left_out((template, *filters, *form.described)) == filters


def test_every_setting_of_the_form_is_known_with_its_value():
    defaults = {
        "envelope": "tidegate", "tombstones": "false", "value_format": "avro", "key_format": "avro",
    }  # fmt: skip
    assert recorded_form(()) == defaults
    assert recorded_form(("producer.envelope=later", "producer.tombstones=true", "x")) == {
        **defaults,
        "envelope": "later",
        "tombstones": "true",
    }
