"""What tests of translation share: a clock, a catalogue, topics, registries, a record, a reader."""

import io
import json
from functools import cache

import fastavro

from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.wire_format import unframe

INT64, STRING = ColumnType("INT64"), ColumnType("STRING")
OLD = TableSchema("t", (Column("id", INT64, 1, key_position=1),))
NEW = TableSchema("t", (*OLD.columns, Column("added", INT64, 2)))


def columns_of(table):
    return tuple(
        RecordColumn(c.name, c.type, c.key_position is not None, c.ordinal) for c in table.columns
    )


RECORD = DataChangeRecord(
    5_000, "00000000", "tx", True, "t", columns_of(NEW), (Mod({"id": "1"}, {"added": "2"}, {}),),
    "INSERT", "NEW_ROW", 1, 1, "", False,
)  # fmt: skip


@cache
def _parsed(text):
    return fastavro.parse_schema(json.loads(text))


def read_framed(framed, schema_of):
    """Return what an independent reader finds of a message; `schema_of` knows the schemas' ids."""
    schema_id, body = unframe(framed)
    buffer = io.BytesIO(body)
    found = fastavro.schemaless_reader(buffer, _parsed(json.dumps(schema_of(schema_id))), None)
    assert not buffer.read()
    return found


class Clock:
    def __init__(self):
        self.now_us = 7

    def __call__(self):
        return self.now_us


class Catalogue:
    """Has one table; `failures` are raised by the first calls."""

    def __init__(self, table, *failures):
        self.current = table
        self.failures = list(failures)
        self.asked = []

    def table(self, name, *, stream, read_ns=None):
        assert stream == "s"
        self.asked.append(name)
        if self.failures:
            raise self.failures.pop(0)
        return self.current


class Topics:
    def __init__(self):
        self.ensured = []
        self.key_schema_ids = []
        self.refusal = None

    def ensure(self, topic, *, key_schema_id):
        if self.refusal is not None:
            raise self.refusal
        self.ensured.append(topic)
        self.key_schema_ids.append(key_schema_id)


class Refusing(InMemorySchemaRegistry):
    """Refuses versions of some subjects, and notes each attempt."""

    def __init__(self, *refused):
        super().__init__()
        self.refused, self.attempts = set(refused), 0

    def register(self, subject, schema):
        if subject in self.refused:
            self.attempts += 1
            raise SchemaError("the schema registry rejects a version", subject=subject)
        return super().register(subject, schema)


class DroppingRegistry(InMemorySchemaRegistry):
    """Keeps of a schema what Avro defines, as some services do."""

    def register(self, subject, schema):
        return super().register(subject, self.kept(schema))

    def kept(self, schema):
        if isinstance(schema, list):
            return [self.kept(one) for one in schema]
        if not isinstance(schema, dict):
            return schema
        own = ("excludes", "watched")
        return {name: self.kept(one) for name, one in schema.items() if name not in own}
