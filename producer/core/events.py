"""The events of a worker's core: what happened outside of it, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from tidegate.producer.errors import ProgressLost
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import HeartbeatRecord, LineageRecord
from tidegate.schemas.errors import ConfigError, TidegateError
from tidegate.schemas.progress import DataTopic, PartitionGap, ProgressRecord, TopicOffset


class Now(NamedTuple):
    """One moment on both clocks of a worker, in microseconds.

    Intervals, retries and time-outs compare `monotonic_us`, which never moves backwards.
    `wall_us` is written into records and may step in either direction.
    """

    monotonic_us: int
    """Microseconds since an arbitrary moment."""
    wall_us: int
    """Microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class SlotsAssigned:
    """The group assigned slots to this worker."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotsRevoked:
    """The group revokes slots and waits until they are released (`ReleaseSlots`)."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotsLost:
    """The group has taken slots away without waiting; other workers may own them already."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotRecoveryStarted:
    """Reading of a slot started at its committed offset or, if it has none, at offset 0.

    Precedes every other event of this incarnation's reading.
    """

    slot: int
    incarnation: int
    committed_offset: int | None
    """The offset of the group's last fence in this slot; None if it has none."""
    end_offset: int
    """The slot's end when reading started, open transactions included."""


@dataclass(frozen=True, slots=True)
class ProgressRead:
    """A committed record of an own slot was read by this incarnation."""

    slot: int
    incarnation: int
    offset: int
    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class SlotPositionAdvanced:
    """The reading position of an own slot advanced, possibly over control records only."""

    slot: int
    incarnation: int
    position: int
    """The next offset to read."""


@dataclass(frozen=True, slots=True)
class SlotOutOfRange:
    """The log of an own slot does not contain the next offset.

    The client reads no more of this slot by itself.
    """

    slot: int
    incarnation: int
    reason: str
    """The client's text."""


SlotReading: TypeAlias = SlotRecoveryStarted | ProgressRead | SlotPositionAdvanced | SlotOutOfRange
"""The events of reading an own slot; ignored for a slot with another incarnation."""


@dataclass(frozen=True, slots=True)
class StreamStartFound:
    """The `StreamStarted` of the epoch was found in the root's slot."""

    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class StreamStartAbsent:
    """A search reached the end of the root's slot without finding a `StreamStarted`."""

    search_id: int
    """The number in the `FindStreamStart` that started the search."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """A query returned records, in order; data change records are already translated."""

    token: str
    query_id: int
    items: list[PublishableRecord | HeartbeatRecord | LineageRecord]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class QueryEnded:
    """A query ended with OK."""

    token: str
    query_id: int


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """A query, or the translation of its output, failed."""

    token: str
    query_id: int
    error: TidegateError


@dataclass(frozen=True, slots=True)
class QueryPaused:
    """A query's reader waits for bytes or for a schema, and may be silent meanwhile."""

    token: str
    query_id: int


@dataclass(frozen=True, slots=True)
class QueryResumed:
    """A query's reader no longer waits, or has received bytes that complete no record yet."""

    token: str
    query_id: int


ReaderOutput: TypeAlias = RecordsRead | QueryPaused | QueryResumed | QueryEnded | QueryFailed
"""The output of a query's reader."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Every message produced so far in this transaction is in the log.

    `written` holds the last offset in each topic partition, per slot whose tokens wrote;
    `snapshots` the first offset of each slot's snapshot.
    """

    written: dict[int, tuple[TopicOffset, ...]]
    snapshots: dict[int, int]


class DeliveryFault(Enum):
    """The kind of a rejection, which decides the consequence."""

    TRANSIENT = "transient"
    """The same message may be accepted later."""
    TOO_LARGE = "too large"
    """The message, or its batch, exceeds a limit."""
    DENIED = "denied"
    """The principal may not write to the topic."""
    INVALID = "invalid"
    """The broker rejects the record or the topic for another permanent reason."""


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """The message that ended a transaction; of several with a permanent fault, the largest."""

    fault: DeliveryFault
    reason: str
    """Kafka's name of the error, such as `MSG_SIZE_TOO_LARGE`."""
    slot: int
    """The slot of the record's stream partition."""
    topic: str
    key: str
    size_bytes: int
    """Size as counted by `messages.batch_bytes`."""
    commit_timestamp_us: int | None = None
    """None for a progress record."""
    limit_bytes: int | None = None
    """The topic's limit, as read last; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    """The broker confirmed the commit."""


@dataclass(frozen=True, slots=True)
class TransactionAborted:
    """The open transaction was aborted; nothing of it remains."""

    reason: str
    failure: DeliveryFailure | None = None
    """The message that caused the abort; None if no message did."""


@dataclass(frozen=True, slots=True)
class CommitUnanswered:
    """The broker did not answer a commit; the commit may be retried."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitOutcomeUnknown:
    """This producer cannot find out whether the open transaction was committed."""

    reason: str
    failure: DeliveryFailure | None = None
    """The message that caused it; None if no message did."""


@dataclass(frozen=True, slots=True)
class ProducerFenced:
    """The broker rejects this worker's producer.

    Another process may have taken over the worker's name, or the broker ended a transaction by its
    time-out (KIP-588).
    """

    has_successor: bool = True
    """Whether another process has taken over the worker's name; assumed until it is looked up."""


