"""What both programs ask a real broker about its topics, and a real registry about schemas."""

from __future__ import annotations

import itertools
import threading
import uuid
from itertools import pairwise

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.shared_stack import new_prefix, until
from tidegate.lineage.subscription import Subscription
from tidegate.local_stack.parts.process import choose_ports
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.translation.subjects import register, require_backward
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.change_schema import row_fields, value_schema, with_row
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.progress_codec import KEY_SCHEMA, RECORD_SCHEMA
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.retention import complete_from_us, require_kept
from tidegate.spark_consumer.errors import ChangesExpired
from tidegate.spark_consumer.kafka.data_ends import DataEnds
from tidegate.spark_consumer.kafka.topics import LiveTopicIds, first_records

pytestmark = [pytest.mark.integration, pytest.mark.slow]

INT64, STRING = ColumnType("INT64"), ColumnType("STRING")
WORKERS = 4


@pytest.fixture
def url(kafka_and_registry):
    return kafka_and_registry.registry_url


@pytest.fixture
def registry(url):
    return HttpSchemaRegistry(url)


@pytest.fixture
def names():
    return TopicNames(f"p{uuid.uuid4().hex[:8]}")


def table(*names, of=INT64):
    key = Column("id", INT64, 1, key_position=1)
    return TableSchema("t", (key, *(Column(n, of, place) for place, n in enumerate(names, 2))))


def test_versions_and_levels_of_a_subject(registry, names):
    subject = f"{names.prefix}-value"
    assert registry.versions(subject) == ()
    first = register(registry, subject, RECORD_SCHEMA)
    wider = {**RECORD_SCHEMA, "fields": [*RECORD_SCHEMA["fields"], {
        "name": "more", "type": ["null", "string"], "default": None}]}  # fmt: skip
    second = registry.register(subject, wider)

    assert first < second
    assert [version.schema_id for version in registry.versions(subject)] == [first, second]
    assert [version.schema for version in registry.versions(subject)] == [RECORD_SCHEMA, wider]
    assert registry.schema(second) == wider
    assert registry.register(subject, RECORD_SCHEMA) == first
    assert registry.compatibility(subject) == "BACKWARD"


def test_a_level_that_was_chosen_is_kept(registry, names):
    subject = f"{names.prefix}-key"
    register(registry, subject, KEY_SCHEMA)
    registry.set_compatibility(subject, "FULL")
    require_backward(registry, subject)
    assert registry.compatibility(subject) == "FULL"

    registry.set_compatibility(subject, "FORWARD")
    with pytest.raises(ConfigError, match="FORWARD"):
        require_backward(registry, subject)


def test_a_dropped_column_stays_and_its_type_does_not_change(registry, names):
    topic = names.data("t")
    before = TableRegistrar(names, registry).register(table("a", "gone"))
    after = TableRegistrar(names, HttpSchemaRegistry(registry._url)).register(table("a"))
    wider = TableRegistrar(names, registry).register(table("a", "new"))

    assert after.value.schema_id == before.value.schema_id < wider.value.schema_id
    assert list(row_fields(registry.schema(wider.value.schema_id))) == ["id", "a", "gone", "new"]
    with pytest.raises(IncompatibleChange, match="another type"):
        TableRegistrar(names, registry).register(table("a", of=STRING))
    other_type = with_row(
        registry.schema(before.value.schema_id),
        row_fields(value_schema(topic, table("a", of=ColumnType("BOOL")))),
    )
    with pytest.raises(SchemaError, match="incompatible"):
        registry.register(names.value_subject(topic), other_type)


def test_workers_that_register_at_the_same_time_use_growing_versions(url, names):
    """Each knows a column of its own, as when columns come one after another."""
    TableRegistrar(names, HttpSchemaRegistry(url)).register(table("a"))
    start, encodings, errors = threading.Barrier(WORKERS), [], []

    def work(number):
        try:
            registrar = TableRegistrar(names, HttpSchemaRegistry(url))
            start.wait(30)
            tables = [table("a", f"c{number}_{step}") for step in range(3)]
            encodings.extend(map(registrar.register, tables))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert not errors
    assert len(encodings) == 3 * WORKERS
    registry = HttpSchemaRegistry(url)
    used = {encoding.value.schema_id for encoding in encodings}
    fields = [row_fields(registry.schema(schema_id)) for schema_id in used]
    for narrower, wider in pairwise(sorted(fields, key=len)):
        assert narrower.keys() <= wider.keys()


