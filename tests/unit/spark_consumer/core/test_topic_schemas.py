"""Columns of a table, read from the schemas of its change records."""

from __future__ import annotations

import copy

import pytest

from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.topic_schemas import full_name, reader_schema, row_columns
from tidegate.spark_consumer.errors import AmbiguousNames

NUMBER = ColumnType.from_spanner_type("INT64")

TEXT = ColumnType.from_spanner_type("STRING(MAX)")


def value_schema_with(*columns, kind=TEXT):
    """A value value_schema_with of a table with these columns behind its key."""
    others = [Column(name, kind, n) for n, name in enumerate(columns, 2)]
    return value_schema("bank.t", TableSchema("t", (Column("id", TEXT, 1, 1), *others)))


def test_a_reader_schema_has_the_columns_that_only_earlier_versions_have():
    assert row_columns(value_schema_with("b", "a")) == ("id", "b", "a")
    newest = [value_schema_with("a"), value_schema_with("a", "b")]
    assert reader_schema(newest) == newest[-1]
    versions = [
        value_schema_with("a", "b", "c", kind=NUMBER),
        value_schema_with("b", "c"),
        value_schema_with("c", "d"),
    ]
    before = copy.deepcopy(versions)
    reader = reader_schema(versions)
    assert row_columns(reader) == ("id", "c", "d", "b", "a")
    assert reader["fields"][1]["type"][1]["fields"][3:] == [
        {"name": "b", "type": ["null", "string"], "default": None},
        {"name": "a", "type": ["null", "long"], "default": None},
    ]
    assert full_name(reader) == full_name(versions[-1])
    assert versions == before
    for other in ({"type": "string"}, {"name": "r", "fields": [{"name": "x", "type": "int"}]}):
        with pytest.raises(SchemaError, match="new_values"):
            row_columns(other)


@pytest.mark.parametrize(
    "versions", [[("Name",), ("Name", "x", "name")], [("Name",), ("name",)], [("a", "ID")]]
)
def test_columns_that_differ_in_case_only_are_refused_by_name(versions):
    """Earlier producers made two fields of a column that came back in another case."""
    schemas = [
        value_schema("bank.t", TableSchema("t", (Column("id", TEXT, 1, 1),))) for _ in versions
    ]
    for one, names in zip(schemas, versions, strict=True):
        row = one["fields"][1]["type"][1]
        row["fields"] += [{**row["fields"][0], "name": name} for name in names]
    with pytest.raises(AmbiguousNames, match="differ in case only") as caught:
        reader_schema(schemas)
    names = {name for version in versions for name in version if name.lower() in {"name", "id"}}
    assert set(caught.value.fields["columns"]) == names | ({"id"} if "ID" in names else set())
    assert caught.value.exit_code == 2
    # A producer of this version makes one field of them, under another prefix.
    registrar = TableRegistrar(TopicNames("other"), InMemorySchemaRegistry())
    for some in versions:
        columns = [Column(name, TEXT, n) for n, name in enumerate(some, 2) if name != "ID"]
        shown = columns[-1:] if {"Name", "name"} <= set(some) else columns
        value = registrar.register(TableSchema("t", (Column("id", TEXT, 1, 1), *shown))).value
    assert len({name.lower() for name in row_columns(reader_schema([value.schema]))}) == len(
        row_columns(value.schema)
    )
