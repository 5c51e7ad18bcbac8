"""The records of the progress topic: lineage, heartbeats and completion markers.

Each is in an envelope with the stream's epoch and the worker that wrote it.  A record that is too
large for one Kafka message is written as a set of chunks; a set counts only when it is complete and
of one revision.  `docs/protocol.md` defines when each is written and when a reader may rely on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

PROGRESS_VERSION = 4
"""The newest version of the progress records; every earlier one can be read."""

STARTS = ":start"
"""Key in a boundary, in place of a transaction id: the stream partitions that a token named."""

MOVE_OUTS = ":move-out"
"""Key in a boundary, in place of a transaction id: the keys that a token moved to others."""


class ChecksumKind(StrEnum):
    """How the order keys of a stream partition's changes are summed; fixed for its lifetime."""

    BLAKE2B_64 = "BLAKE2B_64"
    """For stream partitions that began under version 1."""
    XXHASH_64 = "XXHASH_64"
    """The same hash as Spark's `xxhash64`."""


class TimestampForm(StrEnum):
    """How the data topics of a stream carry columns of type TIMESTAMP; fixed for an epoch."""

    MICROS = "MICROS"
    """As `timestamp-micros`: a value with nanoseconds cannot be represented."""
    STRING = "STRING"
    """As RFC 3339 text, with every digit."""


class ControlState(StrEnum):
    """The state of a stream that an operator has requested."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    """No worker reads anything until the next `StreamControl`."""


@dataclass(frozen=True, slots=True)
class ChildPartition:
    """A stream partition as the child records of its parents describe it."""

    token: str
    parents: tuple[str, ...]
    """Every parent's token; empty for a child of the initial query."""
    start_ns: int
    """Exact start, nanoseconds since 1970: where its first query begins."""


@dataclass(frozen=True, slots=True)
class DataTopic:
    """The properties of a data topic that do not change during an epoch."""

    topic: str
    topic_id: str
    topic_partitions: int
    key_schema_id: int


PRODUCER_FILTER = "producer."
"""Prefix of an entry of `StreamStarted.filters` that is a fixed setting of the producer."""


@dataclass(frozen=True, slots=True)
class StreamStarted:
    """Opens an epoch; written once, in the root's slot."""

    stream: str
    """`projects/…/databases/…` of the database, a slash and `changeStreams/<name>`."""
    dialect: str
    start_ns: int
    end_ns: int | None
    group: str
    slots: int
    progress_topic_id: str
    topics: tuple[DataTopic, ...]
    children: tuple[ChildPartition, ...]
    filters: tuple[str, ...] = ()
    chunk: int = 0
    chunks: int = 1
    timestamps: TimestampForm = TimestampForm.MICROS
    """The form in all data topics; records of version 1 hold `MICROS` only."""


@dataclass(frozen=True, slots=True)
class PartitionAnnounced:
    """A child, announced by one of its parents.

    Written into the child's slot by the transaction that finishes the parent.
    """

    child: ChildPartition
    parent: str
    """The parent that announces it; `topics.ROOT_TOKEN` for the initial query."""
    parked_keys: tuple[int, ...] = ()
    """The parent's parked keys at its finish, sorted: later changes of these keys are parked."""


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What one stream partition has published to one data topic."""

    topic: str
    records: int
    """Data change records with at least one change for this topic."""
    mods: int
    """Kafka records."""
    value_bytes: int
    """Bytes of Kafka values, without headers and keys."""
    checksum: int
    """Sum modulo 2^64 of the mods' order keys, by the stream partition's `ChecksumKind`."""


@dataclass(frozen=True, slots=True)
class PartitionFinished:
    """The partition-completion marker: this stream partition writes no more records."""

    token: str
    parents: tuple[str, ...]
    start_ns: int
    end_ns: int
    """The children's start, or the stream's bounded end."""
    children: tuple[ChildPartition, ...]
    totals: tuple[TopicTotals, ...]
    filtered: int = 0
    """Changes that the producer left out."""
    parked: int = 0
    """As in `TokenSnapshot`."""
    chunk: int = 0
    chunks: int = 1
    checksums: ChecksumKind = ChecksumKind.BLAKE2B_64


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """The last offset that a slot's tokens have written in one topic partition."""

    topic: str
    topic_partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class TokenSnapshot:
    """One stream partition that was announced and has not finished."""

    token: str
    start_ns: int
    parents: tuple[str, ...]
    parents_heard: tuple[str, ...]
    """The parents whose announcement the slot contains; it may start when all are announced."""
    watermark_us: int
    """Everything with a commit timestamp <= this has been published."""
    boundary: tuple[tuple[str, str], ...] = ()
    """The highest published record sequence of each transaction after the watermark, by its id."""
    totals: tuple[TopicTotals, ...] = ()
    filtered: int = 0
    parked: int = 0
    """Changes of this stream partition in the dead-letter topic, including redriven changes."""
    number: int = -1
    """Names the token in `SlotChanges` of its slot; -1 in records of version 1."""
    checksums: ChecksumKind = ChecksumKind.BLAKE2B_64
    stopped: str | None = None
    """Why it is no longer read; None while it is read."""
    parked_keys: tuple[int, ...] = ()
    """Keys whose later changes are parked, including its parents'; sorted (`parked_key`)."""


