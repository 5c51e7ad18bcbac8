"""A Kafka broker in memory: topics, transactions with their markers, producer epochs, one group.

It behaves like a broker wherever Tidegate depends on it; the same contract suite runs against it
and against a real broker.  A commit is decided at once, but each topic partition shows it only when
its own marker is written; a `read_committed` reader stops at the first open transaction; the next
transaction of a producer waits for the markers of its last; offsets sent with a transaction become
the group's with a marker too.

Not for use by several threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tidegate.producer.core.events import TopicState
from tidegate.producer.memory.group import Group, MemberMetadata

Place: TypeAlias = tuple[str, int]
"""Topic and topic partition."""


class Outcome(Enum):
    """The broker's decision on a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class ProducerHandle:
    """A client's view of its producer."""

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
    """Logs that it wrote to and that have no marker of it yet."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Offsets of the group that its commit sets; empty once they are set."""
    owned_at_fence: frozenset[int] = frozenset()
    """Slots assigned to the member whose metadata came with the offsets."""
    was_checked: bool = False
    """Whether the group compared the member when offsets were sent."""
    is_fenced: bool = False
    """Whether offsets were sent."""
    after_fence: int = 0
    """Records that were produced after the offsets were sent."""

    @property
    def is_settled(self) -> bool:
        """Whether every marker is written."""
        return self.outcome is not Outcome.OPEN and not self.unmarked and not self.offsets


class Tombstone:
    """The value of a record that removes an earlier record of its key."""


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
        """The first offset after deletion by retention."""
        self.end = 0
        self.open: dict[Transaction, int] = {}
        """Transactions without a marker here, and the offset of their first record."""

    @property
    def stable_end(self) -> int:
        """The end for a `read_committed` reader: the first open transaction."""
        return min(self.open.values()) if self.open else self.end

    @property
    def uncommitted_end(self) -> int:
        """The end of the log, including open transactions."""
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
        """Yield the records for a `read_committed` reader from `begin` on, up to the stable end."""
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


MESSAGE_BYTES_MAX = 1_048_588
"""The brokers' limit, unless set otherwise: Kafka's default."""


class ProducerFenced(Exception):  # noqa: N818 - named as the broker's answer
    """Another producer took the transactional id, or the broker timed its transaction out."""


class MessageRefused(Exception):  # noqa: N818 - named as the broker's answer
    """A message exceeds its topic's limit; its transaction can only be aborted."""


class UnknownTopicPartition(Exception):  # noqa: N818 - named as the broker's answer
    """The topic does not exist, or has fewer topic partitions."""


