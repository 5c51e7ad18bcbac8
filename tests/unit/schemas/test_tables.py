"""Tables, and both notations of a column's type."""

import pytest

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
        ("ENUM<a.b.C>", ColumnType("ENUM")),
        ("ARRAY<PROTO<a.b.C>>", ColumnType("ARRAY", ColumnType("PROTO"))),
    ],
)
def test_the_catalogues_notation(text, expected):
    assert ColumnType.from_spanner_type(text) == expected


@pytest.mark.parametrize("text", ["", "STRING(x)", "ARRAY<>", "ARRAY<INT64", "1NT64", "A<B>"])
def test_another_notation_is_refused(text):
    with pytest.raises(SchemaError):
        ColumnType.from_spanner_type(text)


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
    ],
)
def test_the_records_notation(value, expected):
    assert ColumnType.from_type_json(value) == expected


@pytest.mark.parametrize(
    "value",
    [{}, {"code": 2}, {"code": None}, {"code": "ARRAY", "array_element_type": "INT64"},
     {"code": "ARRAY", "array_element_type": {}}],
)  # fmt: skip
def test_a_record_type_without_a_code_is_refused(value):
    with pytest.raises(SchemaError):
        ColumnType.from_type_json(value)


def test_keys_stand_in_primary_key_order():
    table = TableSchema(
        "t", (Column("a", INT64, 1, key_position=2), Column("b", INT64, 2, key_position=1),
              Column("c", INT64, 3)),
    )  # fmt: skip
    assert [column.name for column in table.key_columns] == ["b", "a"]
    assert table.column_names == {"a", "b", "c"}
