"""Schemas by id, stored with the gate's state.

Plans name schemas by id, and an id never changes its meaning.  A schema that was read once is
stored, so that a replay needs no registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.lineage.subscription import Subscription
from tidegate.schemas.avro_types import namespace_of
from tidegate.schemas.change_schema import excludes, unwatched_columns
from tidegate.schemas.registry import SchemaRegistry
from tidegate.spark_consumer.checkpoint.json_files import JsonStorage
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.file_names import schema_file
from tidegate.spark_consumer.core.topic_schemas import (
    TopicSchemas,
    names_of_one,
    reader_schema,
)
from tidegate.spark_consumer.errors import AMBIGUOUS_NAMES_HINT, AmbiguousNames


class SchemaStore:
    """Reads schemas from the checkpoint first, then from the registry."""

    def __init__(self, storage: JsonStorage, registry: SchemaRegistry) -> None:
        """Take the `gate` folder and the registry; reads nothing yet."""
        self._storage = storage
        self._registry = registry
        self._known: dict[int, Mapping[str, Any]] = {}
        self._of_topics: dict[TopicIds, TopicSchemas] = {}
        self._of_tables: dict[tuple[TopicIds | None, TopicIds], TopicSchemas] = {}
        """The tables that have records in two topics."""

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Return the schema of an id, stored first if it is new; raises the registry's errors."""
        if schema_id not in self._known:
            name = schema_file(schema_id)
            stored = self._storage.read_json(name)
            if stored is None:
                stored = self._registry.schema(schema_id)
                self._storage.write_json(name, stored)
            self._known[schema_id] = stored
        return self._known[schema_id]

    def topics(
        self, topics: Iterable[TopicIds], subscription: Subscription
    ) -> dict[str, TopicSchemas]:
        """Return the schemas of every topic that has had a value.

        A table's rows that were read on demand are in a second topic.  Then both topics are read
        with the same schemas, those of the table, even if the data topic has had no value yet.
        Raises AmbiguousNames for tables, or columns of one, whose names differ in case only.
        """
        ids_of = {ids.topic: ids for ids in topics if ids.value_ids}
        schemas: dict[str, TopicSchemas] = {}
        for topic, ids in ids_of.items():
            data_topic, second_topic = subscription.topics_of(topic) or (topic, "")
            if data_topic == topic and second_topic not in ids_of:
                if ids not in self._of_topics:
                    self._of_topics[ids] = self._read(ids, subscription)
                schemas[topic] = self._of_topics[ids]
            else:
                pair = ids_of.get(data_topic), ids_of[second_topic]
                if pair not in self._of_tables:
                    self._of_tables[pair] = self._joined(*pair, data_topic, subscription)
                schemas[data_topic] = schemas[second_topic] = self._of_tables[pair]
        if alike := names_of_one(schema.table for schema in schemas.values()):
            raise AmbiguousNames(
                "the stream has tables whose names differ in case only",
                hint=AMBIGUOUS_NAMES_HINT,
                tables=alike,
            )
        return schemas

    def _joined(
        self, first: TopicIds | None, second: TopicIds, topic: str, subscription: Subscription
    ) -> TopicSchemas:
        """Return the schemas of a table that has records in two topics.

        Avro compares the names of types, which say their topic: all are read as the data topic's.
        """
        of_table = [] if first is None else [(n, self.schema(n)) for n in first.value_ids]
        keys = [] if first is None else [(n, self.schema(n)) for n in first.key_ids]
        renamed = {"namespace": namespace_of(topic)}
        of_second = [(n, {**self.schema(n), **renamed}) for n in second.value_ids]
        other_keys = [(n, {**self.schema(n), **renamed}) for n in second.key_ids]
        versions = [schema for _, schema in (*of_second, *of_table)]
        return TopicSchemas(
            table=subscription.table(topic),
            key_schema=(keys or other_keys)[-1][1],
            reader_schema=reader_schema(versions),
            writer_schemas=dict([*keys, *other_keys, *of_table, *of_second]),
            unwatched=unwatched_columns(versions),
            excludes=excludes(versions),
            topics=(topic, second.topic),
        )

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
