"""Encoders and the registration of tables."""

import io

import fastavro
import pytest

from tidegate.producer.adapters.change_encoder import (
    CompiledChangeEncoder,
    FastavroChangeEncoder,
    TableRegistrar,
)
from tidegate.producer.errors import IncompatibleChange
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe

INT64 = ColumnType("INT64")
TABLE = TableSchema("t", (Column("id", INT64, 1, key_position=1), Column("v", INT64, 2)))


ENCODERS = pytest.mark.parametrize("kind", [CompiledChangeEncoder, FastavroChangeEncoder])


@ENCODERS
def test_what_is_written_is_framed_and_read_back(kind):
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}
    encoder = kind(schema, schema_id=7)
    schema_id, body = unframe(encoder.encode({"a": 5}))
    assert schema_id == 7
    assert fastavro.schemaless_reader(io.BytesIO(body), schema, None) == {"a": 5}
    assert "__fastavro_parsed__" not in schema


@ENCODERS
def test_a_datum_that_does_not_fit_is_a_schema_error(kind):
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    encoder = kind(schema, schema_id=7)
    for datum in ({"a": "x"}, {}, {"a": 2**70}):
        with pytest.raises(SchemaError):
            encoder.encode(datum)


def test_a_table_is_registered_under_its_topics_subjects():
    registry = InMemorySchemaRegistry()
    registrar = TableRegistrar(TopicNames("bank"), registry)
    encoding = registrar.register(TABLE)
    assert encoding.topic == "bank.t"
    assert encoding.table is TABLE
    assert set(registry.subjects) == {"bank.t-key", "bank.t-value"}
    assert registry.levels == {"bank.t-key": "BACKWARD", "bank.t-value": "BACKWARD"}
    assert registrar.key_schema_id("bank.t") == registry.subjects["bank.t-key"][0]


def test_a_wider_table_is_a_new_version_of_the_value_only():
    registry = InMemorySchemaRegistry()
    registrar = TableRegistrar(TopicNames("bank"), registry)
    registrar.register(TABLE)
    registrar.register(TableSchema("t", (*TABLE.columns, Column("w", INT64, 3))))
    assert len(registry.subjects["bank.t-key"]) == 1
    assert len(registry.subjects["bank.t-value"]) == 2


def test_another_key_is_refused():
    registrar = TableRegistrar(TopicNames("bank"), InMemorySchemaRegistry())
    registrar.register(TABLE)
    other = TableSchema("t", (Column("id", ColumnType("STRING"), 1, key_position=1),))
    with pytest.raises(IncompatibleChange, match="primary key"):
        registrar.register(other)
