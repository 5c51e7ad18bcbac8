"""The two times at which an event happened.

The events of a worker's core: what happened outside of it.
"""

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
    """Since an arbitrary moment."""
    wall_us: int
    """Since 1970."""


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
    """Slots were taken away without waiting; other workers may own them already."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SlotRecoveryStarted:
    """Reading of a slot started at its committed offset or, without one, at offset 0.

    Comes before every event of this incarnation's reading.
    """

    slot: int
    incarnation: int
    committed_offset: int | None
    """The offset of the group's last fence in this slot; None without one."""
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
    """The log of an own slot does not contain the next offset to read.

    The client reads nothing more of this slot by itself.
    """

    slot: int
    incarnation: int
    reason: str
    """The client's own text."""


SlotReading: TypeAlias = SlotRecoveryStarted | ProgressRead | SlotPositionAdvanced | SlotOutOfRange
"""The events of reading an own slot; void for a slot with another incarnation."""


@dataclass(frozen=True, slots=True)
class StreamStartFound:
    """The `StreamStarted` of the epoch was found in the root's slot."""

    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class StreamStartAbsent:
    """A search reached the end of the root's slot and has not found a `StreamStarted`."""

    search_id: int
    """The number in the `FindStreamStart` that began the search."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """A query returned records, in order; data change records are translated already."""

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
    """A query, or the translation of what it returned, failed."""

    token: str
    query_id: int
    error: TidegateError


@dataclass(frozen=True, slots=True)
class QueryPaused:
    """A query's reader waits for bytes, or for a schema, and may be silent meanwhile."""

    token: str
    query_id: int


@dataclass(frozen=True, slots=True)
class QueryResumed:
    """A query's reader has stopped waiting, or received bytes that complete no record yet."""

    token: str
    query_id: int


ReaderOutput: TypeAlias = RecordsRead | QueryPaused | QueryResumed | QueryEnded | QueryFailed
"""The output of a query's reader."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Every message produced so far in this transaction is in the log.

    `written` holds, per slot whose tokens wrote, the last offset in each topic partition;
    `snapshots` the first offset of each slot's snapshot.
    """

    written: dict[int, tuple[TopicOffset, ...]]
    snapshots: dict[int, int]


class DeliveryFault(Enum):
    """The kind of a refusal, which decides what follows."""

    TRANSIENT = "transient"
    """The same message may pass later."""
    TOO_LARGE = "too large"
    """It, or the batch that it was sent in, exceeds a limit."""
    DENIED = "denied"
    """The principal may not write to the topic."""
    INVALID = "invalid"
    """The broker rejects the record or the topic for another reason that lasts."""


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """The message that ended a transaction; of several with a lasting fault, the largest."""

    fault: DeliveryFault
    reason: str
    """Kafka's name of the error, such as `MSG_SIZE_TOO_LARGE`."""
    slot: int
    """The slot of the record's stream partition."""
    topic: str
    key: str
    size_bytes: int
    """As `messages.batch_bytes` counts."""
    commit_timestamp_us: int | None = None
    """None for a progress record."""
    limit_bytes: int | None = None
    """The topic's limit, as read last; None if it is not known."""


@dataclass(frozen=True, slots=True)
class TransactionCommitted:
    """The broker confirmed the commit."""


@dataclass(frozen=True, slots=True)
class TransactionAborted:
    """The open transaction was aborted, and nothing of it remains."""

    reason: str
    failure: DeliveryFailure | None = None
    """The message that caused it; None if no message did."""


@dataclass(frozen=True, slots=True)
class CommitUnanswered:
    """The broker did not answer a commit; the commit may be retried."""

    reason: str


@dataclass(frozen=True, slots=True)
class CommitOutcomeUnknown:
    """Whether the open transaction was committed cannot be found out from this producer."""

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
    """Whether another process took over the worker's name; assumed until it was looked up."""


@dataclass(frozen=True, slots=True)
class GroupDescribed:
    """The group's coordinator described the consumer group, a few seconds ago."""

    is_stable: bool
    """No rebalance is in progress."""
    is_member: bool
    """This process, and not another under its name, is a member."""
    assignments: Mapping[str, frozenset[int]]
    """Every member's name -> the slots that the last rebalance assigned to it."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic in the broker's description."""

    topic: str
    topic_id: str | None
    """None: there is no such topic."""
    topic_partitions: int


@dataclass(frozen=True, slots=True)
class TopicsObserved:
    """The broker described the stream's topics, a few seconds ago."""

    progress: TopicState
    data: tuple[TopicState, ...]


@dataclass(frozen=True, slots=True)
class TableFound:
    """The translation met a table that the worker did not know, and its topic exists.

    Comes before every record of the table.
    """

    topic: DataTopic
    """As it is now."""


@dataclass(frozen=True, slots=True)
class RootSlotRead:
    """Records for all workers were read in the root's slot, from its beginning.

    They are about later tables and operators' commands.
    """

    records: tuple[ProgressRecord, ...]
    """`TableAdded`, `StreamControl` and `WorkerDrain`, of any epoch, by offset."""
    is_at_end: bool
    """Whether the slot's end has been reached at least once."""
    begin: int = 0
    """The slot's offsets from here to before `end` were read; other records are left out."""
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
    """The entries of `AwaitSources` that are published now, each once."""
    has_stopped: bool = False
    """Whether a stream partition of the fleet is stopped."""


TopicEvent: TypeAlias = TopicsObserved | TableFound | RootSlotRead
"""The events that concern the stream's topics."""


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """Kafka refuses a right that reading the own slots needs; another attempt changes nothing."""

    resource: str
    """The resource of the missing right, such as `group bank-fleet`."""
    reason: str
    """The client's own text."""

    @property
    def error(self) -> ConfigError:
        """What the worker stops with."""
        message = f"Kafka denies this worker access to {self.resource}: {self.reason}"
        hint = "Add the ACLs that docs/reference/permissions.md lists"
        return ConfigError(message, hint=hint)


@dataclass(frozen=True, slots=True)
class ProgressReadLost:
    """A slot that is read in addition to the own ones does not contain the next offset.

    Nothing more is read of it: its earlier records would be counted a second time.
    """

    error: ProgressLost
    """What the worker stops with."""


@dataclass(frozen=True, slots=True)
class ReadInterrupted:
    """Reading the progress topic failed for now; the client goes on by itself."""

    resource: str
    reason: str
    """The client's own text."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Commit the records that were read, release all slots, stop."""

    leaves_group: bool = False
    """Whether the worker leaves its group, so that other workers get its slots at once."""


@dataclass(frozen=True, slots=True)
class RedriveBegan:
    """Parked changes are to be put back: all that are parked for these keys.

    Only for a worker that does nothing else (`core.sole_workers`), once it is ready.
    """

    keys: frozenset[int]
    """Hashes of `schemas.checksums.parked_key`; no key that stays parked has one of these."""


@dataclass(frozen=True, slots=True)
class RedriveRead:
    """The next changes to put back, each key's in the order of their order keys.

    Markers of keys that are done are `parked` changes of the form `messages.FORM_REDRIVEN`.
    """

    records: tuple[PublishableRecord, ...]


@dataclass(frozen=True, slots=True)
class RedriveEnded:
    """All changes and markers were passed on."""


@dataclass(frozen=True, slots=True)
class GapsAccepted:
    """The loss of changes that have expired is accepted, at most once for each stream partition.

    Only for a worker that does nothing else (`core.sole_workers`), once it owns all slots.
    """

    gaps: tuple[PartitionGap, ...]


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""

    has_read_inbox: bool = True
    """Whether all that readers had delivered was passed on before."""


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
