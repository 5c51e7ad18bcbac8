"""A broker in memory: logs, transactions and their markers, producer epochs, compaction.

What matters is modelled as the broker does it, and `tests/integration/test_kafka_model.py` compares
both: a commit is decided at once, but each topic partition shows it only when its own marker is
written, in any order and at any later time; a `read_committed` reader stops at the first open
transaction of a topic partition; a producer's next transaction waits for the markers of its last;
offsets sent with a transaction become the group's with a marker too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from tests.simulation.group import Group, Metadata

__all__ = ["Broker", "Entry", "Fenced", "Handle", "Log", "Place", "Transaction"]

Place = tuple[str, int]
"""Topic and topic partition."""


class Fenced(Exception):
    """Another producer holds the transactional id, or the broker gave up on this one."""


class Outcome(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Transaction:
    """One transaction of one producer."""

    handle: Handle
    outcome: Outcome = Outcome.OPEN
    unmarked: list[Log] = field(default_factory=list)
    """Logs that it wrote to and that hold no marker yet."""
    offsets: dict[int, int] = field(default_factory=dict)
    owned_at_fence: frozenset[int] = frozenset()
    was_checked: bool = False
    is_fenced: bool = False
    """Whether offsets were sent already."""
    after_fence: int = 0
    """Records that came after them."""

    @property
    def is_settled(self) -> bool:
        return self.outcome is not Outcome.OPEN and not self.unmarked and not self.offsets


@dataclass(slots=True, eq=False)
class Entry:
    """A record or a marker; markers have neither key nor value."""

    offset: int
    key: bytes
    value: object
    transaction: Transaction | None

    @property
    def is_control(self) -> bool:
        return self.value is None


class Log:
    """One topic partition."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.entries: list[Entry] = []
        self.end = 0
        self.open: dict[Transaction, int] = {}

    @property
    def stable_end(self) -> int:
        """Where a `read_committed` reader stops: the first open transaction."""
        return min(self.open.values()) if self.open else self.end

    @property
    def uncommitted_end(self) -> int:
        """Where the log ends, open transactions included."""
        return self.end

    def append(self, key: bytes, value: object, transaction: Transaction | None) -> int:
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

    def read(self, begin: int, end: int | None = None) -> Iterator[Entry]:
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
        """Keep the last record of each key below an offset; return what went."""
        below = min(below, self.stable_end)
        newest: dict[bytes, int] = {}
        for entry in self.read(0, below):
            newest[entry.key] = entry.offset
        gone = [e for e in self.read(0, below) if newest[e.key] != e.offset]
        offsets = {entry.offset for entry in gone}
        aborted = {
            entry.offset
            for entry in self.entries
            if entry.offset < below
            and entry.transaction is not None
            and entry.transaction.outcome is Outcome.ABORTED
        }
        self.entries = [e for e in self.entries if e.offset not in offsets | aborted]
        return gone


def _offset(entry: Entry) -> int:
    return entry.offset


@dataclass(slots=True, eq=False)
class Handle:
    """What a client knows of its producer."""

    transactional_id: str
    epoch: int
    has_sent: bool = False
    """Whether the broker knows of the open transaction; if not, the client ends it by itself."""


