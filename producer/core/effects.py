"""The effects of a worker's core: what the loop has to do, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.progress import ProgressRecord


@dataclass(frozen=True, slots=True)
class RecoverSlot:
    """Read a slot from its committed offset on; `SlotRecoveryStarted` answers at once."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReadAnnouncements:
    """From now on, return only the announcements that this incarnation reads in an own slot.

    Its owner wrote all other records of an own slot.  Only the position has to pass them: decoding
    them would cost as much as writing them, for every commit.
    """

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class FindStreamStart:
    """Search the root's slot from its beginning until the epoch's `StreamStarted` is found.

    Ends the search before it.
    """

    search_id: int


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Start a change stream query; the empty token is the initial query.

    The query of a bounded stream has no end: only items past the bound prove that nothing before it
    is missing.
    """

    token: str
    query_id: int
    start_ns: int
    end_ns: int | None = None
    """Inclusive; set only where the service requires an end; another query follows."""
    resumption: Mapping[str, str] = field(default_factory=dict)
    """Records that a source of files has to read again without returning them, for the start
    position."""


@dataclass(frozen=True, slots=True)
class StopQuery:
    """Stop a query; its later output is ignored."""

    token: str
    query_id: int


@dataclass(frozen=True, slots=True)
class ReleaseBudget:
    """Release bytes of the byte budget, those of each `RecordsRead` exactly once."""

    sizes: tuple[tuple[str, int], ...]
    """(token, bytes); never empty."""


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """Begin a transaction; its fence uses the group's current metadata."""


@dataclass(frozen=True, slots=True)
class PublishRecords:
    """Produce data records of one stream partition; their offsets belong to `slot`'s vector.

    Offsets of parked changes belong to no vector.  The token is empty for changes that are put
    back.
    """

    slot: int
    token: str
    records: tuple[PublishableRecord, ...]


@dataclass(frozen=True, slots=True)
class PublishProgress:
    """Produce a progress record into a slot.

    `author_slot` is the slot whose vector its offset belongs to; None for a snapshot of `slot`.
    """

    slot: int
    author_slot: int | None
    record: ProgressRecord


@dataclass(frozen=True, slots=True)
class AwaitDelivery:
    """Wait for all delivery reports; one that failed or lacks an offset aborts the transaction."""


@dataclass(frozen=True, slots=True)
class SendOffsets:
    """The fence: these slots' offsets, inside the transaction, with the metadata of its begin."""

    offsets: tuple[tuple[int, int], ...]
    """(slot, offset); never empty."""


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Commit; nothing was produced after the fence."""


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """Abort the open transaction."""

    reason: str


@dataclass(frozen=True, slots=True)
class RestartProducer:
    """Replace the producer with one of the same transactional id, which ends open transactions."""


@dataclass(frozen=True, slots=True)
class ReleaseSlots:
    """Return revoked slots to the group."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RejoinGroup:
    """Leave the group and join it again, so that a rebalance assigns every slot."""

    unassigned: tuple[int, ...]
    """The slots without an owner."""


@dataclass(frozen=True, slots=True)
class WatchTopic:
    """Describe one more data topic in every `TopicsObserved`."""

    topic: str


@dataclass(frozen=True, slots=True)
class FollowFleet:
    """Read all slots of the progress topic from now on; repeated `FleetRead` events answer."""

    epoch: str
    """The epoch to follow; records of other epochs are ignored."""
    with_moves: bool = False
    """Whether `AwaitSources` may follow."""


@dataclass(frozen=True, slots=True)
class AwaitSources:
    """Report in a `FleetRead` when stream partitions have published through a time.

    Or when the whole fleet has.  Any worker may own them.
    """

    sources: tuple[tuple[str, int], ...]
    """(token, microseconds); never empty."""


@dataclass(frozen=True, slots=True)
class ReplaceGroupClient:
    """Join the group with a new client: the present one is not a member and does not become one."""


@dataclass(frozen=True, slots=True)
class ReportPause:
    """Report that an operator has paused the stream, or that the pause is over."""

    is_paused: bool


@dataclass(frozen=True, slots=True)
class ReportStopped:
    """Report that a stream partition has stopped; its watermark no longer moves."""

    token: str
    error: TidegateError
    watermark_us: int
    """Records up to here are published, or will be."""


@dataclass(frozen=True, slots=True)
class ReportWaiting:
    """Report how many stream partitions wait for a query, and how many are read (`running`).

    None waits any longer if the other three numbers are 0.
    """

    queued: int
    paused: int
    running: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the worker: because of the error or, without an error, because it is drained."""

    error: TidegateError | None
    leaves_group: bool = False
    """Whether it leaves its group; otherwise the group keeps the place of a static member."""


TransactionEffect: TypeAlias = (
    BeginTransaction
    | PublishRecords
    | PublishProgress
    | AwaitDelivery
    | SendOffsets
    | CommitTransaction
    | AbortTransaction
)
"""Effects for the publisher; if one fails, the rest of its transaction is dropped."""

LocalEffect: TypeAlias = (
    RecoverSlot
    | ReadAnnouncements
    | FindStreamStart
    | StartQuery
    | StopQuery
    | ReleaseBudget
    | RestartProducer
    | ReleaseSlots
    | RejoinGroup
    | WatchTopic
    | FollowFleet
    | AwaitSources
    | ReplaceGroupClient
    | ReportPause
    | ReportStopped
    | ReportWaiting
    | Stop
)

Effect: TypeAlias = TransactionEffect | LocalEffect
