"""Unified types, from every form that real files and the documentation have."""

import pytest

from tidegate.producer.datastream.unified_types import (
    PayloadField,
    named_types,
    payload_fields,
    without_logical_types,
)

ARRAY = {
    "type": "record",
    "name": "multidimensionalArray_tags",
    "fields": [
        {"name": "nestedArray", "default": None,
         "type": ["null", {"type": "array", "items": "multidimensionalArray_tags"}]},
        {"name": "elementValue", "default": None,
         "type": ["null", {"type": "string", "logicalType": "json"}]},
    ],
}  # fmt: skip
VARCHAR = {"type": "record", "name": "varchar", "fields": [{"name": "value", "type": "string"}]}


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


def record(name):
    return {"type": "record", "name": name, "fields": []}


@pytest.mark.rule("datastream-unified-types", "datastream-custom-types")
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("boolean", "BOOLEAN"), ("bytes", "BYTES"), ("double", "DOUBLE"), ("float", "FLOAT"),
        ("int", "INTEGER"), ("long", "LONG"), ("string", "STRING"),
        (logical("int", "date"), "DATE"), (logical("string", "json"), "JSON"),
        (logical("string", "number"), "NUMBER"), (logical("long", "time-micros"), "TIME"),
        (logical("long", "time-interval-micros"), "TIME INTERVAL"),
        (logical("long", "timestamp-micros"), "TIMESTAMP"),
        (logical("bytes", "decimal", precision=10, scale=2), "DECIMAL(10,2)"),
        (logical("bytes", "decimal", precision=5), "DECIMAL(5,0)"),
        (logical("long", "a-new-one"), "LONG"), ({"type": "string"}, "STRING"),
        (record("datetime"), "DATETIME"), (record("interval"), "INTERVAL"),
        (record("timestampTz"), "TIMESTAMP WITH TIMEZONE"), (VARCHAR, "VARCHAR"),
        (record("point"), "RECORD point"), (ARRAY, "ARRAY<JSON>"),
        ({"type": "array", "items": "int"}, "ARRAY<INTEGER>"),
        ({"type": "map", "values": "int"}, "MAP<INTEGER>"),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "STRING"),
        ({"type": "fixed", "name": "f", "size": 2}, "BYTES"),
        (["int", "string"], "UNION(INTEGER, STRING)"),
    ],
)  # fmt: skip
def test_types(schema, expected):
    branches = schema if isinstance(schema, list) else [schema]
    payload = {
        "fields": [{"name": "a", "type": schema}, {"name": "b", "type": ["null", *branches]}]
    }
    assert payload_fields(payload, named_types(payload)) == [
        PayloadField("a", expected, nullable=False),
        PayloadField("b", expected, nullable=True),
    ]


def test_a_type_that_is_named_again_is_found():
    payload = {
        "type": "record", "name": "payload",
        "fields": [{"name": "a", "type": ["null", VARCHAR]}, {"name": "b", "type": "varchar"}],
    }  # fmt: skip
    kinds = [one.type for one in payload_fields(payload, named_types(payload))]
    assert kinds == ["VARCHAR", "VARCHAR"]


def test_a_logical_type_may_stand_on_the_field_in_old_files():
    payload = {"fields": [{"name": "a", "type": "long", "logicalType": "timestamp-micros"}]}
    assert payload_fields(payload, {}) == [PayloadField("a", "TIMESTAMP", nullable=False)]


def test_a_type_that_contains_itself_has_an_end():
    loop = {"type": "array", "items": "r"}
    named = {"r": loop}
    (field,) = payload_fields({"fields": [{"name": "a", "type": loop}]}, named)
    assert field.type.startswith("ARRAY<ARRAY<")


@pytest.mark.rule("datastream-custom-types")
def test_decoding_knows_no_logical_types_and_all_else():
    schema = {
        "type": "record", "name": "logicalType",
        "fields": [
            {"name": "type", "type": ["null", logical("long", "timestamp-micros")],
             "default": None},
            {"name": "b", "type": {"type": "array", "items": logical("bytes", "decimal")}},
        ],
    }  # fmt: skip
    assert without_logical_types(schema) == {
        "type": "record", "name": "logicalType",
        "fields": [
            {"name": "type", "type": ["null", {"type": "long"}], "default": None},
            {"name": "b", "type": {"type": "array", "items": {"type": "bytes"}}},
        ],
    }  # fmt: skip


def test_names_within_names_do_not_grow_without_end():
    """Each of these names the next one twice: written out, the first has 2^60 parts."""
    schemas = {
        f"multidimensionalArray_{n}": {
            "type": "record", "name": f"multidimensionalArray_{n}",
            "fields": [{
                "name": "elementValue",
                "type": [
                    f"multidimensionalArray_{n + 1}",
                    {"type": "array", "items": f"multidimensionalArray_{n + 1}"},
                ],
            }],
        }
        for n in range(60)
    }  # fmt: skip
    payload = {"fields": [{"name": "a", "type": "multidimensionalArray_0"}]}
    (found,) = payload_fields(payload, schemas)
    assert len(found.type) < 3_000
