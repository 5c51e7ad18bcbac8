"""Events of changes in Datastream's form, and files of them, whole in memory.

The events are those that a stream with `envelope = "datastream"` has in Kafka (`docs/protocol.md`,
3.10): the facts of a change are computed in `schemas.datastream_event` for both.  Column types are
those of Tidegate's value schema, which has no types for JSON and PostgreSQL's numeric: they are
strings here.  Column values in JSON are the same as a producer's.

A file's end depends on the release's changes, their order and their sizes in Kafka, and on limits
that are recorded before the first file; its bytes are a function of the records and of the file's
name.  So a release that is repeated has the same files, whatever was written before.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

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
from tidegate.schemas.instants import NS_PER_US, canonical_rfc3339, format_rfc3339
from tidegate.schemas.json_values import (
    date_text,
    decimal_text,
    double_text,
    float_text,
    quoted,
)
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas

_STREAM = re.compile(r"projects/.+/instances/.+/databases/([^/]+)/changeStreams/[^/]+", re.DOTALL)
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")

JsonField: TypeAlias = Callable[[Any], str]
"""From a decoded value, null included, to its text."""

_PLAIN: dict[str, JsonField] = {
    "boolean": lambda value: "true" if value else "false",
    "bytes": lambda value: f'"{base64.b64encode(value).decode()}"',
    "double": double_text,
    "float": float_text,
    "int": str,
    "long": str,
    "string": quoted,
}
_LOGICAL: dict[str, JsonField] = {
    "date": date_text,
    "decimal": decimal_text,
    "timestamp-micros": lambda value: f'"{canonical_rfc3339(format_rfc3339(value * NS_PER_US))}"',
}

_OPEN_MAX = 4
"""How many times the largest file is in memory at most, over all tables."""

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BLOCK_BYTES = 64 * 1024
_METADATA = fastavro.parse_schema({"type": "map", "values": "bytes"})
_LONG = fastavro.parse_schema("long")


def database_of(stream: str) -> str:
    """Return the database of a change stream's full name; raises ConfigError for another stream."""
    match = _STREAM.fullmatch(stream)
    if match is None:
        raise ConfigError(
            "the sink datastream_files needs the changes of a change stream of Spanner",
            hint=(
                "A stream of Datastream's files has such files already: take the sink out of sinks"
            ),
            stream=stream,
        )
    return match[1]


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


def json_field(avro: Any) -> JsonField:
    """Return the writer of an Avro type of our rows; raises SchemaError for another type."""
    if isinstance(avro, list):
        (branch,) = (option for option in avro if option != "null")
        return _nullable(json_field(branch))
    if isinstance(avro, dict) and avro["type"] == "array":
        element = json_field(avro["items"])
        return lambda value: f"[{','.join(map(element, value))}]"
    logical = avro.get("logicalType", "") if isinstance(avro, dict) else ""
    kind = avro["type"] if isinstance(avro, dict) else avro
    writer = _LOGICAL.get(logical) or (_PLAIN.get(kind) if isinstance(kind, str) else None)
    if writer is None:
        raise SchemaError("an Avro type that no column has", type=kind)
    return writer


def _nullable(write: JsonField) -> JsonField:
    return lambda value: "null" if value is None else write(value)


@dataclass(frozen=True, slots=True)
class FileLimits:
    """A file ends with the change that reaches one of the two.

    Bytes count the values in Kafka, which neither the format nor the program's version changes.
    """

    rows_max: int
    bytes_max: int


@dataclass(slots=True)
class EventsFile:
    """The events of one table that become a file; `number` counts a table's files, from 0."""

    topic: str
    number: int
    records: list[bytes] = field(default_factory=list)
    value_bytes: int = 0


class OpenFiles:
    """The files of a release that have not ended; takes changes in the order of their ordinals."""

    def __init__(self, limits: FileLimits) -> None:
        self._limits = limits
        self._open: dict[str, EventsFile] = {}
        self._numbers: dict[str, int] = {}
        self._bytes = 0

    def add(self, topic: str, record: bytes, *, value_bytes: int) -> Iterator[EventsFile]:
        """Add an event to its table's file; yield the files that end with it."""
        file = self._open.get(topic)
        if file is None:
            number = self._numbers.get(topic, 0)
            self._numbers[topic] = number + 1
            file = self._open[topic] = EventsFile(topic, number)
        file.records.append(record)
        file.value_bytes += value_bytes
        self._bytes += value_bytes
        limits = self._limits
        if len(file.records) >= limits.rows_max or file.value_bytes >= limits.bytes_max:
            yield self._end(topic)
        while self._bytes > _OPEN_MAX * limits.bytes_max:
            # The first of equals in the alphabet, so that a repeated release ends the same one.
            largest = max(
                sorted(self._open), key=lambda open_topic: self._open[open_topic].value_bytes
            )
            yield self._end(largest)

    def rest(self) -> Iterator[EventsFile]:
        """Yield the files that are left at the end of the release."""
        for topic in sorted(self._open):
            yield self._end(topic)

    def _end(self, topic: str) -> EventsFile:
        file = self._open.pop(topic)
        self._bytes -= file.value_bytes
        return file


class FileFormat(StrEnum):
    """How files hold their events; the value is the ending of their names, without the dot."""

    AVRO = "avro"
    JSON = "jsonl"
    JSON_GZIP = "jsonl.gz"


def avro_file(records: Sequence[bytes], schema: Mapping[str, Any], *, name: str) -> bytes:
    """Return an Avro container file, without compression, of encoded records.

    `name` decides the file's sync marker, which is random elsewhere.
    """
    out = io.BytesIO()
    sync = hashlib.sha256(name.encode()).digest()[:_SYNC_BYTES]
    out.write(_MAGIC)
    head = {
        "avro.schema": json.dumps(schema, separators=(",", ":")).encode(),
        "avro.codec": b"null",
    }
    fastavro.schemaless_writer(out, _METADATA, head)
    out.write(sync)
    block: list[bytes] = []
    size = 0
    for record in records:
        block.append(record)
        size += len(record)
        if size >= _BLOCK_BYTES:
            _write_block(out, block, sync)
            block, size = [], 0
    if block:
        _write_block(out, block, sync)
    return out.getvalue()


def json_file(lines: Sequence[bytes], *, is_compressed: bool) -> bytes:
    """Return a file of JSON lines, plain or with gzip."""
    data = b"".join(lines)
    return gzip.compress(data, mtime=0) if is_compressed else data


def _write_block(out: io.BytesIO, block: Sequence[bytes], sync: bytes) -> None:
    data = b"".join(block)
    for number in (len(block), len(data)):
        fastavro.schemaless_writer(out, _LONG, number)
    out.write(data)
    out.write(sync)
