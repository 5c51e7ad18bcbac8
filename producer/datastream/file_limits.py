"""Limits of a file, because every principal that may write to the bucket decides its contents.

A limit is checked before memory is allocated.  Together the limits bound the memory of one event:
its bytes, its values, the depth of their nesting, and the size of decompressed bytes.  A read of
more than `LARGE_BYTES` at once is announced (`LargeRead`), so that a reader can wait for room.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from typing_extensions import Buffer

LARGE_BYTES = 512 << 10
"""Larger reads are announced before they begin."""
HEAD_BYTES_MAX = 4 << 20
"""The head of an Avro file: a table of 10,000 columns needs half of it."""
BLOCK_BYTES_MAX = 128 << 20
"""A block of Avro, plain and compressed; an event is in one block."""
LINE_BYTES_MAX = 64 << 20
RATIO_MAX = 250
"""Greatest ratio of plain to compressed bytes: events differ at least by their uuids."""
_INFLATED_BYTES_MIN = 16 << 20
"""Plain bytes that are allowed with any ratio: one event may hold a long text of blanks."""
ITEMS_MAX = 250_000
"""Values of one event: columns, and the elements of arrays and documents."""
DEPTH_MAX = 128
"""Depth of values within values, and of types within types; MySQL's documents have at most 100."""
DIGITS_MAX = 150_000
"""Digits of a number: PostgreSQL's have at most 131,072 before the point and 16,383 after it."""
EMPTY_MAX = 10_000
"""Consecutive lines or blocks without a record."""
_BUFFER_BYTES = 64 << 10


class BeyondLimit(ValueError):  # noqa: N818 - a limit, as `ValueError` a value
    """A file exceeds a limit of this module; never leaves the readers of files."""


@dataclass(frozen=True, slots=True)
class LargeRead:
    """The bytes of the next read; none of them is held yet."""

    bytes: int


class MeteredBytes:
    """Bytes that a decoder reads value by value, up to `ITEMS_MAX` values after each `restart`.

    It replaces `io.BytesIO`; raises BeyondLimit for more.
    """

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)
        self._left = ITEMS_MAX

    def restart(self) -> None:
        """Begin the next event."""
        self._left = ITEMS_MAX

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        self._left -= 1
        if self._left < 0:
            raise BeyondLimit(f"it has more than {ITEMS_MAX} values")
        return self._data.read(size)


def require_depth(value: Any) -> None:
    """Raise BeyondLimit for lists and objects that are nested deeper than `DEPTH_MAX`."""
    if _depth(value) > DEPTH_MAX:
        raise BeyondLimit(f"it is nested deeper than {DEPTH_MAX} levels")


def _depth(value: Any) -> int:
    """Return the depth of nested lists and objects, up to one level more than allowed."""
    depth, level = 0, [value]
    while depth <= DEPTH_MAX:
        level = [part for nested in level for part in _parts(nested)]
        if not level:
            return depth
        depth += 1
    return depth


def _parts(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    parts = value.values() if isinstance(value, dict) else value
    return [part for part in parts if isinstance(part, dict | list)]


def bounded_inflation(
    first: bytes, more: Callable[[int], bytes], is_whole: Callable[[], bool], size: int
) -> Iterator[bytes | LargeRead]:
    """Yield the parts of decompressed bytes, including `first`.

    A read beyond `LARGE_BYTES` is announced.  `more` continues decompression, up to a number of
    bytes; `size` is the number of compressed bytes.  Raises ValueError for bytes that are cut
    short, and for too many.
    """
    yield first
    if not is_whole() and len(first) >= LARGE_BYTES:
        most = min(BLOCK_BYTES_MAX, max(RATIO_MAX * size, _INFLATED_BYTES_MIN))
        yield LargeRead(most)
        yield more(most - len(first))
        if not is_whole():
            raise BeyondLimit(f"it is cut short, or becomes more than {most} bytes of {size}")
    elif not is_whole():
        raise ValueError("it is cut short")


class _Inflated(io.RawIOBase):
    """A decompressing stream, up to `RATIO_MAX`."""

    def __init__(self, plain: BinaryIO, packed: BinaryIO, refuse: Callable[[str], None]) -> None:
        super().__init__()
        self._plain = plain
        self._packed = packed
        self._refuse = refuse
        self._bytes = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        plain = self._plain.read(len(view))
        self._bytes += len(plain)
        packed = self._packed.tell()
        if self._bytes > max(RATIO_MAX * packed, _INFLATED_BYTES_MIN):
            self._refuse(f"{packed} compressed bytes become more than {RATIO_MAX} times as many")
        view[: len(plain)] = plain
        return len(plain)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._bytes = 0
        return self._plain.seek(offset, whence)


def inflated(plain: BinaryIO, packed: BinaryIO, refuse: Callable[[str], None]) -> BinaryIO:
    """Return the stream `plain`, which decompresses `packed`, within `RATIO_MAX`.

    `refuse` raises the error for a file that exceeds it.
    """
    raw = _Inflated(plain, packed, refuse)
    return cast("BinaryIO", io.BufferedReader(raw, _BUFFER_BYTES))
