"""Schemas by id, stored beside the gate's state.

Plans name schemas by id, and an id never changes its meaning.  A schema that was read once is
stored, so that a replay needs no registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.schemas.change_schema import excludes, unwatched_columns
from tidegate.spark_consumer.core.files import schema_file
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas, reader_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.lineage.subscription import Subscription
    from tidegate.schemas.registry import SchemaRegistry
    from tidegate.spark_consumer.checkpoint.json_files import JsonStorage
    from tidegate.spark_consumer.core.batch_state import TopicIds

__all__ = ["SchemaStore"]


class SchemaStore:
    """Reads schemas from the checkpoint first, then from the registry."""

    def __init__(self, storage: JsonStorage, registry: SchemaRegistry) -> None:
        """Take the `gate` folder and the registry; reads nothing yet."""
        self._storage = storage
        self._registry = registry
        self._known: dict[int, Mapping[str, Any]] = {}
        self._of_topics: dict[TopicIds, TopicSchemas] = {}

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Return the schema of an id, stored by now; raises what the registry raises."""
        if schema_id not in self._known:
            name = schema_file(schema_id)
            stored = self._storage.read_json(name)
            if stored is None:
                stored = self._registry.schema(schema_id)
                self._storage.write_json(name, stored)
            self._known[schema_id] = stored
        return self._known[schema_id]

    def topics(
        self, known: Iterable[TopicIds], subscription: Subscription
    ) -> dict[str, TopicSchemas]:
        """Return the schemas of every topic that has had a value."""
        schemas = {}
        for ids in known:
            if not ids.value_ids:
                continue
            if ids not in self._of_topics:
                self._of_topics[ids] = self._read(ids, subscription)
            schemas[ids.topic] = self._of_topics[ids]
        return schemas

    def _read(self, ids: TopicIds, subscription: Subscription) -> TopicSchemas:
        versions = [self.schema(n) for n in ids.value_ids]
        return TopicSchemas(
            table=subscription.table(ids.topic),
            key_schema=self.schema(ids.key_ids[-1]),
            reader_schema=reader_schema(versions),
            writer_schemas={n: self.schema(n) for n in (*ids.key_ids, *ids.value_ids)},
            unwatched=unwatched_columns(versions),
            excludes=excludes(versions),
        )