class MemoryBroker:
    """A broker with the given topics (name -> number of topic partitions) and one consumer group.

    The group reads the progress topic, so it has one slot for each of its topic partitions.  With
    `settles_at_once`, markers are written when a transaction is decided; otherwise they wait for
    `write_marker` or `settle`, in any order, as in a busy cluster.
    """

    def __init__(
        self, topics: Mapping[str, int], *, group: Group, settles_at_once: bool = True
    ) -> None:
        self.logs: dict[Place, Log] = {}
        self._topic_ids: dict[str, str] = {}
        self._topics_created = 0
        for topic, numbers in topics.items():
            self.create_topic(topic, numbers)
        self.denied: set[str] = set()
        """Topics that no member may read."""
        self.group = group
        self.offsets: dict[int, int] = {}
        """The group's committed offsets, by slot."""
        self.message_bytes_max = MESSAGE_BYTES_MAX
        """The limit of topics that do not set their own."""
        self.topic_bytes_max: dict[str, int] = {}
        """Topic -> its own limit, which may exceed the brokers'."""
        self.claims: dict[str, str] = {}
        """Worker's name -> the client id of the last process that claimed it."""
        self._settles_at_once = settles_at_once
        self._epochs: dict[str, int] = {}
        self._current: dict[str, Transaction] = {}

    # ------------------------------------------------------------ topics

    def create_topic(self, topic: str, topic_partitions: int) -> None:
        """Create a topic, with an id that no earlier topic had."""
        self._topics_created += 1
        self._topic_ids[topic] = f"id-{self._topics_created}"
        for number in range(topic_partitions):
            self.logs[topic, number] = Log((topic, number))

    def add_topic_partitions(self, topic: str, topic_partitions: int) -> None:
        """Add topic partitions to a topic, up to this total number."""
        for number in range(self.topic_partitions(topic), topic_partitions):
            self.logs[topic, number] = Log((topic, number))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""
        del self._topic_ids[topic]
        for place in [place for place in self.logs if place[0] == topic]:
            del self.logs[place]

    def describe_topic(self, topic: str) -> TopicState:
        """Return a topic's present id and number of topic partitions."""
        return TopicState(topic, self._topic_ids.get(topic), self.topic_partitions(topic))

    def topic_partitions(self, topic: str) -> int:
        """Return how many topic partitions a topic has."""
        return sum(name == topic for name, _ in self.logs)

    def bytes_max(self, topic: str) -> int:
        """Return the largest message that a topic takes."""
        return self.topic_bytes_max.get(topic, self.message_bytes_max)

    def read(self, topic: str) -> list[Entry]:
        """Return the committed records of a topic, topic partition by topic partition."""
        return [
            entry for (name, _), log in self.logs.items() if name == topic for entry in log.read()
        ]

    # ------------------------------------------------------------ producers

    def init_producer(self, transactional_id: str) -> ProducerHandle:
        """Take over a transactional id; an open transaction of its former producer is aborted."""
        former = self._current.pop(transactional_id, None)
        if former is not None:
            if former.outcome is Outcome.OPEN:
                self._decide(former, commit=False)
            self._settle(former)
        epoch = self._epochs.get(transactional_id, 0) + 1
        self._epochs[transactional_id] = epoch
        return ProducerHandle(transactional_id, epoch)

    def produce(
        self,
        handle: ProducerHandle,
        place: Place,
        key: bytes,
        value: object,
        *,
        size_bytes: int = 0,
    ) -> int:
        """Append within the producer's transaction, which begins with its first record.

        Returns the offset; raises ProducerFenced, UnknownTopicPartition, and MessageRefused for a
        message that exceeds the topic's limit.
        """
        if place not in self.logs:
            raise UnknownTopicPartition(*place)
        transaction = self._transaction(handle)
        if size_bytes > self.bytes_max(place[0]):
            raise MessageRefused(place[0])
        transaction.after_fence += transaction.is_fenced
        return self.logs[place].append(key, value, transaction)

    def send_offsets(
        self,
        handle: ProducerHandle,
        offsets: Iterable[tuple[int, int]],
        metadata: MemberMetadata,
    ) -> None:
        """Check the member with the group, and keep the offsets for the commit.

        Without offsets the client sends no request, so not even the producer is checked.  Raises
        ProducerFenced and GroupRefusal.
        """
        sent = dict(offsets)
        if not sent:
            return
        transaction = self._transaction(handle)
        was_checked = self.group.check(metadata)
        transaction.offsets.update(sent)
        transaction.was_checked, transaction.is_fenced = was_checked, True
        transaction.owned_at_fence = self.group.held_by(metadata)

    def end(self, handle: ProducerHandle, *, commit: bool) -> Transaction | None:
        """Decide the open transaction; None if nothing was sent.  Raises ProducerFenced."""
        if not handle.has_sent:
            return None
        self._require(handle)
        handle.has_sent = False
        transaction = self._current[handle.transactional_id]
        self._decide(transaction, commit=commit)
        return transaction

    def time_out(self, transactional_id: str) -> bool:
        """Abort a transaction that was open for too long and fence its producer."""
        transaction = self._current.get(transactional_id)
        if transaction is None or transaction.outcome is not Outcome.OPEN:
            return False
        self._decide(transaction, commit=False)
        self._epochs[transactional_id] += 1
        return True

    def time_out_all_but(self, handles: Iterable[ProducerHandle]) -> None:
        """Time out every open transaction except those of these producers."""
        excepted = list(handles)
        for name, transaction in list(self._current.items()):
            if all(transaction.handle is not handle for handle in excepted):
                self.time_out(name)

    @property
    def open_transactions(self) -> list[str]:
        """The transactional ids with an open transaction."""
        return [
            name
            for name, transaction in self._current.items()
            if transaction.outcome is Outcome.OPEN
        ]

    # ------------------------------------------------------------ markers

    @property
    def unsettled(self) -> list[Transaction]:
        """Decided transactions that lack a marker."""
        return [
            transaction
            for transaction in self._current.values()
            if transaction.outcome is not Outcome.OPEN and not transaction.is_settled
        ]

    def write_marker(self, transaction: Transaction, choice: int) -> None:
        """Write one missing marker of a decided transaction; `choice` selects it, by modulo."""
        waiting = len(transaction.unmarked) + bool(transaction.offsets)
        choice %= waiting
        if choice < len(transaction.unmarked):
            transaction.unmarked[choice].mark(transaction)
        else:
            self._apply_offsets(transaction)

    def settle(self) -> None:
        """Write every missing marker."""
        for transaction in self.unsettled:
            self._settle(transaction)

    def offsets_are_stable(self, slot: int) -> bool:
        """Return whether no unsettled transaction would change a slot's committed offset."""
        return all(slot not in transaction.offsets for transaction in self._current.values())

    # ------------------------------------------------------------ inside

    def _require(self, handle: ProducerHandle) -> None:
        if self._epochs.get(handle.transactional_id) != handle.epoch:
            raise ProducerFenced(handle.transactional_id)

    def _transaction(self, handle: ProducerHandle) -> Transaction:
        self._require(handle)
        handle.has_sent = True
        current = self._current.get(handle.transactional_id)
        if current is not None and current.outcome is Outcome.OPEN:
            return current
        if current is not None:
            self._settle(current)  # the client repeats its request until then
        started = self._current[handle.transactional_id] = Transaction(handle)
        return started

    def _decide(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
        if not commit:
            transaction.offsets.clear()
        if self._settles_at_once:
            self._settle(transaction)

    def _settle(self, transaction: Transaction) -> None:
        for log in list(transaction.unmarked):
            log.mark(transaction)
        self._apply_offsets(transaction)

    def _apply_offsets(self, transaction: Transaction) -> None:
        self.offsets.update(transaction.offsets)
        transaction.offsets.clear()
