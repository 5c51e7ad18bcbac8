"""Copies of events, recognised by their uuid within the files that a position names.

Datastream delivers an event at least once, copies within minutes.  The uuids of each file are kept
until the file leaves the position, and read again with it after a restart.
"""

from __future__ import annotations

from tidegate.schemas.checksums import xxhash_64


class SeenUuids:
    """Hashes of the uuids of files, at most so many: those of the oldest file are forgotten first.

    64 bits of a hash stand for a uuid: in a million of them, one event in about 10^13 is taken for
    a copy wrongly.
    """

    def __init__(self, uuids_max: int) -> None:
        self._uuids_max = uuids_max
        self._all: set[int] = set()
        self._of_file: dict[str, list[int]] = {}
        self.forgotten = 0
        """Uuids that were forgotten although their file is still open."""

    def add(self, file: str, uuid: str) -> bool:
        """Note an event of a file; return whether it is the first one with its uuid."""
        hashed = xxhash_64(uuid.encode(errors="surrogateescape"))
        if hashed in self._all:
            return False
        self._all.add(hashed)
        self._of_file.setdefault(file, []).append(hashed)
        if len(self._all) > self._uuids_max:
            self.forgotten += self._forget(min(self._of_file))
        return True

    def close(self, files: tuple[str, ...]) -> None:
        """Forget the uuids of files."""
        for file in files:
            self._forget(file)

    def _forget(self, file: str) -> int:
        hashes = self._of_file.pop(file, [])
        self._all.difference_update(hashes)
        return len(hashes)
