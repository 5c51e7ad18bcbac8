"""What happened, as the worker's core is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidegate.producer.messages import PublishableRecord
    from tidegate.producer.spanner_records import ChildPartitionsRecord, HeartbeatRecord
    from tidegate.schemas.errors import TidegateError
    from tidegate.schemas.progress import ProgressRecord, TopicOffset

__all__ = [
    "CommitOutcomeUnknown",
    "CommitUnanswered",
    "Delivered",
    "DrainRequested",
    "Event",
    "ProducerFenced",
    "ProgressRead",
    "QueryEnded",
    "QueryFailed",
    "ReaderOutput",
    "RecordsRead",
    "SlotPassed",
    "SlotRecoveryBegun",
    "SlotsAssigned",
    "SlotsLost",
    "SlotsRevoked",
    "StreamStartFound",
    "Ticked",
    "TransactionAborted",
    "TransactionCommitted",
]


@dataclass(frozen=True, slots=True)
class SlotsAssigned:
    """The group gave slots to this worker."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotsRevoked:
    """The group takes slots back and waits until they are let go."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotsLost:
    """Slots are gone already; others may own them."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotRecoveryBegun:
    """A slot is being read again, from its fence's offset or, without one, from its beginning.

    Told before anything that is read from there.
    """

    slot: int
    incarnation: int
    from_beginning: bool
    end_offset: int
    """The slot's end with uncommitted transactions included, when reading began."""


@dataclass(frozen=True, slots=True)
class ProgressRead:
    """A committed record of an own slot was read, from the position of this incarnation on."""

    slot: int
    incarnation: int
    offset: int
    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class SlotPassed:
    """The reading position of an own slot moved, over control records too."""

    slot: int
    incarnation: int
    position: int
    """The next offset to be read."""


@dataclass(frozen=True, slots=True)
class StreamStartFound:
    """The epoch's `StreamStarted` was found in the root's slot."""

    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """A query returned records, translated and in order."""

    token: str
    query_id: int
    items: list[PublishableRecord | HeartbeatRecord | ChildPartitionsRecord]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query ended with OK."""

    token: str
    query_id: int


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """A query, or the translation of what it returned, failed."""

    token: str
    query_id: int
    error: TidegateError


ReaderOutput: TypeAlias = RecordsRead | QueryEnded | QueryFailed


@dataclass(frozen=True, slots=True)
class Delivered:
    """Every message produced since the last `Delivered` of this transaction is in the log.

    `written` holds, per slot whose tokens wrote, the last offset in each topic partition;
    `snapshots` the first offset of each slot's snapshot.
    """

    written: dict[int, tuple[TopicOffset, ...]]
    snapshots: dict[int, int]


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    """The broker confirmed the commit."""


@dataclass(frozen=True, slots=True)
class TransactionAborted:
    """The transaction, open until now, certainly left nothing behind."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitUnanswered:
    """A commit was asked for, no answer came, and it may be asked for again."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitOutcomeUnknown:
    """A commit was asked for, and whether it took place cannot be found out by asking."""

    reason: str


@dataclass(frozen=True, slots=True)
class ProducerFenced:
    """The broker has locked this worker's producer out.

    A broker that ends a transaction by its time-out does that as well (KIP-588); only the group
    can tell who goes by the name now.
    """

    has_successor: bool = True
    """Whether another process goes by this worker's name; assumed until the group was asked."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Finish what was read, let go of everything, stop."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""


Event: TypeAlias = (
    SlotsAssigned
    | SlotsRevoked
    | SlotsLost
    | SlotRecoveryBegun
    | ProgressRead
    | SlotPassed
    | StreamStartFound
    | RecordsRead
    | QueryEnded
    | QueryFailed
    | Delivered
    | TransactionCommitted
    | TransactionAborted
    | CommitUnanswered
    | CommitOutcomeUnknown
    | ProducerFenced
    | DrainRequested
    | Ticked
)
