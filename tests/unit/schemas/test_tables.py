"""Tables, both notations of a column's type, and the Avro schemas of their rows."""

from __future__ import annotations

import copy

import fastavro
import pytest

from tidegate.schemas.avro_types import (
    AVRO_NAME,
    avro_type,
    differ_in_timestamps,
    is_carried,
    namespace_of,
)
from tidegate.schemas.change_schema import (
    key_schema,
    lost_parts,
    row_fields,
    value_schema,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT64", INT64),
        ("STRING(MAX)", ColumnType("STRING")),
        (" BYTES ( 16 ) ", ColumnType("BYTES")),
        ("array < STRING(MAX) >", ColumnType("ARRAY", ColumnType("STRING"))),
        ("PROTO<a.b.C>", ColumnType("PROTO")),
        ("double precision", ColumnType("DOUBLE PRECISION")),
        ("ARRAY<PROTO<a.b.C>>", ColumnType("ARRAY", ColumnType("PROTO"))),
        ("ARRAY<FLOAT32>(vector_length=>128)", ColumnType("ARRAY", ColumnType("FLOAT32"))),
        ("array<float64> (vector_length => 3)", ColumnType("ARRAY", ColumnType("FLOAT64"))),
        ("STRING(x)", ColumnType("STRING")),
    ],
)
def test_the_catalogues_notation(text, expected):
    assert ColumnType.from_spanner_type(text) == expected


@pytest.mark.timeout(60)  # of a reading that takes more than linear time, the last would be a day
@pytest.mark.parametrize(
    "text",
    ["", "ARRAY<>", "ARRAY<INT64", "1NT64", "A<B>", "ARRAY<ARRAY<INT64>>", "VECTOR<FLOAT32, 3>",
     "MAP<STRING(MAX), INT64>", "STRING(MAX) COLLATE 'und:ci'", "\N{KELVIN SIGN}IND",
     "ARRAY<" * 5_000 + "INT64" + ">" * 5_000, "A" + " " * 20_000 + "!"],
)  # fmt: skip
def test_another_notation_is_a_type_that_nothing_carries(text):
    of_another_notation(ColumnType.from_spanner_type(text), text)


def of_another_notation(found, text):
    assert not is_carried(found)
    assert text[:20].strip().upper() in found.text.upper()
    with pytest.raises(SchemaError, match="unsupported column type") as caught:
        avro_type(found)
    assert len(str(caught.value)) < 300


def nested(depth):
    value = {"code": "INT64"}
    for _ in range(depth):
        value = {"code": "ARRAY", "array_element_type": value}
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"code": "INT64"}, INT64),
        ({"code": "int64", "type_annotation": None}, INT64),
        ({"code": "ARRAY", "array_element_type": {"code": "INT64"}}, ColumnType("ARRAY", INT64)),
        (
            {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"},
            ColumnType("NUMERIC", annotation="PG_NUMERIC"),
        ),
        ({"code": "PROTO", "proto_type_fqn": "a.b.C"}, ColumnType("PROTO")),
        ({"code": "MAP", "type_annotation": "NEW"}, ColumnType("MAP", annotation="NEW")),
        (nested(2), ColumnType("ARRAY", ColumnType("ARRAY"))),
        (nested(5_000), ColumnType("ARRAY", ColumnType("ARRAY"))),
    ],
)
def test_the_records_notation(value, expected):
    assert ColumnType.from_type_json(value) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "TYPE_CODE OF NONETYPE"),
        ({"code": 99}, "TYPE_CODE 99"),
        ({"code": None, "deep": nested(5_000)}, "TYPE_CODE OF NONETYPE"),
        ({"code": True}, "TYPE_CODE OF BOOL"),
        ({"code": "ARRAY", "array_element_type": "INT64"}, "ARRAY<TYPE OF STR>"),
        ({"code": "ARRAY", "array_element_type": {"code": 99}}, "ARRAY<TYPE_CODE 99>"),
        ({"code": 99, "array_element_type": nested(5_000)}, "TYPE_CODE 99<ARRAY>"),
    ],
    ids=range(7),
)
def test_a_record_type_that_is_not_named_is_one_that_nothing_carries(value, text):
    found = ColumnType.from_type_json(value)
    assert (found.text, is_carried(found)) == (text, False)


