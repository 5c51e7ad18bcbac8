"""Where one file ends and the next begins, for all tables of a release.

Ends depend on the release's changes, their order and their sizes in Kafka, and on limits that are
recorded before the first file: a repeated release has the same files, whatever was written of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

_OPEN_MAX = 4
"""So many times the largest file is in memory at most, over all tables."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """A file ends with the change that reaches one of the two.

    Bytes are those of the values in Kafka, which neither the format nor the program's version
    changes.
    """

    rows_max: int
    bytes_max: int


@dataclass(slots=True)
class EventsFile:
    """The events of one table that become a file; `number` counts those of a table, from 0."""

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
            largest = max(sorted(self._open), key=lambda one: self._open[one].value_bytes)
            yield self._end(largest)

    def rest(self) -> Iterator[EventsFile]:
        """Yield the files that are left at the end of the release."""
        for topic in sorted(self._open):
            yield self._end(topic)

    def _end(self, topic: str) -> EventsFile:
        file = self._open.pop(topic)
        self._bytes -= file.value_bytes
        return file
