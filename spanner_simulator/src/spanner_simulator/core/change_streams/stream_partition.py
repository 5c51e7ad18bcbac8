"""One stream partition: its keys, its lifetime, its relatives and its records in commit order."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from spanner_simulator.core.change_streams.records import LoggedRecord
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.errors import invariant

_TIME = attrgetter("commit_timestamp_us")
_RECENT_KEYS_MAX = 512


class RecordLog:
    """The records of one stream partition; `first` is the index of the oldest one kept.

    An index counts from its first record ever, so it stays valid when older records are dropped.
    """

    __slots__ = ("_held", "first")

    def __init__(self) -> None:
        self.first = 0
        self._held: list[LoggedRecord] = []

    @property
    def end(self) -> int:
        """The index that the next record will get."""
        return self.first + len(self._held)

    def __len__(self) -> int:
        """Number of records kept."""
        return len(self._held)

    def __iter__(self) -> Iterator[LoggedRecord]:
        """The records kept, oldest first."""
        return iter(self._held)

    def __getitem__(self, index: int) -> LoggedRecord:
        """A record by its index; IndexError if it was dropped or does not exist yet."""
        if not self.first <= index < self.end:
            raise IndexError(index)
        return self._held[index - self.first]

    def append(self, record: LoggedRecord) -> None:
        """Add the next record in commit order."""
        self._held.append(record)

    @property
    def last_us(self) -> int | None:
        """The commit timestamp of the newest record; None if there is none."""
        return self._held[-1].commit_timestamp_us if self._held else None

    def index_at(self, timestamp_us: int) -> int:
        """The index of the first kept record at or after a time."""
        return self.first + bisect_left(self._held, timestamp_us, key=_TIME)

    def span(self, first: int, last: int) -> list[LoggedRecord]:
        """The records with indexes from `first` up to, not including, `last`; all must be kept."""
        invariant(self.first <= first and last <= self.end, "records are read that are not held")
        return self._held[first - self.first : last - self.first]

    def forget_before(self, timestamp_us: int) -> int:
        """Drop records older than a time; return their number."""
        count = bisect_left(self._held, timestamp_us, key=_TIME)
        if count:
            del self._held[:count]
            self.first += count
        return count


@dataclass(slots=True, eq=False)
class StreamPartition:
    """One stream partition over its lifetime; `end_us` and `children` are set when it ends.

    `ranges` are its keys in key order: exactly one range if immutable, otherwise any number.
    """

    token: str
    ranges: tuple[KeyRange, ...]
    start_us: int
    parents: tuple[str, ...] = ()
    is_mutable: bool = False
    end_us: int | None = None
    children: tuple[StreamPartition, ...] = ()
    records: RecordLog = field(default_factory=RecordLog)
    recent_keys: deque[bytes] = field(default_factory=lambda: deque(maxlen=_RECENT_KEYS_MAX))

    @property
    def is_live(self) -> bool:
        """Whether new records may still be added."""
        return self.end_us is None

    @property
    def low(self) -> bytes:
        """The first key that it may hold."""
        return self.ranges[0].low if self.ranges else b""

    @property
    def high(self) -> bytes | None:
        """The bound above all keys that it may hold; None: no bound."""
        return self.ranges[-1].high if self.ranges else b""

    def holds(self, key: bytes) -> bool:
        """Whether it holds a key, now or when it ended."""
        return any(keys.holds(key) for keys in self.ranges)

    def append(self, record: LoggedRecord) -> None:
        """Add the next record in commit order."""
        invariant(self.end_us is None, "a record for a stream partition that has ended")
        invariant(record.commit_timestamp_us >= self.start_us, "a record before the start")
        self.records.append(record)
