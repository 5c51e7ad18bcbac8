"""Tables, and both notations of a column's type."""

import pytest

from tidegate.schemas.avro_types import avro_type, is_carried
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INT64", INT64),
        ("STRING(MAX)", ColumnType("STRING")),
        ("string(36)", ColumnType("STRING")),
        (" BYTES ( 16 ) ", ColumnType("BYTES")),
        ("ARRAY<INT64>", ColumnType("ARRAY", INT64)),
        ("array < STRING(MAX) >", ColumnType("ARRAY", ColumnType("STRING"))),
        ("PROTO<a.b.C>", ColumnType("PROTO")),
        ("double precision", ColumnType("DOUBLE PRECISION")),
        ("ENUM<a.b.C>", ColumnType("ENUM")),
        ("ARRAY<PROTO<a.b.C>>", ColumnType("ARRAY", ColumnType("PROTO"))),
        ("ARRAY<FLOAT32>(vector_length=>128)", ColumnType("ARRAY", ColumnType("FLOAT32"))),
        ("array<float64> (vector_length => 3)", ColumnType("ARRAY", ColumnType("FLOAT64"))),
        ("NUMERIC(10,2)", ColumnType("NUMERIC")),
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
    "value",
    [{}, {"code": 2}, {"code": None}, {"code": "ARRAY", "array_element_type": "INT64"},
     {"code": "ARRAY", "array_element_type": {}}, {"code": "INT64", "type_annotation": 1},
     {"code": None, "deep": nested(5_000)}],
    ids=lambda value: str(value)[:20] if len(value) < 2 else "deep",
)  # fmt: skip
def test_a_record_type_that_cannot_be_read_is_refused(value):
    with pytest.raises(SchemaError) as caught:
        ColumnType.from_type_json(value)
    assert len(str(caught.value)) < 300


def test_keys_stand_in_primary_key_order():
    table = TableSchema(
        "t", (Column("a", INT64, 1, key_position=2), Column("b", INT64, 2, key_position=1),
              Column("c", INT64, 3)),
    )  # fmt: skip
    assert [column.name for column in table.key_columns] == ["b", "a"]
    assert table.column_names == {"a", "b", "c"}


PG_NUMERIC = ColumnType("NUMERIC", annotation="PG_NUMERIC")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boolean", ColumnType("BOOL")),
        ("bigint", INT64),
        ("int8", INT64),
        ("oid", ColumnType("INT64", annotation="PG_OID")),
        ("real", ColumnType("FLOAT32")),
        ("double precision", ColumnType("FLOAT64")),
        ("numeric", PG_NUMERIC),
        ("character varying", ColumnType("STRING")),
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
        ("timestamp with time zone[]", ColumnType("ARRAY", ColumnType("TIMESTAMP"))),
        ("double precision[] vector length 3", ColumnType("ARRAY", ColumnType("FLOAT64"))),
        ("pg_catalog.int8", INT64),
        ("numeric(10,2)", PG_NUMERIC),
        ("timestamp(6) with time zone", ColumnType("TIMESTAMP")),
        ("real[] vector length 128", ColumnType("ARRAY", ColumnType("FLOAT32"))),
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
