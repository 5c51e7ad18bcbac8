"""Schemas by id, stored beside the gate's state."""

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.topic_schemas import row_columns

SUBSCRIPTION = Subscription(TopicNames("bank"))


def schema(*columns, unwatched=(), excludes=()):
    """A value schema of a table with these columns, the first of which is the key."""
    of_table = [
        Column(c, ColumnType("INT64"), n, 1 if n == 1 else None, is_watched=c not in unwatched)
        for n, c in enumerate(columns, 1)
    ]
    return value_schema("bank.a", TableSchema("a", tuple(of_table), excludes=excludes))


def test_schemas_are_read_once_and_then_stored():
    storage = StoreClient(ObjectStore(), "gate", None)
    storage.take()
    registry = InMemorySchemaRegistry()
    versions = {"k": {"type": "string"}, "v1": schema("id", "x", "y"), "v2": schema("id", "y")}
    ids = [registry.register(subject, version) for subject, version in versions.items()]
    known = [TopicIds("bank.a", (ids[0],), (ids[1], ids[2])), TopicIds("bank.b", (ids[0],), ())]
    first = SchemaStore(storage, registry).topics(known, SUBSCRIPTION)
    without_registry = SchemaStore(storage, InMemorySchemaRegistry())
    assert without_registry.topics(known, SUBSCRIPTION) == first
    assert set(first) == {"bank.a"}
    assert first["bank.a"].table == "a"
    assert row_columns(first["bank.a"].reader_schema) == ("id", "y", "x")
    assert set(first["bank.a"].writer_schemas) == set(ids)
    with pytest.raises(SchemaError):
        without_registry.schema(99)


def test_what_one_version_leaves_out_is_left_out_of_the_topic():
    storage = StoreClient(ObjectStore(), "gate", None)
    storage.take()
    registry = InMemorySchemaRegistry()
    key = registry.register("k", {"type": "string"})
    versions = [
        schema("id", "x", "y", unwatched=("x",)),
        schema("id", "x", "y", excludes=("exclude_delete",)),
        schema("id", "x", "y"),
    ]
    ids = tuple(registry.register(f"v{n}", version) for n, version in enumerate(versions))
    store = SchemaStore(storage, registry)
    found = store.topics([TopicIds("bank.a", (key,), ids)], SUBSCRIPTION)["bank.a"]
    assert found.unwatched == {"x"}
    assert found.excludes == ("exclude_delete",)
    latest = store.topics([TopicIds("bank.a", (key,), ids[2:])], SUBSCRIPTION)["bank.a"]
    assert (latest.unwatched, latest.excludes) == (frozenset(), ())