class Broker:
    """See the module."""

    def __init__(self, topics: dict[str, int], group: Group) -> None:
        self.logs = {
            (topic, number): Log((topic, number))
            for topic, numbers in topics.items()
            for number in range(numbers)
        }
        self.group = group
        self.offsets: dict[int, int] = {}
        self._epochs: dict[str, int] = {}
        self._current: dict[str, Transaction] = {}

    # ------------------------------------------------------------ producers

    def init(self, transactional_id: str) -> Handle:
        """Take over a transactional id: what its former holder left open is settled first."""
        former = self._current.pop(transactional_id, None)
        if former is not None:
            if former.outcome is Outcome.OPEN:
                self._decide(former, commit=False)
            self._settle(former)
        epoch = self._epochs.get(transactional_id, 0) + 1
        self._epochs[transactional_id] = epoch
        return Handle(transactional_id, epoch)

    def produce(self, handle: Handle, place: Place, key: bytes, value: object) -> int:
        """Append within the producer's transaction, which begins with its first record."""
        transaction = self._transaction(handle)
        transaction.after_fence += transaction.is_fenced
        return self.logs[place].append(key, value, transaction)

    def send_offsets(
        self, handle: Handle, offsets: tuple[tuple[int, int], ...], metadata: Metadata
    ) -> None:
        """Check the member against the group, and keep the offsets.

        Without an offset the client asks nobody, so not even the producer is checked.
        """
        if not offsets:
            return
        transaction = self._transaction(handle)
        was_checked = self.group.check(metadata)
        transaction.offsets.update(offsets)
        transaction.was_checked, transaction.is_fenced = was_checked, True
        transaction.owned_at_fence = self.group.held_by(metadata)

    def end(self, handle: Handle, *, commit: bool) -> Transaction | None:
        """Decide the open transaction; markers follow.  An empty one needs no asking."""
        if not handle.has_sent:
            return None
        self._require(handle)
        handle.has_sent = False
        transaction = self._current[handle.transactional_id]
        self._decide(transaction, commit=commit)
        return transaction

    def time_out(self, transactional_id: str) -> bool:
        """Abort what has been open for too long and lock its producer out."""
        transaction = self._current.get(transactional_id)
        if transaction is None or transaction.outcome is not Outcome.OPEN:
            return False
        self._decide(transaction, commit=False)
        self._epochs[transactional_id] += 1
        return True

    def time_out_all_but(self, handles: list[Handle]) -> None:
        """Give up on every transaction that none of these producers has begun."""
        for name, one in list(self._current.items()):
            if all(one.handle is not handle for handle in handles):
                self.time_out(name)

    @property
    def open_transactions(self) -> list[str]:
        return [name for name, one in self._current.items() if one.outcome is Outcome.OPEN]

    # ------------------------------------------------------------ markers

    @property
    def unsettled(self) -> list[Transaction]:
        return [
            one
            for one in self._current.values()
            if one.outcome is not Outcome.OPEN and not one.is_settled
        ]

    def write_marker(self, transaction: Transaction, choice: int) -> None:
        """Write one of the markers that a decided transaction still lacks."""
        waiting = len(transaction.unmarked) + bool(transaction.offsets)
        choice %= waiting
        if choice < len(transaction.unmarked):
            transaction.unmarked[choice].mark(transaction)
        else:
            self._apply_offsets(transaction)

    def settle(self) -> None:
        """Write every marker that is missing."""
        for transaction in self.unsettled:
            self._settle(transaction)

    def offsets_are_stable(self, slot: int) -> bool:
        """Whether no transaction holds a new offset of a slot back."""
        return all(slot not in one.offsets for one in self._current.values())

    # ------------------------------------------------------------ inside

    def _require(self, handle: Handle) -> None:
        if self._epochs.get(handle.transactional_id) != handle.epoch:
            raise Fenced(handle.transactional_id)

    def _transaction(self, handle: Handle) -> Transaction:
        self._require(handle)
        handle.has_sent = True
        current = self._current.get(handle.transactional_id)
        if current is not None and current.outcome is Outcome.OPEN:
            return current
        if current is not None:
            self._settle(current)  # the client repeats its request until then
        fresh = self._current[handle.transactional_id] = Transaction(handle)
        return fresh

    def _decide(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
        if not commit:
            transaction.offsets.clear()

    def _settle(self, transaction: Transaction) -> None:
        for log in list(transaction.unmarked):
            log.mark(transaction)
        self._apply_offsets(transaction)

    def _apply_offsets(self, transaction: Transaction) -> None:
        self.offsets.update(transaction.offsets)
        transaction.offsets.clear()
