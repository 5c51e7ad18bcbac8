"""The parts of files that are read again when a query starts, in the order of their first reading.

Release times follow from the events before, so they come out as they did only in that order: a file
that was read in parts is read again in parts, with those of other files between them.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from tidegate.producer.core.file_position import parts_of


class PublishedParts:
    """What a position names and was not read again yet."""

    def __init__(self, entries: Mapping[str, str]) -> None:
        """Begin with the entries of files in a boundary, of which no listing was seen."""
        self._left = {name: parts_of(entry)[::-1] for name, entry in entries.items()}
        """The parts of each file that are left, the last one first."""
        self._found: list[tuple[int, str]] = []
        """A heap of (turn, name) of files that a listing has shown, with some that are over."""

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def found(self, name: str) -> None:
        """Note that a listing shows a file: its parts can be read."""
        if name in self._left:
            heappush(self._found, (self._left[name][-1][1], name))

    def first(self) -> str | None:
        """Return the file of the part that is next; None if none can be read."""
        while self._found and self._found[0][1] not in self._left:
            heappop(self._found)
        return self._found[0][1] if self._found else None

    def through(self, name: str) -> int | None:
        """Return the last record of a file's next part; None if the file has none left."""
        return self._left[name][-1][0] if name in self._left else None

    def seen(self, name: str) -> None:
        """Note that the part that is next, one of this file, was read."""
        self._left[name].pop()
        heappop(self._found)
        if self._left[name]:
            self.found(name)
        else:
            del self._left[name]

    def drop(self, name: str) -> None:
        """Note that nothing more of a file is to be read for now."""
        self._left.pop(name, None)