@dataclass(frozen=True, slots=True)
class SlotProgress:
    """The heartbeat of a slot: the authoritative snapshot of its tokens."""

    slot: int
    revision: int
    """Grows by one with every snapshot of the slot, across its owners."""
    minute: int
    """Whole minutes since 1970 at the time of writing, by the writer's clock.

    Part of the key in version 1, in which every heartbeat is a `SlotProgress`.
    """
    includes: int
    """Offset in this slot up to which announcements are contained; -1 if there are none."""
    vector: tuple[TopicOffset, ...]
    """Last offsets written by this slot's tokens, in data topics and slots; in chunk 0 only."""
    tokens: tuple[TokenSnapshot, ...]
    chunk: int = 0
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class SlowestToken:
    """The open stream partition of a slot with the lowest watermark."""

    token: str
    watermark_us: int


@dataclass(frozen=True, slots=True)
class TokenMove:
    """The progress of a token that an earlier record of the chain describes in full."""

    number: int
    watermark_us: int
    boundary: tuple[tuple[str, str], ...] = ()
    totals: tuple[TopicTotals, ...] = ()
    """The new totals of the topics whose totals have changed."""
    filtered: int = 0
    parked: int = 0


@dataclass(frozen=True, slots=True)
class SlotChanges:
    """The heartbeat of a slot as the differences from the previous revision."""

    slot: int
    revision: int
    """One more than the revision of the preceding snapshot or changes."""
    position: int
    """Place in the chain that a `SlotProgress` began, from 1; part of the key."""
    minute: int
    includes: int
    """The same as in `SlotProgress`."""
    vector: tuple[TopicOffset, ...]
    """The entries that have changed."""
    slowest: SlowestToken | None
    """The slowest of all tokens that are open now; None if no token is open."""
    open: int
    """How many tokens are open now."""
    added: tuple[TokenSnapshot, ...] = ()
    """Tokens that are new, or that changed in other fields than those of `TokenMove`."""
    moved: tuple[TokenMove, ...] = ()
    removed: tuple[int, ...] = ()
    """Numbers of the tokens that have finished."""
    chunk: int = 0
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class SlotWatermark:
    """A slot's snapshot, with only what a reader needs; one a minute, for late readers."""

    slot: int
    revision: int
    """The revision of the `SlotProgress` or `SlotChanges` of the same transaction."""
    minute: int
    includes: int
    vector: tuple[TopicOffset, ...]
    """All entries."""
    slowest: SlowestToken | None
    open: int
    chunk: int = 0
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class SlotWatermarkExpired:
    """Removes the `SlotWatermark` of a minute: a record without a value."""

    slot: int
    minute: int


@dataclass(frozen=True, slots=True)
class TableAdded:
    """A data topic of a later table, which `StreamStarted` does not name; in the root's slot.

    Committed before the topic's first record is published.  Several workers may write the same
    record.
    """

    topic: DataTopic


@dataclass(frozen=True, slots=True)
class PartitionGap:
    """Changes of a stream partition that expired unread and whose loss an operator accepted.

    Written into the token's slot by the transaction that moves its position past the gap, so no
    watermark passes `from_us` before a reader knows the gap.
    """

    token: str
    from_us: int
    """The first commit time whose changes may be missing."""
    until_us: int
    """The first commit time from which the stream partition is complete again."""
    accepted_by: str
    accepted_us: int
    """Wall time of the acceptance, by the clock of the program that wrote it."""

    def covers(self, commit_us: int) -> bool:
        """Whether changes with this commit time may be missing."""
        return self.from_us <= commit_us < self.until_us


@dataclass(frozen=True, slots=True)
class StreamControl:
    """An operator pauses or resumes the stream; in the root's slot, where the last one applies."""

    number: int
    """1 for the first one of the epoch; each later one is one more."""
    state: ControlState
    by: str
    """Name of the operator; for information only."""
    at_us: int
    """Wall time, by the clock of the program that wrote it."""


@dataclass(frozen=True, slots=True)
class WorkerDrain:
    """An operator takes a worker out of the fleet; in the root's slot.

    Applies to the process of that name that is running now, not to one that starts later.
    """

    worker: str
    by: str
    at_us: int


@dataclass(frozen=True, slots=True)
class SlotPaused:
    """A slot's owner has paused it: no query of the slot runs, and all read changes are published.

    Written after each heartbeat of the slot while the pause lasts.
    """

    slot: int
    control: int
    """The `number` of the `StreamControl`."""


ProgressBody: TypeAlias = (
    StreamStarted
    | PartitionAnnounced
    | PartitionFinished
    | SlotProgress
    | SlotChanges
    | SlotWatermark
    | SlotWatermarkExpired
    | TableAdded
    | PartitionGap
    | StreamControl
    | WorkerDrain
    | SlotPaused
)


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """The envelope of every record in the progress topic."""

    epoch: str
    worker: str
    body: ProgressBody
    version: int = PROGRESS_VERSION
    """The version of the schemas that its key and value are written with."""