def test_workers_that_open_a_stream_at_the_same_time_register_the_same_schemas(url):
    """Each subject gets its first version and its level from several at once."""
    subjects = [f"p{uuid.uuid4().hex[:8]}-key" for _ in range(30)]
    start, ids, errors = threading.Barrier(WORKERS), [], []

    def work():
        registry = HttpSchemaRegistry(url)
        for subject in subjects:
            start.wait(30)
            try:
                ids.append((subject, register(registry, subject, KEY_SCHEMA)))
            except Exception as error:  # noqa: BLE001 - the test looks at it
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert not errors
    assert len(ids) == WORKERS * len(subjects)
    assert set(map(HttpSchemaRegistry(url).compatibility, subjects)) == {"BACKWARD"}


# ---------------------------------------------------------------- topics that the consumer reads


PREFIX, ELSE = new_prefix(), new_prefix()
TOPIC, OTHER, ANOTHER = f"{PREFIX}.accounts", f"{PREFIX}.ledger", f"{ELSE}.accounts"
SUBSCRIPTION = Subscription(TopicNames(PREFIX))
FIRST_MS = 1_700_000_000_000
PATIENCE_S = 60


@pytest.fixture(scope="module")
def admin(address):
    return AdminClient({"bootstrap.servers": address})


def test_removed_records_are_seen_with_the_time_of_the_first_that_is_left(address, admin):
    topics = [NewTopic(TOPIC, 2, 1), NewTopic(ANOTHER, 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result()
    producer = Producer({"bootstrap.servers": address})
    for number in range(10):
        producer.produce(TOPIC, b"x", partition=1, timestamp=FIRST_MS + number)
    assert producer.flush(PATIENCE_S) == 0

    whole = first_records(address, {}, SUBSCRIPTION)
    assert TOPIC in whole
    assert ANOTHER not in whole
    assert set(whole[TOPIC]) == {0, 1}
    assert complete_from_us(whole, now_us=1) is None
    require_kept({TOPIC: {0: 0, 1: 0}}, whole)

    for future in admin.delete_records([TopicPartition(TOPIC, 1, 4)]).values():
        future.result()
    kept = first_records(address, {}, SUBSCRIPTION)
    assert (kept[TOPIC][1].offset, kept[TOPIC][1].timestamp_ms) == (4, FIRST_MS + 4)
    assert (kept[TOPIC][0].offset, kept[TOPIC][0].timestamp_ms) == (0, None)
    assert complete_from_us(kept, now_us=1) == (FIRST_MS + 4) * 1_000
    require_kept({TOPIC: {0: 0, 1: 4}}, kept)
    with pytest.raises(ChangesExpired, match="lost_from=3, lost_through=3"):
        require_kept({TOPIC: {0: 0, 1: 3}}, kept)

    for future in admin.delete_records([TopicPartition(TOPIC, 1, 10)]).values():
        future.result()
    assert complete_from_us(first_records(address, {}, SUBSCRIPTION), now_us=7) == 7


def test_a_topic_that_is_deleted_has_no_id_and_re_created_another_one(address, admin):
    ids = LiveTopicIds(address, {})
    for future in admin.create_topics([NewTopic(OTHER, 1, 1)]).values():
        future.result()
    until(lambda: ids([OTHER]).get(OTHER) is not None)
    before = ids([OTHER])[OTHER]
    for future in admin.delete_topics([OTHER]).values():
        future.result()
    until(lambda: ids([OTHER]) == {OTHER: None})
    for future in admin.create_topics([NewTopic(OTHER, 1, 1)]).values():
        future.result()
    until(lambda: ids([OTHER]).get(OTHER) not in (None, before))


def test_the_ends_of_data_topics_pass_those_of_a_batch_with_committed_records_only(
    address, admin, names
):
    ends = DataEnds(address, {}, Subscription(names), monotonic=itertools.count(step=60).__next__)
    topic, others = names.data("t"), (f"{names.prefix}x.t", names.progress)
    created = admin.create_topics([NewTopic(name, 2, 1) for name in (topic, *others)])
    for future in created.values():
        future.result()
    writer = Producer({"bootstrap.servers": address, "transactional.id": names.prefix})
    writer.init_transactions()

    def write(name):
        writer.begin_transaction()
        writer.produce(name, b"v", partition=1)
        writer.flush()

    for other in others:
        write(other)
        writer.commit_transaction()
    assert not ends.are_past({})
    write(topic)
    assert not ends.are_past({})
    writer.commit_transaction()
    until(lambda: ends.are_past({topic: {0: 0, 1: 0}}))
    assert ends.are_past({})  # of a topic that the batch did not know
    assert not ends.are_past({topic: {0: 0, 1: 2}})  # the record, and the transaction's end
    write(topic)
    assert not ends.are_past({topic: {1: 2}})
    writer.commit_transaction()
    until(lambda: ends.are_past({topic: {1: 2}}))


def test_without_a_broker_there_may_be_changes(names):
    address = f"127.0.0.1:{choose_ports({'nobody': 0})['nobody']}"
    ends = DataEnds(address, {}, Subscription(names))
    assert ends.are_past({})
    ends.close()
