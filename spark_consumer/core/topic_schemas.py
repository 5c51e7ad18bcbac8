"""The schemas that a topic's keys and values are read with."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import folded
from tidegate.spark_consumer.errors import AMBIGUOUS_NAMES_HINT, AmbiguousNames


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """How a topic's bytes are decoded; named by the plan, so that a replay decodes them alike.

    `table` is the topic without prefix and dot.  `reader_schema` is the result of the function of
    that name: its `Row` holds every column that any of the writer schemas has.  `writer_schemas`
    holds, by schema id, every schema that a header of the release's rows names, **of keys and of
    values**, and may hold more.  An id that is missing fails the release.

    `unwatched` are columns whose values the change stream left out at some time; `excludes` are its
    options that left out whole changes.
    """

    table: str
    key_schema: Mapping[str, Any]
    reader_schema: Mapping[str, Any]
    writer_schemas: Mapping[int, Mapping[str, Any]]
    unwatched: frozenset[str] = frozenset()
    excludes: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    """The topics that are read with them, the data topic first; empty: their own topic."""

    def read_from(self, topic: str) -> tuple[str, ...]:
        """Return the topics whose records belong to the table of `topic`."""
        return self.topics or (topic,)


def by_table(topics: Mapping[str, TopicSchemas]) -> dict[str, TopicSchemas]:
    """Return the schemas of each table once, by its data topic."""
    return {
        topic: schemas for topic, schemas in topics.items() if schemas.read_from(topic)[0] == topic
    }


def reader_schema(versions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the last of a topic's value schemas, with the columns that only earlier ones have.

    A version may leave columns out (`docs/protocol.md`, 3.4), while records that were written with
    them are still to be released.  Such columns come last, with their newest types.  Raises
    AmbiguousNames for columns whose names differ in case only.
    """
    *earlier, newest = versions
    reader = copy.deepcopy(newest)
    fields = _row(reader)["fields"]
    for schema in reversed(earlier):
        names = {field["name"] for field in fields}
        fields += [field for field in _row(schema)["fields"] if field["name"] not in names]
    if alike := names_of_one(field["name"] for field in fields):
        message = "a table has columns whose names differ in case only"
        fields_of_error: dict[str, Any] = {"schema": full_name(newest), "columns": alike}
        raise AmbiguousNames(message, hint=AMBIGUOUS_NAMES_HINT, **fields_of_error)
    return reader


def names_of_one(names: Iterable[str]) -> list[str]:
    """Return the names that differ in case only from another one."""
    alike: dict[str, set[str]] = {}
    for name in names:
        alike.setdefault(folded(name), set()).add(name)
    return sorted(
        name for same_names in alike.values() if len(same_names) > 1 for name in same_names
    )


def row_columns(change_schema: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the table's columns in ordinal order, from a change record's schema.

    Raises SchemaError for any other schema.
    """
    return tuple(field["name"] for field in row_fields(change_schema))


def row_fields(change_schema: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the same columns as Avro's fields, with their types."""
    fields: Sequence[Mapping[str, Any]] = _row(change_schema)["fields"]
    return fields


def full_name(schema: Mapping[str, Any]) -> str:
    """Return an Avro record's namespace and name."""
    return f"{schema.get('namespace', '')}.{schema.get('name', '')}"


def _row(change_schema: Mapping[str, Any]) -> dict[str, Any]:
    for field in change_schema.get("fields", ()):
        if field["name"] == "new_values":
            for branch in field["type"]:
                if isinstance(branch, dict):
                    return branch
    raise SchemaError("a value schema has no row in new_values", schema=full_name(change_schema))
