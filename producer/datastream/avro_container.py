"""Records of an Avro container file, one block in memory at a time.

The frames of blocks are read here and not by fastavro, whose builds differ: without its compiled
part it takes a file that ends within the count of a block for a whole one, and its errors name no
record.  A file that is cut exactly between two blocks is a valid, shorter file of Avro, which
nothing in it shows.
"""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO

import fastavro

from tidegate.producer.datastream.errors import FileCutShort, FileDamaged, WrongSchema
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.unified_types import without_logical_types

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MAGIC", "AvroContainer"]

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_HEAD_BYTES_MAX = 16 << 20
_BLOCK_BYTES_MAX = 256 << 20
"""More than Datastream's largest files."""
_DAMAGE = (
    EOFError, IndexError, KeyError, LookupError, MemoryError, OverflowError, RecursionError,
    TypeError, ValueError, struct.error,
)  # fmt: skip
"""What fastavro raises on bytes that are not of the schema."""


class AvroContainer:
    """One file, from its first byte; `schema` is the writer's, and iterating yields the records.

    Values are what logical types are made of.
    Raises FileCutShort, FileDamaged and WrongSchema.
    """

    def __init__(self, stream: BinaryIO, file: str) -> None:
        self._stream = stream
        self._file = file
        self._record = 0
        metadata = self._header()
        self._codec = self._codec_of(metadata)
        try:
            self.schema: Any = json.loads(metadata["avro.schema"])
        except KeyError:
            raise self._damaged("the head has no avro.schema") from None
        except (ValueError, RecursionError) as error:
            raise self._damaged("the schema in the head is not JSON") from error
        try:
            self._decoded = fastavro.parse_schema(without_logical_types(self.schema))
        except (
            fastavro.schema.SchemaParseException, fastavro.schema.UnknownType, *_DAMAGE,
        ) as error:  # fmt: skip
            message = f"the schema in the head is not one of Avro: {error}"
            raise WrongSchema.at(self._position, message) from error

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield each record with its number, from 1."""
        while (first := self._stream.read(1)) != b"":
            count = self._long(first)
            size = self._long()
            # Every record has a byte at least, as no event is empty.
            if not 0 <= size <= _BLOCK_BYTES_MAX or count < 0:
                raise self._damaged(f"a block of {count} records and {size} bytes")
            block = self._decompressed(self._exactly(size))
            if count > len(block):
                raise self._damaged(f"a block of {count} records and {len(block)} bytes")
            if self._exactly(_SYNC_BYTES) != self._sync:
                raise self._damaged("a block does not end with the file's sync marker")
            yield from self._records(block, count)

    @property
    def _position(self) -> Position:
        return Position(self._file, self._record)

    def _records(self, block: bytes, count: int) -> Iterator[tuple[int, Any]]:
        data = BytesIO(block)
        for _ in range(count):
            self._record += 1
            try:
                found = fastavro.schemaless_reader(data, self._decoded, None)
            except _DAMAGE as error:
                kind = type(error).__name__
                raise self._damaged(f"a record is not of the file's schema: {kind}") from error
            yield self._record, found
        if data.read(1):
            raise self._damaged("a block holds more than its records")

    def _header(self) -> dict[str, bytes]:
        if self._exactly(len(MAGIC)) != MAGIC:
            raise self._damaged("the file does not begin as one of Avro")
        metadata: dict[str, bytes] = {}
        left = _HEAD_BYTES_MAX
        while (count := self._long()) != 0:
            if count < 0:
                self._long()  # the size of the entries, which nothing needs
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

    def _codec_of(self, metadata: dict[str, bytes]) -> Callable[[bytes], bytes]:
        name = metadata.get("avro.codec", b"null").decode(errors="replace")
        if name not in _CODECS:
            known = ", ".join(sorted(_CODECS))
            message = f"the file is compressed with {name[:20]!r}, which is not one of {known}"
            raise WrongSchema.at(self._position, message)
        return _CODECS[name]

    def _decompressed(self, data: bytes) -> bytes:
        try:
            return self._codec(data)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise self._damaged(f"a block cannot be decompressed: {error}") from error

    def _exactly(self, size: int) -> bytes:
        """Read so many bytes; a stream may return fewer at a time."""
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


def _inflated(data: bytes) -> bytes:
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    return _bounded(machine.decompress(data, _BLOCK_BYTES_MAX), is_whole=machine.eof)


def _from_bzip2(data: bytes) -> bytes:
    machine = bz2.BZ2Decompressor()
    return _bounded(machine.decompress(data, _BLOCK_BYTES_MAX), is_whole=machine.eof)


def _from_xz(data: bytes) -> bytes:
    machine = lzma.LZMADecompressor()
    return _bounded(machine.decompress(data, _BLOCK_BYTES_MAX), is_whole=machine.eof)


def _bounded(data: bytes, *, is_whole: bool) -> bytes:
    if not is_whole:
        raise ValueError("it is cut short, or larger than any of Datastream's")
    return data


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _inflated,
    "bzip2": _from_bzip2,
    "xz": _from_xz,
}
