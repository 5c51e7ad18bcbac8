"""The events of one table, from decoded changes to the bytes of a record in a file.

They are those that a stream with `envelope = "datastream"` has in Kafka (`docs/protocol.md`, 3.10):
what is said of a change is computed in `schemas.datastream_event` for both.  Column types are those
of our own value schema, which has no name of its own for JSON and PostgreSQL's numeric: they are
strings here.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from typing import Any

import fastavro

from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.datastream_event import (
    PAYLOAD,
    datastream_fields,
    event_facts,
    facts_as_json,
    payload_key,
    record_facts,
)
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.datastream.json_fields import json_field

_STREAM = re.compile(r"projects/.+/instances/.+/databases/([^/]+)/changeStreams/[^/]+", re.DOTALL)
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")


def database_of(stream: str) -> str:
    """Return the database of a change stream's full name; raises ConfigError for another stream."""
    found = _STREAM.fullmatch(stream)
    if found is None:
        raise ConfigError(
            "the sink datastream_files needs the changes of a change stream of Spanner",
            hint=(
                "A stream of Datastream's files has such files already: take the sink out of sinks"
            ),
            stream=stream,
        )
    return found[1]


class EventEncoder:
    """Encodes a table's changes; the records of one release have one schema."""

    def __init__(self, schemas: TopicSchemas, *, stream: str) -> None:
        """`stream` is the change stream's full name; raises ConfigError for another stream."""
        self._table = schemas.table
        self._stream = stream
        self._database = database_of(stream)
        fields = row_fields(schemas.reader_schema)
        self._columns = tuple(fields)
        self._keys = tuple(field["name"] for field in schemas.key_schema["fields"])
        self._schema_key = payload_key(fields.values())
        self.schema: dict[str, Any] = {
            "type": "record",
            "name": _record_name(schemas.table),
            "fields": datastream_fields(list(fields.values()), schemas.table),
        }
        """The schema of a file in Avro: named after the object, as Datastream's are."""
        self._parsed = fastavro.parse_schema(self.schema)
        self._texts = {name: json_field(field["type"]) for name, field in fields.items()}

    def avro(self, change: Mapping[str, Any]) -> bytes:
        """Return a change as a record of an Avro file.

        `change` is as `CollectedTable.changes` has it.  Raises SchemaError for a value that does
        not fit.
        """
        facts, row = self._event(change)
        buffer = io.BytesIO()
        try:
            fastavro.schemaless_writer(buffer, self._parsed, {**facts, PAYLOAD: row})
        except (ValueError, TypeError, OverflowError) as error:
            raise SchemaError(
                "an event does not fit its schema", table=self._table, cause=str(error)[:200]
            ) from error
        return buffer.getvalue()

    def json(self, change: Mapping[str, Any]) -> bytes:
        """Return a change as a line of a JSON file; a column that was not captured has no name."""
        facts, row = self._event(change)
        names = facts["source_metadata"]["captured_columns"]
        columns = [f"{json.dumps(name)}:{self._texts[name](row[name])}" for name in names]
        shown = json.dumps(facts_as_json(facts), ensure_ascii=False, separators=(",", ":"))
        line = f'{shown[:-1]},"{PAYLOAD}":{{{",".join(columns)}}}}}\n'
        try:
            return line.encode()
        except UnicodeEncodeError as error:
            raise SchemaError(
                "a text that is not Unicode", table=self._table, cause=str(error)[:200]
            ) from error

    def _event(self, change: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Return the facts of an event, and its row."""
        mod_type = change["mod_type"]
        side = "old" if mod_type == "DELETE" else "new"
        row, named = change[f"{side}_values"], change[f"{side}_columns"]
        captured = self._columns
        if named is not None:
            held = {*named, *self._keys}
            captured = tuple(name for name in self._columns if name in held)
        of_record = record_facts(
            change["source"],
            mod_type=mod_type,
            table=self._table,
            key_columns=self._keys,
            stream=self._stream,
            database=self._database,
            schema_key=self._schema_key,
        )
        return event_facts(of_record, number=change["mod_number"], captured=captured), row


def _record_name(table: str) -> str:
    """Return the name of an object's record: its own, but for characters that Avro refuses."""
    name = _NOT_IN_NAME.sub("_", table)
    return f"_{name}" if name[:1].isdigit() else name
