"""`core.translate.ChangeEncoder`, and the registration of a table's schemas.

One encoder per registered schema; it frames what it writes.  A table's key schema must keep its id
for as long as this process lives, or its keys would move between topic partitions.
"""

from __future__ import annotations

import io
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import fastavro

from tidegate.producer.adapters.avro_writer import compile_writer
from tidegate.producer.core.translate import TableEncoding
from tidegate.producer.errors import IncompatibleChange
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.wire_format import frame_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.schemas.registry import SchemaRegistry
    from tidegate.schemas.tables import TableSchema
    from tidegate.schemas.topics import TopicNames

__all__ = ["CompiledChangeEncoder", "FastavroChangeEncoder", "TableRegistrar"]


class CompiledChangeEncoder:
    """Writes plain values (dates as days, decimals as bytes) under one schema."""

    def __init__(self, schema: dict[str, Any], *, schema_id: int) -> None:
        self._write = compile_writer(schema)
        self._prefix = frame_prefix(schema_id)
        self.schema_id = schema_id

    def encode(self, datum: Mapping[str, Any]) -> bytes:
        """Return the framed bytes; raises SchemaError if the datum does not fit the schema."""
        out = bytearray(self._prefix)
        try:
            self._write(out, datum)
        except Exception as error:  # whatever a value of another type trips over
            raise _misfit(error, self.schema_id) from error
        return bytes(out)


class FastavroChangeEncoder:
    """The same by fastavro: slower, for every schema, and the tests' oracle."""

    def __init__(self, schema: dict[str, Any], *, schema_id: int) -> None:
        # A copy: parsing leaves marks in the schema it is given.
        self._schema = fastavro.parse_schema(deepcopy(schema))
        self._prefix = frame_prefix(schema_id)
        self.schema_id = schema_id

    def encode(self, datum: Mapping[str, Any]) -> bytes:
        """Return the framed bytes; raises SchemaError if the datum does not fit the schema."""
        buffer = io.BytesIO()
        buffer.write(self._prefix)
        try:
            fastavro.schemaless_writer(buffer, self._schema, datum)
        except Exception as error:  # fastavro raises whatever its writer trips over
            raise _misfit(error, self.schema_id) from error
        return buffer.getvalue()


def _misfit(error: Exception, schema_id: int) -> SchemaError:
    return SchemaError(
        "a change does not fit its topic's schema",
        schema_id=schema_id,
        cause=f"{type(error).__name__}: {error}",
    )


class TableRegistrar:
    """Registers the key and value schema of tables, and makes their encoders."""

    def __init__(self, topics: TopicNames, registry: SchemaRegistry) -> None:
        self._topics = topics
        self._registry = registry
        self._key_schema_ids: dict[str, int] = {}

    def key_schema_id(self, topic: str) -> int:
        """Return the id of a topic's keys; the topic's table must have been registered."""
        return self._key_schema_ids[topic]

    def register(self, table: TableSchema) -> TableEncoding:
        """Register a table's schemas where they are new, and return its encoding.

        Raises SchemaError if the registry refuses a version, UnreachableError if it does not
        answer, and IncompatibleChange if the key's schema is no longer the one it was.
        """
        topic = self._topics.data(table.name)
        key, value = key_schema(topic, table), value_schema(topic, table)
        key_id = self._register(self._topics.key_subject(topic), key)
        if self._key_schema_ids.setdefault(topic, key_id) != key_id:
            raise IncompatibleChange(
                "a table's primary key changed",
                hint="Begin a new stream under another prefix",
                table=table.name,
            )
        value_id = self._register(self._topics.value_subject(topic), value)
        return TableEncoding(
            table=table,
            topic=topic,
            key=CompiledChangeEncoder(key, schema_id=key_id),
            value=CompiledChangeEncoder(value, schema_id=value_id),
        )

    def _register(self, subject: str, schema: dict[str, Any]) -> int:
        schema_id = self._registry.register(subject, schema)
        # After the first version: some registries know no subject without one.
        self._registry.require_compatibility(subject, "BACKWARD")
        return schema_id
