"""Schemas by id, kept beside the gate's state.

Plans name schemas by id, and an id never changes its meaning; what was read once is stored, so that
a replay needs no registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.spark.sink import TopicSchemas

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.schemas.registry import SchemaRegistry
    from tidegate.spark_consumer.core.batch_state import TopicIds
    from tidegate.spark_consumer.core.subscription import Subscription
    from tidegate.spark_consumer.spark.storage import Storage

__all__ = ["SchemaStore"]


class SchemaStore:
    """The registry, seen through what is stored already."""

    def __init__(self, storage: Storage, registry: SchemaRegistry) -> None:
        """Ask the registry for nothing yet."""
        self._storage = storage
        self._registry = registry
        self._known: dict[int, Mapping[str, Any]] = {}

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Return the schema of an id; raises what the registry raises."""
        if schema_id not in self._known:
            name = f"schemas/{schema_id}.json"
            stored = self._storage.read_json(name)
            if stored is None:
                stored = self._registry.schema(schema_id)
                self._storage.write_json(name, stored)
            self._known[schema_id] = stored
        return self._known[schema_id]

    def topics(
        self, known: Iterable[TopicIds], subscription: Subscription
    ) -> dict[str, TopicSchemas]:
        """Return how to read every topic that has had a value."""
        schemas = {}
        for ids in known:
            if ids.reader_id is None:
                continue
            schemas[ids.topic] = TopicSchemas(
                table=subscription.table(ids.topic),
                key_schema=self.schema(ids.key_ids[-1]),
                reader_schema=self.schema(ids.reader_id),
                writer_schemas={n: self.schema(n) for n in (*ids.key_ids, *ids.value_ids)},
            )
        return schemas