def test_an_annotation_that_is_not_named_changes_no_type():
    for annotation, name in ((77, "TYPE_ANNOTATION 77"), ({}, "TYPE_ANNOTATION OF DICT")):
        found = ColumnType.from_type_json({"code": "INT64", "type_annotation": annotation})
        assert (found.text, is_carried(found)) == (f"INT64 {name}", True)


PG_NUMERIC = ColumnType("NUMERIC", annotation="PG_NUMERIC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boolean", ColumnType("BOOL")),
        ("bigint", INT64),
        ("oid", ColumnType("INT64", annotation="PG_OID")),
        ("real", ColumnType("FLOAT32")),
        ("double precision", ColumnType("FLOAT64")),
        ("numeric", PG_NUMERIC),
        ("character varying(2621440)", ColumnType("STRING")),
        ("varchar(10)", ColumnType("STRING")),
        ("text", ColumnType("STRING")),
        ("bytea", ColumnType("BYTES")),
        ("date", ColumnType("DATE")),
        ("timestamp with time zone", ColumnType("TIMESTAMP")),
        ("spanner.commit_timestamp", ColumnType("TIMESTAMP")),
        ("jsonb", ColumnType("JSON", annotation="PG_JSONB")),
        ("uuid", ColumnType("UUID")),
        ("interval", ColumnType("INTERVAL")),
        ("spanner.tokenlist", ColumnType("TOKENLIST")),
        ("numeric[]", ColumnType("ARRAY", PG_NUMERIC)),
        ("character varying(25)[]", ColumnType("ARRAY", ColumnType("STRING"))),
        ("double precision[] vector length 3", ColumnType("ARRAY", ColumnType("FLOAT64"))),
        ("pg_catalog.int8", INT64),
        ("numeric(10,2)", PG_NUMERIC),
        ("timestamp(6) with time zone", ColumnType("TIMESTAMP")),
        ("point", ColumnType("POINT")),
    ],
)
def test_postgresqls_notation(text, expected):
    assert ColumnType.from_postgresql_type(text) == expected


@pytest.mark.parametrize(
    "text", ["", "bigint[][]", "1nt", "text(", "a;b", "STRING<x>", "range(1)(2)<>", "a" * 99 + "!"]
)
def test_another_notation_of_postgresql_is_a_type_that_nothing_carries(text):
    of_another_notation(ColumnType.from_postgresql_type(text), text)


@pytest.mark.parametrize(
    ("name", "namespace"),
    [("bank.Items", "bank.Items"), ("eu-orders.2024", "eu_orders._2024"), ("a.ü", "a._")],
)
def test_a_namespace_has_names_that_avro_accepts(name, namespace):
    assert namespace_of(name) == namespace
    assert all(AVRO_NAME.fullmatch(part) for part in namespace.split("."))


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


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}


def parsed(schema):
    return fastavro.parse_schema(copy.deepcopy(schema))


@pytest.mark.parametrize("topic", ["bank.t", "a-b.c.t", "9lives.1table", "_x.t"])
def test_a_key_has_the_primary_keys_columns_in_its_order(topic):
    assert [column.name for column in TABLE.key_columns] == ["a", "b"]
    assert TABLE.column_names == {column.name for column in TABLE.columns}
    schema = key_schema(topic, TABLE)
    assert [field["name"] for field in schema["fields"]] == ["a", "b"]
    assert [field["type"] for field in schema["fields"]] == [["null", "string"], ["null", "long"]]
    assert parsed(schema)["name"].endswith(".Key")


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
        (ColumnType("ENUM"), "long"),
        (ColumnType("JSON"), "string"),
        (PG_NUMERIC, "string"),
        (ColumnType("NUMERIC"), DECIMAL),
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


def test_a_type_without_a_place_is_refused():
    for column_type in (
        ColumnType("STRUCT"),
        ColumnType("ARRAY"),
        ColumnType("ARRAY", ColumnType("GRAPH")),
    ):
        with pytest.raises(SchemaError, match="unsupported column type"):
            avro_type(column_type)


def test_a_table_without_a_key_or_with_a_name_that_is_not_avros_is_refused():
    with pytest.raises(SchemaError, match="primary key"):
        key_schema("bank.t", TableSchema("t", (Column("a", INT64, 1),)))
    table = TableSchema("t", (Column("ä", INT64, 1, key_position=1),))
    for make in (key_schema, value_schema):
        with pytest.raises(SchemaError, match="Avro name"):
            make("bank.t", table)


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
