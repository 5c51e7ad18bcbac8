"""Which schemas are refused: those by which few bytes become many values."""

import fastavro
import pytest

from tests.datastream_files import SOURCES, schema_of
from tidegate.producer.datastream.avro_limits import contains_itself


def column(kind):
    return fastavro.parse_schema(
        {"type": "record", "name": "e", "fields": [{"name": "a", "type": kind}]}
    )


def record(*kinds, name="r"):
    fields = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


ARRAY = {
    "type": "record", "name": "multidimensionalArray_a",
    "fields": [
        {"name": "nestedArray",
         "type": ["null", {"type": "array", "items": "multidimensionalArray_a"}]},
        {"name": "elementValue", "type": ["null", "int"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_schemas_of_datastream_are_read(source):
    assert not contains_itself(fastavro.parse_schema(schema_of(source)))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ARRAY, True),
        (["null", ARRAY], True),
        (record("int", record("string", name="s")), False),
        ({"type": "array", "items": ["null", "int"]}, False),
        ({"type": "map", "values": {"type": "enum", "name": "m", "symbols": ["a"]}}, False),
        (record("int", *["null"] * 900), False),
        ({"type": "fixed", "name": "f", "size": 16}, False),
        ({"type": "string", "logicalType": "json"}, False),
    ],
)
def test_a_type_that_contains_itself_is_known(kind, expected):
    assert contains_itself(column(kind)) is expected


@pytest.mark.rule("datastream-hostile-files")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ({"type": "array", "items": "null"}, "without bytes"),
        ({"type": "array", "items": record("int", "null")}, "without bytes"),
        ({"type": "array", "items": ["int", record("null")]}, "without bytes"),
        ({"type": "map", "values": {"type": "fixed", "name": "f", "size": 0}}, "without bytes"),
        (record(*["null"] * 1_001), "more than 1000 fields"),
        (record(*[record(*["null"] * 40, name="n"), *["n"] * 30]), "more than 1000 fields"),
    ],
)
def test_few_bytes_cannot_become_many_values(kind, text):
    with pytest.raises(ValueError, match=text):
        contains_itself(column(kind))


def test_a_chain_of_names_is_as_deep_as_types_within_types():
    fields = [record("int", name="r0")] + [record(f"r{n - 1}", name=f"r{n}") for n in range(1, 400)]
    with pytest.raises(ValueError, match="nested deeper than 128"):
        contains_itself(column(record(*fields)))
