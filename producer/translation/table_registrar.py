"""Registers the schemas of tables and makes their encoders.

Schemas only grow, over all workers and restarts.  The memory of a process is not enough: a worker
that starts after DROP COLUMN does not know the column whose records may still follow, and a reader
that uses the newest version for all values would find a column missing.  So the registry is the
memory of the fleet.  A topic's key schema must keep its id, or its keys would move between topic
partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.translation.event_writer import EventForm
from tidegate.producer.translation.subjects import require_backward, require_no_weaker
from tidegate.producer.translation.table_evolution import OTHER_TIMESTAMPS_HINT, grown
from tidegate.producer.translation.translator import TableEncoding
from tidegate.schemas.avro_types import differ_in_timestamps
from tidegate.schemas.change_schema import (
    excludes,
    key_schema,
    lost_parts,
    row_fields,
    value_schema,
    without,
)
from tidegate.schemas.errors import ConfigError, SchemaError, SchemaNotKept, UnreachableError
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema, SchemaRegistry
from tidegate.schemas.tables import Column, TableSchema, folded
from tidegate.schemas.topics import TopicNames, beside, table_of

_ROUNDS_MAX = 10
_NOT_KEPT_HINT = (
    "Readers learn from them what is left out: use a registry that keeps properties which Avro "
    "does not define (Confluent's, Karapace, Apicurio), or leave nothing out"
)


class TableRegistrar:
    """Registers the key and value schema of tables; one thread at a time.

    All of them carry columns of type TIMESTAMP in the form `timestamps`.
    """

    def __init__(
        self,
        topics: TopicNames,
        registry: SchemaRegistry,
        timestamps: TimestampForm = TimestampForm.MICROS,
        *,
        record_filter: RecordFilter | None = None,
        envelope: Envelope = Envelope.TIDEGATE,
        event_form: EventForm | None = None,
    ) -> None:
        """The value schemas of all tables name the changes that `record_filter` leaves out.

        `event_form` is for the encodings of events of other products.
        """
        self._envelope = envelope
        self._event_form = event_form
        self._filter = record_filter or RecordFilter()
        self._topics = topics
        self._registry = registry
        self._timestamps = timestamps
        self._key_schema_ids: dict[str, int] = {}

    def key_schema_id(self, topic: str) -> int:
        """Return the schema id of a topic's keys; the topic's table must be registered."""
        return self._key_schema_ids[topic]

    def missing(self, table: TableSchema, *, shown: Collection[str] | None = None) -> list[str]:
        """Return the subjects to which `register` would add a version; registers nothing.

        Raises the errors of `register` for a table that cannot be registered.
        """
        topic = self._topic(table.name)
        table = self._with_fields(topic, table, shown)
        subjects = {
            self._topics.key_subject(topic): self._find_key(topic, table),
            self._topics.value_subject(topic): self._find_value(topic, table)[0],
        }
        for subject in subjects:
            require_no_weaker(self._registry, subject)
        return [subject for subject, version in subjects.items() if version is None]

    def key_names(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table's registered key, in its order; empty without a key."""
        versions = self._registry.versions(self._topics.key_subject(self._topic(table)))
        return tuple(
            field["name"] for version in versions[-1:] for field in version.schema["fields"]
        )

    def register(
        self, table: TableSchema, *, shown: Collection[str] | None = None
    ) -> TableEncoding:
        """Register a table's schemas where they are new, and return its encoding.

        The value schema has the fields of every registered version, and the table's columns.
        `shown` are the columns that records have shown; with it, another column that cannot have a
        field (a type or a name that the contract does not carry) is left out until a record shows
        it.  Raises IncompatibleChange for another primary key or another type of a column,
        SchemaError if the registry rejects a version or the table cannot have a topic,
        SchemaNotKept if the registry drops a part of one, ConfigError if the registry does not
        allow this user to register one, and UnreachableError if it does not answer.
        """
        topic = self._topic(table.name)
        table = self._with_fields(topic, table, shown)
        key = self._register_key(topic, table)
        value = self._register_value(topic, table)
        table = _spelled(table, row_fields(value.schema))
        places = {name: place for place, name in enumerate(row_fields(value.schema))}
        ordered = sorted(table.columns, key=lambda column: places[column.name])
        return TableEncoding(
            table=TableSchema(table.name, tuple(ordered), excludes=table.excludes),
            topic=topic,
            key=key,
            value=value,
            timestamps=self._timestamps,
            event_form=self._event_form,
        )

    def _topic(self, table: str) -> str:
        """Return a table's topic; raises SchemaError for a table that cannot have one.

        At a start such a table is an error of the settings; a later one stops only the stream
        partitions with its records.
        """
        try:
            return self._topics.data(table)
        except ConfigError as error:
            raise SchemaError(error.message, hint=error.hint, **error.fields) from error

    def _with_fields(
        self, topic: str, table: TableSchema, shown: Collection[str] | None
    ) -> TableSchema:
        """Return a table without the columns that need no field and cannot have one.

        Without `shown` any column that the change stream watches may occur.
        """
        names = None if shown is None else {folded(name) for name in shown}
        needed = {
            column.name
            for column in table.columns
            if column.key_position is not None
            or (column.is_watched if names is None else folded(column.name) in names)
        }
        columns = tuple(
            column
            for column in table.columns
            if column.name in needed or self._has_field(topic, table.name, column)
        )
        return table if len(columns) == len(table.columns) else replace(table, columns=columns)

    def _has_field(self, topic: str, table: str, column: Column) -> bool:
        try:
            alone = TableSchema(table, (column,))
            value_schema(topic, alone, self._timestamps, self._envelope)
        except SchemaError:
            return False
        return True

    def register_key(self, table: TableSchema) -> TableEncoding:
        """Register only a table's key; return an encoding of its key columns, for `place` alone.

        For a table whose value schema is refused.  Raises as `register` does.
        """
        topic = self._topic(table.name)
        keys = TableSchema(table.name, table.key_columns)
        # This value schema is never used to write, so it has no id.
        value = RegisteredSchema(0, value_schema(topic, keys, self._timestamps, self._envelope))
        key = self._register_key(topic, keys)
        return TableEncoding(keys, topic, key, value, self._timestamps, self._event_form)

    def _register_key(self, topic: str, table: TableSchema) -> RegisteredSchema:
        """Return the registered version with the table's key; registers the first version."""
        subject = self._topics.key_subject(topic)
        key = self._find_key(topic, table)
        if key is None:
            schema = key_schema(topic, table, self._timestamps)
            key = RegisteredSchema(self._registry.register(subject, schema), schema)
        require_backward(self._registry, subject)
        if self._key_schema_ids.setdefault(topic, key.schema_id) != key.schema_id:
            raise _other_key(table, subject)
        return key

    def _find_key(self, topic: str, table: TableSchema) -> RegisteredSchema | None:
        """Return the registered key; None if there is none; raises IncompatibleChange."""
        subject = self._topics.key_subject(topic)
        fields = _folded_fields(key_schema(topic, table, self._timestamps))
        for key in self._registry.versions(subject)[-1:]:
            registered = _folded_fields(key.schema)
            if differ_in_timestamps(registered, fields):
                raise IncompatibleChange(
                    "timestamps: the registered key schema has the other form",
                    hint=OTHER_TIMESTAMPS_HINT,
                    table=table.name,
                    subject=subject,
                    timestamps=self._timestamps.lower(),
                )
            if registered != fields:
                raise _other_key(table, subject)
            return key
        return None

    def _register_value(self, topic: str, table: TableSchema) -> RegisteredSchema:
        """Return a version that has every field of all versions and of the table.

        Another worker may register a version at any moment, so the versions are read again after
        each registration until one of them has every field.  So of two versions in use, one has
        every field of the other.
        """
        subject = self._topics.value_subject(topic)
        for _ in range(_ROUNDS_MAX):
            version, schema = self._find_value(topic, table)
            if version is not None:
                require_backward(self._registry, subject)
                return version
            self._registry.register(subject, schema)
        for newest in self._registry.versions(subject)[-1:]:
            if dropped := lost_parts(schema, newest.schema):
                parts = ", ".join(dropped)
                raise SchemaNotKept(
                    f"the schema registry does not keep parts of a schema: {parts}",
                    hint=_NOT_KEPT_HINT,
                    subject=subject,
                )
        raise UnreachableError(
            "the schema registry does not show what was registered",
            hint="Check the registry and its log",
            subject=subject,
        )

    def _find_value(
        self, topic: str, table: TableSchema
    ) -> tuple[RegisteredSchema | None, dict[str, Any]]:
        """Return the newest version with every field, or None, and the schema with every field."""
        versions = self._registry.versions(self._topics.value_subject(topic))
        all_excludes = tuple(sorted({*table.excludes, *self._filter.excludes}))
        spelled = _spelled(replace(table, excludes=all_excludes), self._names(table, versions))
        current = value_schema(topic, spelled, self._timestamps, self._envelope)
        schema = grown(current, [version.schema for version in versions], table=table.name)
        # An earlier stream of this prefix may have registered columns that this one leaves out.
        schema = without(schema, self._filter.hidden(table.name, row_fields(schema)))
        complete_form = row_fields(schema), excludes((schema,))
        complete = [
            version
            for version in versions
            if (row_fields(version.schema), excludes((version.schema,))) == complete_form
        ]
        return (complete[-1] if complete else None), schema

    def _names(self, table: TableSchema, versions: Sequence[RegisteredSchema]) -> list[str]:
        """Return the names of a table's fields in its topic, then in the topic of its backfill.

        A reader reads both with one schema.  The other topic is not looked up if the first has all
        names.
        """
        names = [name for version in versions for name in row_fields(version.schema)]
        if table.column_names <= set(names):
            return names
        table_name = table_of(table.name)
        other = table_name if table.name != table_name else beside(table_name)
        with suppress(SchemaError):  # a name that is too long for a topic
            subject = self._topics.value_subject(self._topic(other))
            versions = self._registry.versions(subject)
            names += [name for version in versions for name in row_fields(version.schema)]
        return names


def _folded_fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a key's fields; none for a schema of another program that is not a record."""
    return [{**field, "name": folded(field["name"])} for field in schema.get("fields", ())]


def _other_key(table: TableSchema, subject: str) -> IncompatibleChange:
    return IncompatibleChange(
        "a table's primary key changed",
        hint=(
            "Start a new stream under another prefix; "
            "if this one was reset, delete the subject in the registry"
        ),
        table=table.name,
        subject=subject,
    )


def _spelled(table: TableSchema, names: Iterable[str]) -> TableSchema:
    """Return a table whose columns have the spelling of the fields: the first one, in any case."""
    exact = set(names)
    spellings: dict[str, str] = {}
    for name in names:
        spellings.setdefault(folded(name), name)
    columns = tuple(
        column
        if column.name in exact
        else replace(column, name=spellings.get(folded(column.name), column.name))
        for column in table.columns
    )
    return replace(table, columns=columns)
