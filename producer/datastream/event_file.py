"""The events of one file in Avro or JSON lines, plain or gzip.

The format is recognised by the first bytes, because names of copied files are unreliable.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, BinaryIO, cast

from tidegate.producer.datastream.avro_container import MAGIC, AvroContainer
from tidegate.producer.datastream.errors import (
    DatastreamError,
    FileCutShort,
    FileDamaged,
    InvalidEvent,
    Position,
    WrongSchema,
)
from tidegate.producer.datastream.event import NEEDED_FIELDS, Event, parse_event
from tidegate.producer.datastream.file_limits import (
    DEPTH_MAX,
    EMPTY_MAX,
    ITEMS_MAX,
    LARGE_BYTES,
    LINE_BYTES_MAX,
    BeyondLimit,
    LargeRead,
    inflated,
    require_depth,
)
from tidegate.producer.datastream.unified_types import PayloadField, named_types, payload_fields

# Matches from any quote on, without backtracking, so the time is linear for every line.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def json_lines(stream: BinaryIO, file: str) -> Iterator[tuple[int, Any] | LargeRead]:
    """Yield each line's object with the line's number, from 1; empty lines are skipped.

    A long line is announced before the rest of it is read.  Numbers keep all their digits.  An
    object with half a surrogate pair, which cannot be encoded, is yielded as InvalidEvent.  Raises
    FileDamaged, and FileCutShort for an incomplete last line that is not JSON.
    """
    number = empty = 0
    while line := stream.readline(LARGE_BYTES + 1):
        number += 1
        position = Position(file, number)
        if len(line) > LARGE_BYTES and not line.endswith(b"\n"):
            yield LargeRead(LINE_BYTES_MAX)
            line += stream.readline(LINE_BYTES_MAX + 1 - len(line))
        if len(line) > LINE_BYTES_MAX:
            raise FileDamaged.at(position, f"a line has more than {LINE_BYTES_MAX} bytes")
        if not line.strip():
            empty += 1
            if empty > EMPTY_MAX:
                raise FileDamaged.at(position, f"more than {EMPTY_MAX} empty lines")
            continue
        empty = 0
        try:
            _require_few_items(line)
            record = json.loads(line, parse_float=Decimal, parse_constant=_refuse)
            if line.count(b"[") + line.count(b"{") > DEPTH_MAX:
                require_depth(record)
        except BeyondLimit as error:
            raise FileDamaged.at(position, f"a line cannot be read: {error}") from error
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                raise FileDamaged.at(position, f"a line is not JSON: {error}") from error
            raise FileCutShort.at(position, "the file ends in the middle of a line") from error
        if not isinstance(record, dict):
            raise FileDamaged.at(position, "a line is JSON, but not an object")
        if _SURROGATE.search(line) and not _is_text(record):
            record = InvalidEvent.at(position, "a text has half a surrogate pair: it has no UTF-8")
        yield number, record


def _require_few_items(line: bytes) -> None:
    """Raise BeyondLimit for more values than an event may have: each needs much memory.

    Characters within texts that look like beginnings of values do not count.
    """
    items = _beginnings(line, 0, len(line))
    if items <= ITEMS_MAX:
        return
    for number, text in enumerate(_TEXT.finditer(line)):
        items -= _beginnings(line, text.start(), text.end())
        if number > 2 * ITEMS_MAX:  # names and texts
            items = number
            break
    if items > ITEMS_MAX:
        raise BeyondLimit(f"it has more than {ITEMS_MAX} values")


def _beginnings(line: bytes, start: int, end: int) -> int:
    return sum(line.count(mark, start, end) for mark in (b",", b"[", b"{"))


def _is_text(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


_GZIP = b"\x1f\x8b"


class EventFile:
    """One file; iterating it once yields its events, with at most one block or line in memory.

    `fields` are its rows' fields in the file's schema; None for JSON. Raises the errors of
    `errors`, each with the file's name and a record.  `stream` must be able to seek; the caller
    closes it.
    """

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        self.fields: list[PayloadField] | None = None
        self._columns: frozenset[str] | None = None
        self._container: AvroContainer | None = None
        self._records = self._open(stream)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in the order of the file."""
        while (item := self._next()) is not None:
            if not isinstance(item, LargeRead):
                yield self._parsed(*item)

    @property
    def held_bytes(self) -> int:
        """Bytes of the file that are held between two events."""
        return 0 if self._container is None else self._container.held_bytes

    def each(self) -> Iterator[Event | DatastreamError | LargeRead]:
        """Yield each event, or its error; raise an error that affects the rest of the file.

        The announcement of a large read comes before the event, or before its error.
        """
        while (item := self._next()) is not None:
            if isinstance(item, LargeRead):
                yield item
                continue
            try:
                yield self._parsed(*item)
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
                self._columns = frozenset(field.name for field in self.fields)
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
            item = next(self._records, None)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._translated(error) from error
        if item is not None and not isinstance(item, LargeRead):
            self._last = Position(self.name, item[0])
        return item

    def _translated(self, error: Exception) -> DatastreamError:
        """Return Tidegate's error for one of gzip's."""
        if isinstance(error, EOFError):
            return FileCutShort.at(self._last, "the file's gzip compression ends too early")
        return FileDamaged.at(self._last, f"the file's gzip compression is damaged: {error}")

    def _fields_of(self, schema: Any) -> list[PayloadField]:
        """Return the fields of the payload; raises WrongSchema for a schema that no event has."""
        head = Position(self.name, 0)
        if not isinstance(schema, Mapping) or schema.get("type") != "record":
            raise WrongSchema.at(head, "the file's schema is not a record")
        types = {field["name"]: field["type"] for field in schema["fields"]}
        missing = [name for name in NEEDED_FIELDS if name not in types]
        if missing:
            raise WrongSchema.at(head, f"the file's schema has no field {', '.join(missing)}")
        for name in ("source_metadata", "payload"):
            if not isinstance(types[name], Mapping) or types[name].get("type") != "record":
                raise WrongSchema.at(head, f"the field {name} of the file's schema is not a record")
        return payload_fields(types["payload"], named_types(schema))


def _head(stream: BinaryIO, size: int) -> bytes:
    """Return the first bytes, and seek back to the start."""
    head = stream.read(size)
    stream.seek(0)
    return head
