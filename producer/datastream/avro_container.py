"""Records of an Avro container file, one block in memory at a time.

This module reads the frames of blocks itself, because the builds of fastavro differ: without its
compiled part it accepts a file that ends within the count of a block, and its errors name no
record.  A file that is cut exactly between two blocks is a valid, shorter Avro file; nothing in it
shows the cut.

Every principal that may write to the bucket decides what its files hold (`file_limits`). fastavro
has no limits: it reads nothing for a null, so an array of nulls may have any number of items, and
it recurses for each type within a type.  So schemas are checked first, and types that contain
themselves are read by its Python part, in which a value that is nested too deeply is an error and
does not end the process.
"""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, TypeAlias

import fastavro
from fastavro import _read_py  # the reader that fastavro itself uses where it is not compiled

from tidegate.producer.datastream.errors import FileCutShort, FileDamaged, Position, WrongSchema
from tidegate.producer.datastream.file_limits import (
    BLOCK_BYTES_MAX,
    DEPTH_MAX,
    EMPTY_MAX,
    HEAD_BYTES_MAX,
    ITEMS_MAX,
    LARGE_BYTES,
    BeyondLimit,
    LargeRead,
    MeteredBytes,
    bounded_inflation,
    require_depth,
)
from tidegate.producer.datastream.unified_types import without_logical_types

_EMPTY_FIELDS_MAX = 1_000
_TYPES_WITHOUT_BYTES = ("null",)


@dataclass(frozen=True, slots=True)
class _Facts:
    """The parts of a type that need memory beyond the bytes of its values."""

    empty: int
    """Number of values without bytes in it, including itself."""
    depth: int


def contains_itself(schema: Any) -> bool:
    """Whether a type of a parsed schema contains itself, so that its values may have any depth.

    Raises ValueError for a schema with which few bytes become many values, and for one that is too
    deep.
    """
    types = _Types()
    types.facts(schema, 0)
    return types.is_recursive


class _Types:
    """The types of a schema; each named one is examined once."""

    def __init__(self) -> None:
        self.is_recursive = False
        self._named: dict[str, _Facts | None] = {}
        """None while the type is being examined: then a reference to it is inside it."""

    def facts(self, schema: Any, depth: int) -> _Facts:
        if depth > DEPTH_MAX:
            raise _too_deep()
        if isinstance(schema, list):
            branches = [
                self.facts(part, depth + 1) for part in schema if part not in _TYPES_WITHOUT_BYTES
            ]
            return _within(max((part.empty for part in branches), default=0), branches)
        if isinstance(schema, str):
            return self._of_name(schema, depth)
        return self._of_mapping(schema, depth)

    def _of_name(self, name: str, depth: int) -> _Facts:
        if name not in self._named:
            return _Facts(int(name in _TYPES_WITHOUT_BYTES), 0)
        facts = self._named[name]
        if facts is None:
            self.is_recursive = True
            return _Facts(0, 0)
        if depth + facts.depth > DEPTH_MAX:
            raise _too_deep()
        return facts

    def _of_mapping(self, schema: Mapping[str, Any], depth: int) -> _Facts:
        match schema.get("type"):
            case "record" | "error":
                name = str(schema.get("name"))
                self._named[name] = None
                fields = [self.facts(member["type"], depth + 1) for member in schema["fields"]]
                empty = sum(member.empty for member in fields) if fields else 1
                if empty > _EMPTY_FIELDS_MAX:
                    raise ValueError(
                        f"a record has more than {_EMPTY_FIELDS_MAX} fields without bytes"
                    )
                facts = self._named[name] = _within(empty, fields)
                return facts
            case "array" | "map" as kind:
                items = self.facts(schema["items" if kind == "array" else "values"], depth + 1)
                if items.empty:
                    raise ValueError(f"the items of a type {kind} have parts without bytes")
                return _within(0, [items])
            case "enum" | "fixed" as kind:
                facts = _Facts(int(kind == "fixed" and not schema.get("size")), 0)
                self._named[str(schema.get("name"))] = facts
                return facts
            case inner:
                facts = self.facts(inner, depth + 1)
                return _within(facts.empty, [facts])


def _within(empty: int, parts: list[_Facts]) -> _Facts:
    return _Facts(empty, 1 + max((part.depth for part in parts), default=0))


def _too_deep() -> ValueError:
    return ValueError(f"types are nested deeper than {DEPTH_MAX} levels")


_Codec: TypeAlias = "Callable[[bytes], Iterator[bytes | LargeRead]]"

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_XZ_BYTES_MAX = 72 << 20
"""The memory that decompression may take: the dictionary of the largest preset has 64 MiB."""
_DAMAGE = (
    EOFError, IndexError, KeyError, LookupError, MemoryError, OverflowError, RecursionError,
    TypeError, ValueError, struct.error,
)  # fmt: skip
"""Errors of fastavro on bytes that do not match the schema."""


