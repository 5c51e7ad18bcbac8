"""What is to be done, as the worker's core asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tidegate.producer.messages import PublishableRecord
    from tidegate.schemas.errors import TidegateError
    from tidegate.schemas.progress import ProgressRecord

__all__ = [
    "AbortTransaction",
    "AwaitDelivery",
    "BeginTransaction",
    "CommitTransaction",
    "Effect",
    "FindStreamStart",
    "LetGoSlots",
    "LocalEffect",
    "PublishProgress",
    "PublishRecords",
    "RecoverSlot",
    "ReleaseBudget",
    "RestartProducer",
    "SendOffsets",
    "StartQuery",
    "Stop",
    "StopQuery",
    "TransactionEffect",
]


@dataclass(frozen=True, slots=True)
class RecoverSlot:
    """Read a slot from its fence's offset on, and say where its uncommitted end is."""

    slot: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class FindStreamStart:
    """Look for the epoch's `StreamStarted` in the root's slot until it is there."""


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Begin a change stream query without an end; the empty token is the initial query.

    A bounded stream is not read with a bounded query: only what lies past the bound proves that
    nothing before it is missing.
    """

    token: str
    query_id: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class StopQuery:
    """End a query; what it still delivers is not wanted."""

    token: str
    query_id: int


@dataclass(frozen=True, slots=True)
class ReleaseBudget:
    """Bytes that records held in memory are free again; each `RecordsRead` is released once."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """Begin a transaction, and keep the group's metadata as it is at this moment for its fence."""


@dataclass(frozen=True, slots=True)
class PublishRecords:
    """Produce data records of one stream partition; their offsets belong to `slot`'s vector."""

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
    """Wait for every delivery report; one that fails or lacks an offset aborts the transaction."""


@dataclass(frozen=True, slots=True)
class SendOffsets:
    """The fence: these slots' offsets, inside the transaction, with the metadata kept at begin."""

    offsets: tuple[tuple[int, int], ...]
    """(slot, offset); never empty."""


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """Commit; nothing may have been produced since the fence."""


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """Abort the open transaction."""


@dataclass(frozen=True, slots=True)
class RestartProducer:
    """Initialise a new producer with the same transactional id, which settles what was open."""


@dataclass(frozen=True, slots=True)
class LetGoSlots:
    """Give revoked slots back to the group."""

    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the process; without an error it was drained."""

    error: TidegateError | None


TransactionEffect: TypeAlias = (
    BeginTransaction
    | PublishRecords
    | PublishProgress
    | AwaitDelivery
    | SendOffsets
    | CommitTransaction
    | AbortTransaction
)
"""For the transactional producer; once one has failed, what is left of its transaction is void."""

LocalEffect: TypeAlias = (
    RecoverSlot
    | FindStreamStart
    | StartQuery
    | StopQuery
    | ReleaseBudget
    | RestartProducer
    | LetGoSlots
    | Stop
)

Effect: TypeAlias = TransactionEffect | LocalEffect
