"""What would be registered is kept apart, and the registry stays as it is."""

from __future__ import annotations

import pytest

from tidegate.producer.translation.planned_registry import PlannedRegistry
from tidegate.producer.translation.subjects import register
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

ID = Column("Id", ColumnType("INT64"), 1, 1)
NAME = Column("Name", ColumnType("STRING"), 2)
OLD, NEW = {"type": "string"}, {"type": "bytes"}


@pytest.fixture
def registry():
    made = InMemorySchemaRegistry()
    made.register("s", OLD)
    return made


def test_what_is_registered_keeps_its_id(registry):
    planned = PlannedRegistry(registry)

    assert register(planned, "s", OLD) == registry.versions("s")[0].schema_id
    assert len(planned.versions("s")) == 1


def test_what_is_new_is_kept_here(registry):
    planned = PlannedRegistry(registry)
    schema_id = register(planned, "s", NEW)

    assert register(planned, "s", NEW) == schema_id
    assert planned.schema(schema_id) == NEW
    assert [one.schema for one in planned.versions("s")] == [OLD, NEW]
    assert [one.schema for one in registry.versions("s")] == [OLD]
    assert registry.compatibility("s") is None
    with pytest.raises(SchemaError):
        registry.schema(schema_id)


def test_a_table_with_a_new_column_can_be_written_and_read(registry):
    names = TopicNames("p")
    before = TableRegistrar(names, registry).register(TableSchema("t", (ID,)))
    planned = PlannedRegistry(registry)
    encoding = TableRegistrar(names, planned).register(TableSchema("t", (ID, NAME)))

    assert encoding.key == before.key
    assert encoding.value.schema_id != before.value.schema_id
    assert planned.schema(encoding.value.schema_id) == encoding.value.schema
    assert len(registry.versions("p.t-value")) == 1