class AvroContainer:
    """One file, from its first byte; `schema` is the writer's, and iteration yields the records.

    Values have the underlying types of logical types.  `held_bytes` are the bytes of the block that
    is being read.  Raises FileCutShort, FileDamaged and WrongSchema.
    """

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self._stream = stream
        self._file = file
        self._record = 0
        self.held_bytes = 0
        metadata = self._header()
        self._codec = self._codec_of(metadata)
        try:
            self.schema: Any = json.loads(metadata["avro.schema"])
            require_depth(self.schema)
        except KeyError:
            raise self._damaged("the head has no avro.schema") from None
        except (ValueError, RecursionError) as error:
            raise self._damaged("the schema in the head is not JSON") from error
        try:
            self._decoded = fastavro.parse_schema(without_logical_types(self.schema))
            is_recursive = contains_itself(self._decoded)
        except (
            fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, *_DAMAGE,
        ) as error:  # fmt: skip
            raise WrongSchema.at(
                self._position, f"the schema in the head is not one of Avro: {error}"
            ) from error
        reader = _read_py if is_recursive else fastavro
        self._read: Callable[[Any, Any, Any], Any] = reader.schemaless_reader

    def __iter__(self) -> Iterator[tuple[int, Any] | LargeRead]:
        """Yield each record with its number, from 1, and before a large read its announcement."""
        empty = 0
        while (first := self._stream.read(1)) != b"":
            count = self._long(first)
            size = self._long()
            # Every record has at least one byte, because no event is empty.
            if not 0 <= size <= BLOCK_BYTES_MAX or count < 0:
                raise self._damaged(f"a block of {count} records and {size} bytes")
            empty = 0 if count else empty + 1
            if empty > EMPTY_MAX:
                raise self._damaged(f"more than {EMPTY_MAX} blocks without a record")
            if size > LARGE_BYTES:
                yield LargeRead(size)
            parts = []
            for part in self._decompressed(self._exactly(size)):
                if isinstance(part, LargeRead):
                    yield part
                else:
                    parts.append(part)
            block = b"".join(parts)
            if count > len(block):
                raise self._damaged(f"a block of {count} records and {len(block)} bytes")
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise self._damaged("a block does not end with the file's sync marker")
            self.held_bytes = len(block)
            yield from self._records(block, count)
            self.held_bytes = 0

    @property
    def _position(self) -> Position:
        return Position(self._file, self._record)

    def _records(self, block: bytes, count: int) -> Iterator[tuple[int, Any]]:
        # Each value has at least one byte: a small block cannot have too many.
        data = MeteredBytes(block) if len(block) > ITEMS_MAX else BytesIO(block)
        for _ in range(count):
            self._record += 1
            if isinstance(data, MeteredBytes):
                data.restart()
            try:
                record = self._read(data, self._decoded, None)
            except _DAMAGE as error:
                cause = str(error) if isinstance(error, BeyondLimit) else type(error).__name__
                raise self._damaged(f"a record is not of the file's schema: {cause}") from error
            yield self._record, record
        if data.read(1):
            raise self._damaged("a block holds more than its records")

    def _header(self) -> dict[str, bytes]:
        if self._exactly(len(MAGIC)) != MAGIC:
            raise self._damaged("the file does not begin as one of Avro")
        metadata: dict[str, bytes] = {}
        left = HEAD_BYTES_MAX
        while (count := self._long()) != 0:
            if count < 0:
                self._long()  # the size of the entries, which is not needed
            for _ in range(abs(count)):
                parts = []
                for _ in range(2):
                    size = self._long()
                    if not 0 <= size <= left:
                        raise self._damaged("the head is larger than any of Datastream's")
                    left -= size + 1
                    parts.append(self._exactly(size))
                metadata[parts[0].decode(errors="replace")] = parts[1]
        self._sync = self._exactly(_SYNC_BYTES)
        return metadata

    def _codec_of(self, metadata: dict[str, bytes]) -> _Codec:
        name = metadata.get("avro.codec", b"null").decode(errors="replace")
        if name not in _CODECS:
            codecs = ", ".join(sorted(_CODECS))
            raise WrongSchema.at(
                self._position,
                f"the file is compressed with {name[:20]!r}, which is not one of {codecs}",
            )
        return _CODECS[name]

    def _decompressed(self, data: bytes) -> Iterator[bytes | LargeRead]:
        try:
            yield from self._codec(data)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise self._damaged(f"a block cannot be decompressed: {error}") from error

    def _exactly(self, size: int) -> bytes:
        """Read exactly `size` bytes; a stream may return fewer at a time."""
        parts = []
        while size:
            part = self._stream.read(min(size, 1 << 20))
            if not part:
                raise FileCutShort.at(self._position, "the file ends in the middle of a block")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _long(self, first: bytes = b"") -> int:
        """Read a number of up to 64 bits, in Avro's zig-zag notation."""
        value = shift = 0
        byte = first or self._exactly(1)
        while True:
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > 63:
                raise self._damaged("a number has more than 64 bits")
            byte = self._exactly(1)

    def _damaged(self, message: str) -> FileDamaged:
        return FileDamaged.at(self._position, message)


def _plain(data: bytes) -> Iterator[bytes | LargeRead]:
    yield data


def _inflated(data: bytes) -> Iterator[bytes | LargeRead]:
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    return bounded_inflation(
        machine.decompress(data, LARGE_BYTES),
        lambda most: machine.decompress(machine.unconsumed_tail, most),
        lambda: machine.eof,
        len(data),
    )


def _machined(
    machine: bz2.BZ2Decompressor | lzma.LZMADecompressor, data: bytes
) -> Iterator[bytes | LargeRead]:
    return bounded_inflation(
        machine.decompress(data, LARGE_BYTES),
        lambda most: machine.decompress(b"", most),
        lambda: machine.eof,
        len(data),
    )


_CODECS: dict[str, _Codec] = {
    "null": _plain,
    "deflate": _inflated,
    "bzip2": lambda data: _machined(bz2.BZ2Decompressor(), data),
    "xz": lambda data: _machined(lzma.LZMADecompressor(memlimit=_XZ_BYTES_MAX), data),
}
