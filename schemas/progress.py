"""The records of the progress topic: lineage, heartbeats and completion markers.

Each travels in an envelope that names the stream's epoch and the worker that wrote it.  A record
too large for one Kafka message travels as a set of chunks; a set counts only when it is complete
and of one revision.
`docs/protocol.md` says when each is written and when a reader may believe it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "ChildPartition",
    "DataTopic",
    "PartitionAnnounced",
    "PartitionFinished",
    "ProgressBody",
    "ProgressRecord",
    "SlotProgress",
    "StreamStarted",
    "TokenSnapshot",
    "TopicOffset",
    "TopicTotals",
]


@dataclass(frozen=True, slots=True)
class ChildPartition:
    """A stream partition as its parents' child records name it."""

    token: str
    parents: tuple[str, ...]
    """Every parent's token; empty for a child of the initial query."""
    start_ns: int
    """Exact start, nanoseconds since 1970: where its first query begins."""


@dataclass(frozen=True, slots=True)
class DataTopic:
    """What must not change about a data topic while an epoch lasts."""

    topic: str
    topic_id: str
    topic_partitions: int
    key_schema_id: int


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


@dataclass(frozen=True, slots=True)
class PartitionAnnounced:
    """A child, as one of its parents announced it.

    Written into the child's slot by the transaction that finishes the parent.
    """

    child: ChildPartition
    parent: str
    """Which parent this announcement is from; `topics.ROOT_TOKEN` for the initial query."""


@dataclass(frozen=True, slots=True)
class TopicTotals:
    """What one stream partition has published to one data topic."""

    topic: str
    records: int
    """Data change records that had at least one change for this topic."""
    mods: int
    """Kafka records."""
    value_bytes: int
    """Bytes of Kafka values, headers and keys left out."""
    checksum: int
    """Sum modulo 2^64 of `order_key.order_key_checksum` over the mods."""


@dataclass(frozen=True, slots=True)
class PartitionFinished:
    """The partition-completion marker: this stream partition will send nothing more."""

    token: str
    parents: tuple[str, ...]
    start_ns: int
    end_ns: int
    """The children's start, or the stream's bounded end."""
    children: tuple[ChildPartition, ...]
    totals: tuple[TopicTotals, ...]
    filtered: int = 0
    """Changes left out by a filter."""
    parked: int = 0
    """Changes that went to the dead-letter topic."""
    chunk: int = 0
    chunks: int = 1


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
    """The parents whose announcement the slot contains; it may start when none is missing."""
    watermark_us: int
    """Everything with a commit timestamp <= this has been published."""
    boundary: tuple[tuple[str, str], ...] = ()
    """For each transaction published after the watermark: its id, its highest record sequence."""
    totals: tuple[TopicTotals, ...] = ()
    filtered: int = 0
    parked: int = 0


@dataclass(frozen=True, slots=True)
class SlotProgress:
    """The heartbeat of a slot: the authoritative snapshot of its tokens."""

    slot: int
    revision: int
    """Grows by one with every snapshot of the slot, over all owners."""
    minute: int
    """Whole minutes since 1970 when it was written, by the writer's clock; part of the key."""
    includes: int
    """Offset in this slot up to which announcements are contained; -1 for none."""
    vector: tuple[TopicOffset, ...]
    """Last offsets written by this slot's tokens, in data topics and slots; in chunk 0 only."""
    tokens: tuple[TokenSnapshot, ...]
    chunk: int = 0
    chunks: int = 1


ProgressBody: TypeAlias = StreamStarted | PartitionAnnounced | PartitionFinished | SlotProgress


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """The envelope of every record in the progress topic."""

    epoch: str
    worker: str
    body: ProgressBody
