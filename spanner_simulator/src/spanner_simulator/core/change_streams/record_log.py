"""The records of one stream partition in commit order; the oldest may be forgotten.

An index counts from the stream partition's first record ever, so it stays valid when older ones
go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter

from spanner_simulator.core.change_streams.records import LoggedRecord
from spanner_simulator.errors import invariant

_TIME = attrgetter("commit_timestamp_us")


class RecordLog:
    """The records of one stream partition; `first` is the index of the oldest one held."""

    __slots__ = ("_held", "first")

    def __init__(self) -> None:
        self.first = 0
        self._held: list[LoggedRecord] = []

    @property
    def end(self) -> int:
        """The index that the next record will get."""
        return self.first + len(self._held)

    def __len__(self) -> int:
        """How many records are held."""
        return len(self._held)

    def __iter__(self) -> Iterator[LoggedRecord]:
        """The records that are held, oldest first."""
        return iter(self._held)

    def __getitem__(self, index: int) -> LoggedRecord:
        """A record by its index; IndexError when it is forgotten or does not exist yet."""
        if not self.first <= index < self.end:
            raise IndexError(index)
        return self._held[index - self.first]

    def append(self, record: LoggedRecord) -> None:
        """Add the next record in commit order."""
        self._held.append(record)

    @property
    def last_us(self) -> int | None:
        """The commit timestamp of the newest record; None when none is held."""
        return self._held[-1].commit_timestamp_us if self._held else None

    def index_at(self, timestamp_us: int) -> int:
        """The index of the first held record at or after a time."""
        return self.first + bisect_left(self._held, timestamp_us, key=_TIME)

    def span(self, first: int, last: int) -> list[LoggedRecord]:
        """The records with indexes from `first` up to, not including, `last`; all must be held."""
        invariant(self.first <= first and last <= self.end, "records are read that are not held")
        return self._held[first - self.first : last - self.first]

    def forget_before(self, timestamp_us: int) -> int:
        """Forget what is older than a time; how many records that were."""
        count = bisect_left(self._held, timestamp_us, key=_TIME)
        if count:
            del self._held[:count]
            self.first += count
        return count
