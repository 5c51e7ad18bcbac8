"""The events of one file, whatever its format: Avro or JSON lines, plain or gzip.

The format is recognised by the first bytes: names of copied files say little.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, cast

from tidegate.producer.datastream.avro_container import MAGIC, AvroContainer
from tidegate.producer.datastream.errors import (
    DatastreamError,
    FileCutShort,
    FileDamaged,
    WrongSchema,
)
from tidegate.producer.datastream.event import NEEDED_FIELDS, Event, parse_event
from tidegate.producer.datastream.file_limits import LargeRead, inflated
from tidegate.producer.datastream.json_lines import json_lines
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.unified_types import PayloadField, named_types, payload_fields

_GZIP = b"\x1f\x8b"


class EventFile:
    """One file; iterating it once yields its events, with at most one block or line in memory.

    `fields` are those of its rows as the file's schema has them; None for JSON, which has none.
    Raises the errors of `errors`, each with the file's name and a record.  `stream` must be able to
    seek, and is the caller's to close.
    """

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        self.fields: list[PayloadField] | None = None
        self._columns: frozenset[str] | None = None
        self._container: AvroContainer | None = None
        self._records = self._open(stream)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in the order of the file."""
        while (found := self._next()) is not None:
            if not isinstance(found, LargeRead):
                yield self._parsed(*found)

    @property
    def held_bytes(self) -> int:
        """What is held of the file between two events."""
        return 0 if self._container is None else self._container.held_bytes

    def each(self) -> Iterator[Event | DatastreamError | LargeRead]:
        """Yield each event, or the error that it has; raise what concerns the rest of the file.

        What announces a large read comes before the event, or before such an error.
        """
        while (found := self._next()) is not None:
            if isinstance(found, LargeRead):
                yield found
                continue
            try:
                yield self._parsed(*found)
            except DatastreamError as error:
                yield error

    def _parsed(self, number: int, record: Any) -> Event:
        if isinstance(record, DatastreamError):
            raise record
        return parse_event(record, Position(self.name, number), columns=self._columns)

    def _open(self, stream: BinaryIO) -> Iterator[tuple[int, Any] | LargeRead]:
        self._last = Position(self.name, 0)
        plain = stream
        if _head(stream, len(_GZIP)) == _GZIP:
            opened = cast("BinaryIO", gzip.GzipFile(fileobj=stream))
            plain = inflated(opened, stream, self._refuse)
        try:
            head = _head(plain, len(MAGIC))
            if not head:
                raise FileCutShort.at(self._last, "the file is empty")
            if head != MAGIC and (MAGIC.startswith(head) or _GZIP.startswith(head)):
                raise FileCutShort.at(self._last, "the file ends within its first bytes")
            if head == MAGIC:
                container = self._container = AvroContainer(plain, self.name)
                self.fields = self._fields_of(container.schema)
                self._columns = frozenset(one.name for one in self.fields)
                return iter(container)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._translated(error) from error
        if head.lstrip()[:1] not in (b"{", b""):
            raise FileDamaged.at(
                self._last,
                "the file is neither Avro nor JSON lines, plain or with gzip",
                begins_with=head.hex(),
            )
        return json_lines(plain, self.name)

    def _refuse(self, message: str) -> None:
        raise FileDamaged.at(self._last, message)

    def _next(self) -> tuple[int, Any] | LargeRead | None:
        try:
            found = next(self._records, None)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._translated(error) from error
        if found is not None and not isinstance(found, LargeRead):
            self._last = Position(self.name, found[0])
        return found

    def _translated(self, error: Exception) -> DatastreamError:
        """Return the error of this project for one of gzip's."""
        if isinstance(error, EOFError):
            return FileCutShort.at(self._last, "the file's gzip compression ends too early")
        return FileDamaged.at(self._last, f"the file's gzip compression is damaged: {error}")

    def _fields_of(self, schema: Any) -> list[PayloadField]:
        """Return the fields of the payload; raises WrongSchema for one that no event has."""
        head = Position(self.name, 0)
        if not isinstance(schema, Mapping) or schema.get("type") != "record":
            raise WrongSchema.at(head, "the file's schema is not a record")
        types = {one["name"]: one["type"] for one in schema["fields"]}
        missing = [name for name in NEEDED_FIELDS if name not in types]
        if missing:
            raise WrongSchema.at(head, f"the file's schema has no field {', '.join(missing)}")
        for name in ("source_metadata", "payload"):
            if not isinstance(types[name], Mapping) or types[name].get("type") != "record":
                raise WrongSchema.at(head, f"the field {name} of the file's schema is not a record")
        return payload_fields(types["payload"], named_types(schema))


def _head(stream: BinaryIO, size: int) -> bytes:
    """Return the first bytes, and go back to the start."""
    found = stream.read(size)
    stream.seek(0)
    return found
