"""The schema ids that a batch's records name, and those among them that are of their topics.

A record of another writer may name any id.  One that the registry does not know, or that belongs to
another topic, must never enter a plan: a topic is read with all the ids that its plan names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidegate.schemas.change_schema import record_names
from tidegate.schemas.errors import SchemaError, SchemaNotFound
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.batch.batch_stats import RecordFrame, topics_of
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.topic_schemas import full_name
from tidegate.spark_consumer.errors import BAD_RECORD_HINT, UndecodableRecord, UnknownSchema


class SchemaIds:
    """Looks each id up once, in the checkpoint or the registry."""

    def __init__(self, schema_of: Callable[[int], Mapping[str, Any]], *, sets_aside: bool) -> None:
        """`schema_of` returns the schema of an id, and raises SchemaNotFound for an unknown one.

        `sets_aside`: records with other ids are left to those who set them aside.
        """
        self._schema_of = schema_of
        self._sets_aside = sets_aside
        self._good: set[tuple[str, str, bytes]] = set()

    def topics_of(
        self,
        frames: Iterable[RecordFrame],
        *,
        find: Callable[[str, str, bytes], Mapping[str, int]],
    ) -> tuple[TopicIds, ...]:
        """Return the ids of records whose key and value name a schema of their topic.

        `find` returns topic partition and offset of a record, by its topic and how its key or value
        begins.  Raises UndecodableRecord for the first other record, unless such are set aside, and
        what the registry raises if it does not answer.
        """
        known: list[RecordFrame] = []
        for frame in sorted(frames, key=lambda one: (one[0], one[1], one[2] or b"")):
            topic, key, value = frame
            parts = [("key", key)] if value is None else [("key", key), ("value", value)]
            faults = [fault for part in parts if (fault := self._fault(topic, *part)) is not None]
            if not faults:
                known.append(frame)
            elif not self._sets_aside:
                kind, column, head, message, fields = faults[0]
                place = find(topic, column, head)
                raise kind(message, hint=BAD_RECORD_HINT, topic=topic, **place, **fields)
        return topics_of(known)

    def _fault(
        self, topic: str, column: str, head: bytes
    ) -> tuple[type[UndecodableRecord], str, bytes, str, dict[str, Any]] | None:
        """Return what is wrong with how a key or a value begins."""
        if (topic, column, head) in self._good:
            return None
        try:
            schema_id, _ = unframe(head)
        except SchemaError as error:
            message = f"a {column} does not begin with a schema id"
            return UndecodableRecord, column, head, message, error.fields
        fields: dict[str, Any] = {"schema_id": schema_id}
        try:
            found = full_name(self._schema_of(schema_id))
        except SchemaNotFound as error:
            message = f"a {column} names a schema that the registry does not know"
            return UnknownSchema, column, head, message, {**fields, "cause": error.message}
        expected = record_names(topic)[column]
        if found != expected:
            message = f"a {column} names a schema that is not one of its topic"
            names = {"found": found, "expected": expected}
            return UnknownSchema, column, head, message, {**fields, **names}
        self._good.add((topic, column, head))
        return None
