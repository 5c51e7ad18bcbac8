"""A table's Avro schemas."""

import copy

import fastavro
import pytest

from tidegate.schemas.change_schema import (
    avro_type,
    differ_in_timestamps,
    key_schema,
    lost_parts,
    row_fields,
    value_schema,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")
CODES = ("INT64", "FLOAT32", "FLOAT64", "BOOL", "STRING", "BYTES", "PROTO", "ENUM", "NUMERIC",
         "DATE", "TIMESTAMP", "JSON", "UUID", "INTERVAL")  # fmt: skip
TABLE = TableSchema(
    "everything",
    (
        Column("b", INT64, 1, key_position=2),
        Column("a", ColumnType("STRING"), 2, key_position=1),
        *(Column(f"c_{code}", ColumnType(code), 3 + n) for n, code in enumerate(CODES)),
        *(Column(f"a_{code}", ColumnType("ARRAY", ColumnType(code)), 40 + n)
          for n, code in enumerate(CODES)),
        Column("pg", ColumnType("NUMERIC", annotation="PG_NUMERIC"), 90),
    ),
)  # fmt: skip


def parsed(schema):
    return fastavro.parse_schema(copy.deepcopy(schema))


def test_a_key_has_the_primary_keys_columns_in_its_order():
    schema = key_schema("bank.t", TABLE)
    assert [field["name"] for field in schema["fields"]] == ["a", "b"]
    assert [field["type"] for field in schema["fields"]] == [["null", "string"], ["null", "long"]]
    parsed(schema)


def test_a_value_has_every_column_nullable_in_ordinal_order():
    schema = value_schema("bank.t", TABLE)
    parsed(schema)
    assert [field["name"] for field in schema["fields"]] == [
        "mod_type", "new_values", "old_values", "new_columns", "old_columns", "source"
    ]  # fmt: skip
    row = schema["fields"][1]["type"][1]
    assert [field["name"] for field in row["fields"]] == [column.name for column in TABLE.columns]
    for field in row["fields"]:
        assert field["type"][0] == "null"
        assert field["default"] is None


@pytest.mark.parametrize(
    ("column_type", "avro"),
    [
        (INT64, "long"),
        (ColumnType("ENUM"), "long"),
        (ColumnType("JSON"), "string"),
        (ColumnType("NUMERIC", annotation="PG_NUMERIC"), "string"),
        (
            ColumnType("NUMERIC"),
            {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
        ),
        (ColumnType("DATE"), {"type": "int", "logicalType": "date"}),
        (ColumnType("TIMESTAMP"), {"type": "long", "logicalType": "timestamp-micros"}),
        (ColumnType("ARRAY", INT64), {"type": "array", "items": ["null", "long"]}),
    ],
)
def test_types(column_type, avro):
    assert avro_type(column_type) == avro


def test_timestamps_as_text_are_named_for_what_they_are():
    at, text = ColumnType("TIMESTAMP"), {"type": "string", "logicalType": "timestamp-rfc3339"}
    assert avro_type(at, TimestampForm.STRING) == text
    assert avro_type(ColumnType("ARRAY", at), TimestampForm.STRING) == {
        "type": "array", "items": ["null", text],
    }  # fmt: skip
    table = TableSchema("t", (Column("at", at, 1, 1), Column("id", INT64, 2)))
    key, value = (make("p.t", table, TimestampForm.STRING) for make in (key_schema, value_schema))
    assert [field["type"] for field in key["fields"]] == [["null", text]]
    assert [field["type"][1] for field in row_fields(value).values()] == [text, "long"]
    # The coordinates of a change keep their form, so that every reader can order by them.
    assert value["fields"][-1] == value_schema("p.t", table)["fields"][-1]


def test_schemas_that_differ_in_the_form_of_timestamps_alone_are_recognised():
    at, micros, text = ColumnType("TIMESTAMP"), TimestampForm.MICROS, TimestampForm.STRING
    for of in (at, ColumnType("ARRAY", at)):
        fields = [key_schema("p.t", TableSchema("t", (Column("a", of, 1, 1),)), form)["fields"]
                  for form in (micros, text)]  # fmt: skip
        assert differ_in_timestamps(*fields)
        assert differ_in_timestamps(*reversed(fields))
        assert not differ_in_timestamps(fields[1], fields[1])
        assert not differ_in_timestamps(avro_type(of, text), avro_type(INT64))
    assert not differ_in_timestamps(avro_type(at, text), "string")


@pytest.mark.parametrize(
    "column_type",
    [ColumnType("STRUCT"), ColumnType("ARRAY"), ColumnType("ARRAY", ColumnType("GRAPH"))],
)
def test_a_type_without_a_place_is_refused(column_type):
    with pytest.raises(SchemaError):
        avro_type(column_type)


def test_a_table_without_a_key_is_refused():
    with pytest.raises(SchemaError, match="primary key"):
        key_schema("bank.t", TableSchema("t", (Column("a", INT64, 1),)))


def test_a_column_that_is_no_avro_name_is_refused():
    table = TableSchema("t", (Column("ä", INT64, 1, key_position=1),))
    for make in (key_schema, value_schema):
        with pytest.raises(SchemaError, match="Avro name"):
            make("bank.t", table)


@pytest.mark.parametrize("topic", ["bank.t", "a-b.c.t", "9lives.1table", "_x.t"])
def test_namespaces_are_avro_names(topic):
    schema = parsed(key_schema(topic, TABLE))
    assert schema["name"].endswith(".Key")


def test_an_added_column_can_be_read_from_older_records():
    import io

    older = TableSchema("t", TABLE.columns[:2])
    old, new = (parsed(value_schema("bank.t", table)) for table in (older, TABLE))
    source = {"commit_timestamp": 1, "server_transaction_id": "t", "record_sequence": "0",
              "mod_number": 0, "is_last_record_in_transaction_in_partition": True,
              "number_of_records_in_transaction": 1, "number_of_partitions_in_transaction": 1,
              "transaction_tag": "", "is_system_transaction": False, "value_capture_type": "V",
              "change_stream": "s", "partition_token": "k"}  # fmt: skip
    datum = {"mod_type": "INSERT", "new_values": {"a": "x", "b": 1}, "source": source}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, old, datum)
    buffer.seek(0)
    read = fastavro.schemaless_reader(buffer, old, new)
    assert read["new_values"]["a"] == "x"
    assert read["new_values"]["c_INT64"] is None


@pytest.mark.parametrize(
    ("wanted", "found", "lost"),
    [
        ({"type": "record", "excludes": ["a"]}, {"type": "record"}, ("excludes",)),
        ({"type": "record"}, {"type": "record", "doc": "more"}, ()),
        ({"fields": [{"name": "a", "watched": False}]}, {"fields": [{"name": "a"}]}, ("watched",)),
        ({"fields": [{"name": "a", "watched": False}]}, {"fields": []}, ()),
        ({"type": "long", "logicalType": "date"}, "long", ("logicalType",)),
        ({"type": "long"}, "long", ()),
        (["null", {"type": "string", "a": 1, "b": 2}], ["null", {"type": "string"}], ("a", "b")),
        ("long", {"type": "long"}, ()),
    ],
)
def test_what_a_registry_dropped_of_a_schema(wanted, found, lost):
    assert lost_parts(wanted, found) == lost