@dataclass(frozen=True, slots=True)
class GroupDescribed:
    """The group's coordinator described the consumer group, a few seconds ago."""

    is_stable: bool
    """Whether no rebalance is in progress."""
    is_member: bool
    """Whether this process is a member, and not another one under its name."""
    assignments: Mapping[str, frozenset[int]]
    """Every member's name -> the slots that the last rebalance assigned to it."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic in the broker's description."""

    topic: str
    topic_id: str | None
    """The topic's id; None if the topic does not exist."""
    topic_partitions: int


@dataclass(frozen=True, slots=True)
class TopicsObserved:
    """The broker described the stream's topics, a few seconds ago."""

    progress: TopicState
    data: tuple[TopicState, ...]


@dataclass(frozen=True, slots=True)
class TableFound:
    """The translation met a table that was unknown to the worker; its topic exists.

    Precedes every record of the table.
    """

    topic: DataTopic
    """The topic's present description."""


@dataclass(frozen=True, slots=True)
class RootSlotRead:
    """Records for all workers were read in the root's slot, from its beginning.

    They announce later tables and operators' commands.
    """

    records: tuple[ProgressRecord, ...]
    """`TableAdded`, `StreamControl` and `WorkerDrain`, of any epoch, by offset."""
    is_at_end: bool
    """Whether the slot's end has been reached at least once."""
    begin: int = 0
    """First offset of the range up to `end` that was read; other records in it are left out."""
    end: int = 0


@dataclass(frozen=True, slots=True)
class FleetRead:
    """The progress of the whole fleet's slots, from the progress topic."""

    lowest_us: Mapping[int, int | None]
    """Slot -> the lowest published watermark of its stream partitions that can move, or None.

    Only slots whose value has changed.
    """
    is_current: bool
    """Whether each slot was just read to its end and has a heartbeat in effect."""
    published: tuple[tuple[str, int], ...] = ()
    """The entries of `AwaitSources` that are now published, each once."""
    has_stopped: bool = False
    """Whether a stream partition of the fleet is stopped."""


TopicEvent: TypeAlias = TopicsObserved | TableFound | RootSlotRead
"""The events that concern the stream's topics."""


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """Kafka denies a right that reading the own slots needs; a retry changes nothing."""

    resource: str
    """The resource of the missing right, such as `group bank-fleet`."""
    reason: str
    """The client's text."""

    @property
    def error(self) -> ConfigError:
        """The error with which the worker stops."""
        message = f"Kafka denies this worker access to {self.resource}: {self.reason}"
        hint = "Add the ACLs that docs/reference/permissions.md lists"
        return ConfigError(message, hint=hint)


@dataclass(frozen=True, slots=True)
class ProgressReadLost:
    """A slot that is read in addition to the own ones lacks the next offset.

    No more of it is read: its earlier records would be counted a second time.
    """

    error: ProgressLost
    """The error with which the worker stops."""


@dataclass(frozen=True, slots=True)
class ReadInterrupted:
    """Reading the progress topic failed temporarily; the client continues by itself."""

    resource: str
    reason: str
    """The client's text."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Commit the read records, release all slots, stop."""

    leaves_group: bool = False
    """Whether the worker leaves its group, so that other workers get its slots at once."""


@dataclass(frozen=True, slots=True)
class RedriveBegan:
    """Parked changes are to be put back: all parked changes of these keys.

    Only for a worker that does nothing else (`core.sole_workers`), once it is ready.
    """

    keys: frozenset[int]
    """Hashes by `schemas.checksums.parked_key`; no key that stays parked has one of these."""


@dataclass(frozen=True, slots=True)
class RedriveRead:
    """The next changes to put back, those of each key in the order of their order keys.

    Markers of completed keys are `parked` changes of the form `messages.FORM_REDRIVEN`.
    """

    records: tuple[PublishableRecord, ...]


@dataclass(frozen=True, slots=True)
class RedriveEnded:
    """All changes and markers were passed on."""


@dataclass(frozen=True, slots=True)
class GapsAccepted:
    """An operator accepts the loss of expired changes, at most once for each stream partition.

    Only for a worker that does nothing else (`core.sole_workers`), once it owns all slots.
    """

    gaps: tuple[PartitionGap, ...]


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""

    has_read_inbox: bool = True
    """Whether all earlier output of readers has been passed on."""


TransactionFailure: TypeAlias = TransactionAborted | CommitOutcomeUnknown | ProducerFenced
"""Outcomes that end a transaction uncommitted; its remaining effects are dropped."""

Event: TypeAlias = (
    SlotsAssigned
    | SlotsRevoked
    | SlotsLost
    | SlotRecoveryStarted
    | ProgressRead
    | SlotPositionAdvanced
    | SlotOutOfRange
    | StreamStartFound
    | StreamStartAbsent
    | RecordsRead
    | QueryEnded
    | QueryFailed
    | QueryPaused
    | QueryResumed
    | Delivered
    | TransactionCommitted
    | TransactionAborted
    | CommitUnanswered
    | CommitOutcomeUnknown
    | ProducerFenced
    | GroupDescribed
    | FleetRead
    | TopicEvent
    | AccessDenied
    | ProgressReadLost
    | ReadInterrupted
    | DrainRequested
    | RedriveBegan
    | RedriveRead
    | RedriveEnded
    | GapsAccepted
    | Ticked
)
