"""Schemas by id, stored beside the gate's state."""

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.topic_schemas import by_table, full_name, row_columns
from tidegate.spark_consumer.errors import AmbiguousNames

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


def test_tables_whose_names_differ_in_case_only_are_refused_by_name():
    storage = StoreClient(ObjectStore(), "gate", None)
    storage.take()
    registry = InMemorySchemaRegistry()
    ids = [registry.register("k", {"type": "string"}), registry.register("v", schema("id"))]
    topics = ("bank.Orders", "bank.orders", "bank.orders2")
    known = [TopicIds(topic, (ids[0],), (ids[1],)) for topic in topics]
    store = SchemaStore(storage, registry)
    assert set(store.topics(known[1:], SUBSCRIPTION)) == set(topics[1:])
    with pytest.raises(AmbiguousNames, match=r"\['Orders', 'orders'\].*under another prefix"):
        store.topics(known, SUBSCRIPTION)


def beside_schema(*columns):
    """As `schema`, of the topic beside the data topic."""
    of_table = [
        Column(c, ColumnType("INT64"), n, 1 if n == 1 else None) for n, c in enumerate(columns, 1)
    ]
    return value_schema("bank.a__backfill", TableSchema("a__backfill", tuple(of_table)))


def key_of(topic):
    return key_schema(topic, TableSchema("a", (Column("id", ColumnType("INT64"), 1, 1),)))


@pytest.fixture
def store_of():
    """A store over schemas that have the ids 1, 2, …"""

    def make(*schemas):
        storage = StoreClient(ObjectStore(), "gate", None)
        storage.take()
        registry = InMemorySchemaRegistry()
        for number, one in enumerate(schemas):
            registry.register(f"s{number}", one)
        return SchemaStore(storage, registry)

    return make


def test_rows_that_were_read_on_demand_belong_to_their_table(store_of):
    store = store_of(
        key_of("bank.a"), schema("id", "x"), key_of("bank.a__backfill"), beside_schema("id", "y")
    )
    own, beside = TopicIds("bank.a", (1,), (2,)), TopicIds("bank.a__backfill", (3,), (4,))
    found = store.topics([own, beside], SUBSCRIPTION)
    one = found["bank.a"]

    assert found == {"bank.a": one, "bank.a__backfill": one}
    assert (one.table, one.topics) == ("a", ("bank.a", "bank.a__backfill"))
    assert row_columns(one.reader_schema) == ("id", "x", "y")
    # Avro compares the names of types: they have to be those of one topic.
    assert {full_name(schema) for schema in one.writer_schemas.values()} == {
        "bank.a.Change", "bank.a.Key",
    }  # fmt: skip
    assert set(one.writer_schemas) == {1, 2, 3, 4}
    assert by_table(found) == {"bank.a": one}


def test_a_table_whose_rows_come_before_its_first_change_has_its_own_topic(store_of):
    store = store_of(key_of("bank.a__backfill"), beside_schema("id", "y"))
    ids = [TopicIds("bank.a", (), ()), TopicIds("bank.a__backfill", (1,), (2,))]
    found = store.topics(ids, SUBSCRIPTION)

    assert set(found) == {"bank.a", "bank.a__backfill"}
    assert found["bank.a"].key_schema["namespace"] == "bank.a"
    assert list(by_table(found)) == ["bank.a"]


def test_a_topic_that_stands_alone_is_read_as_ever(store_of):
    store = store_of(key_of("bank.a"), schema("id", "x"))
    found = store.topics([TopicIds("bank.a", (1,), (2,))], SUBSCRIPTION)

    assert found["bank.a"].topics == ()
    assert found["bank.a"].read_from("bank.a") == ("bank.a",)
    assert by_table(found) == found
