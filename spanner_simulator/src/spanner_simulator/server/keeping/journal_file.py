"""An append-only file of entries that survives the death of its process.

Each entry is a frame: length, checksum of the length, checksum of the entry, and a JSON value (by
the standard library, because entries have integers of more than 64 bits).  An entry is written to
the operating system before `append` returns, so that SIGKILL loses nothing; `sync` writes it to the
disk.  An incomplete frame at the end of the file was never acknowledged and is removed on opening;
any other wrong checksum is damage, and an error.
"""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MAGIC = b"spanner-simulator journal 1\n"
_LENGTH = struct.Struct(">I")
_HEADER = struct.Struct(">III")


class DamagedJournalError(Exception):
    """The file is not a journal, or its content was changed after it was written."""


class JournalFile:
    """The journal of one database; entries consist of JSON values.

    `cut_bytes` is the size of an incomplete last entry that was removed at opening.
    """

    def __init__(self, path: Path) -> None:
        """Open, or create. Raises `DamagedJournalError` and OSError."""
        self.path = path
        self.cut_bytes = 0
        self._is_dirty = False
        self._is_open = True
        self._failure: OSError | None = None
        # Another thread syncs; the file must not be closed while it does.
        self._closing = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._end = self._check()
        except DamagedJournalError:
            os.close(self._file)
            raise

    def _check(self) -> int:
        """The end of the last complete frame; removes everything after it."""
        size = os.fstat(self._file).st_size
        if size < len(_MAGIC):
            if not _MAGIC.startswith(os.pread(self._file, size, 0)):
                raise DamagedJournalError(f"{self.path} is not a journal of a simulator")
            os.ftruncate(self._file, 0)
            os.write(self._file, _MAGIC)
            return len(_MAGIC)
        if os.pread(self._file, len(_MAGIC), 0) != _MAGIC:
            raise DamagedJournalError(f"{self.path} is not a journal of a simulator")
        end = len(_MAGIC)
        for frame_end, _ in self._frames(size):
            end = frame_end
        self.cut_bytes = size - end
        if self.cut_bytes:
            os.ftruncate(self._file, end)
        return end

    def _frames(self, size: int) -> Iterator[tuple[int, bytes]]:
        offset = len(_MAGIC)
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(offset)
            while offset < size:
                header = file.read(_HEADER.size)
                if len(header) < _HEADER.size:
                    return
                length, length_sum, entry_sum = _HEADER.unpack(header)
                if length_sum != zlib.crc32(header[: _LENGTH.size]):
                    # A file system that has lost its end may leave zeros there.
                    if not header.strip(b"\0") and not file.read().strip(b"\0"):
                        return
                    raise DamagedJournalError(f"{self.path} is damaged at byte {offset}")
                entry = file.read(length)
                offset_after = offset + _HEADER.size + length
                if len(entry) < length:
                    return
                if entry_sum != zlib.crc32(entry):
                    if offset_after == size:
                        return
                    raise DamagedJournalError(f"{self.path} is damaged at byte {offset}")
                yield offset_after, entry
                offset = offset_after

    def entries(self) -> Iterator[Any]:
        """All entries, oldest first. Raises `DamagedJournalError`."""
        for _, entry in self._frames(self._end):
            try:
                yield json.loads(entry)
            except ValueError as error:
                raise DamagedJournalError(
                    f"{self.path} has an entry of no sense: {error}"
                ) from error

    def append(self, entry: Any) -> None:
        """Add an entry; when this returns, it survives the process.  OSError: it does not.

        No entry is accepted any more once the disk has failed, even for earlier entries.
        """
        if self._failure is not None:
            raise self._failure
        plain = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()
        length = _LENGTH.pack(len(plain))
        header = _HEADER.pack(len(plain), zlib.crc32(length), zlib.crc32(plain))
        frame = memoryview(header + plain)
        while frame:
            # The system may write only part of a large frame.
            frame = frame[os.write(self._file, frame) :]
        self._end += _HEADER.size + len(plain)
        self._is_dirty = True

    def sync(self) -> None:
        """Sync everything to the disk; from any thread.  OSError: some of it may be missing."""
        with self._closing:
            if self._is_dirty and self._is_open:
                self._is_dirty = False
                try:
                    os.fsync(self._file)
                except OSError as error:
                    self._failure = error
                    raise

    def close(self) -> None:
        """Sync and close the file."""
        self.sync()
        with self._closing:
            self._is_open = False
            os.close(self._file)
