"""One topic partition in memory: records, transaction markers, compaction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

Place: TypeAlias = tuple[str, int]
"""Topic and topic partition."""


class Outcome(Enum):
    """What the broker decided about a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class ProducerHandle:
    """What a client knows of its producer."""

    transactional_id: str
    epoch: int
    has_sent: bool = False
    """Whether the broker knows of the open transaction; if not, the client ends it alone."""


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    handle: ProducerHandle
    outcome: Outcome = Outcome.OPEN
    unmarked: list[Log] = field(default_factory=list)
    """Logs that it wrote to and that hold no marker yet."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Offsets of the group that its commit sets; empty once they are set."""
    owned_at_fence: frozenset[int] = frozenset()
    """Slots that the group had assigned to the member whose metadata came with the offsets."""
    was_checked: bool = False
    """Whether the group compared anything when offsets were sent."""
    is_fenced: bool = False
    """Whether offsets were sent."""
    after_fence: int = 0
    """Records that were produced after the offsets were sent."""

    @property
    def is_settled(self) -> bool:
        """Whether every marker is written."""
        return self.outcome is not Outcome.OPEN and not self.unmarked and not self.offsets


class Tombstone:
    """The value of a record that removes an earlier one of its key."""


TOMBSTONE = Tombstone()


@dataclass(slots=True, eq=False)
class Entry:
    """A record, or a transaction marker, which has no value."""

    offset: int
    key: bytes
    value: object
    transaction: Transaction | None

    @property
    def is_control(self) -> bool:
        """Whether this is a marker."""
        return self.value is None


class Log:
    """One topic partition; values are kept as objects and shared with the writer."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.entries: list[Entry] = []
        self.begin = 0
        """The first offset that retention kept."""
        self.end = 0
        self.open: dict[Transaction, int] = {}
        """Transactions without a marker here, and the offset of their first record."""

    @property
    def stable_end(self) -> int:
        """Where a `read_committed` reader stops: the first open transaction."""
        return min(self.open.values()) if self.open else self.end

    @property
    def uncommitted_end(self) -> int:
        """Where the log ends, open transactions included."""
        return self.end

    def append(self, key: bytes, value: object, transaction: Transaction | None) -> int:
        """Append a record; return its offset."""
        offset = self.end
        self.entries.append(Entry(offset, key, value, transaction))
        self.end += 1
        if transaction is not None and transaction not in self.open:
            self.open[transaction] = offset
            transaction.unmarked.append(self)
        return offset

    def mark(self, transaction: Transaction) -> None:
        """Write the transaction's marker."""
        self.entries.append(Entry(self.end, b"", None, None))
        self.end += 1
        del self.open[transaction]
        transaction.unmarked.remove(self)

    def read(self, begin: int = 0, end: int | None = None) -> Iterator[Entry]:
        """Yield what a `read_committed` reader gets from `begin` on, up to the stable end."""
        end = self.stable_end if end is None else min(end, self.stable_end)
        entries = self.entries
        for index in range(bisect_left(entries, begin, key=_offset), len(entries)):
            entry = entries[index]
            if entry.offset >= end:
                return
            if entry.is_control:
                continue
            if entry.transaction is None or entry.transaction.outcome is Outcome.COMMITTED:
                yield entry

    def compact(self, below: int) -> list[Entry]:
        """Keep the last record of each key below an offset; return the records removed."""
        below = min(below, self.stable_end)
        newest: dict[bytes, int] = {}
        for entry in self.read(0, below):
            newest[entry.key] = entry.offset
        removed = [e for e in self.read(0, below) if newest[e.key] != e.offset]
        offsets = {entry.offset for entry in removed}
        aborted = {
            entry.offset
            for entry in self.entries
            if entry.offset < below
            and entry.transaction is not None
            and entry.transaction.outcome is Outcome.ABORTED
        }
        self.entries = [e for e in self.entries if e.offset not in offsets | aborted]
        return removed

    def expire(self, below: int) -> None:
        """Delete everything below an offset, as retention does; open transactions are kept."""
        self.begin = max(self.begin, min(below, self.stable_end))
        self.entries = [e for e in self.entries if e.offset >= self.begin]


def _offset(entry: Entry) -> int:
    return entry.offset
