"""The registry of the local stack keeps the port's promises, and value schemas grow in it."""

from __future__ import annotations

import threading
import uuid
from itertools import pairwise

import pytest

from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.translation.subjects import register, require_backward
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.change_schema import row_fields, value_schema, with_row
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.progress_codec import KEY_SCHEMA, RECORD_SCHEMA
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

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
    assert [one.schema_id for one in registry.versions(subject)] == [first, second]
    assert [one.schema for one in registry.versions(subject)] == [RECORD_SCHEMA, wider]
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
