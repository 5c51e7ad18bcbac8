"""The one open transaction of a worker: which slots it speaks for, what it carries, how far it is.

    PUBLISHING    data, announcements, markers: waiting for their delivery reports
    SNAPSHOTTING  the snapshots, whose vectors hold those offsets: waiting for theirs
    COMMITTING    the fence and the commit: waiting for the outcome
    ABORTING      an abort was asked for

Nothing in the worker's slots changes before the commit is confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.producer.core.stream_partition import Publication
    from tidegate.schemas.progress import ProgressRecord, SlotProgress

__all__ = ["OpenTransaction", "TransactionPhase"]


class TransactionPhase(Enum):
    """How far the transaction is."""

    PUBLISHING = "publishing"
    SNAPSHOTTING = "snapshotting"
    COMMITTING = "committing"
    ABORTING = "aborting"


@dataclass(slots=True)
class OpenTransaction:
    """What was decided when it began; `incarnations` are those of every slot concerned."""

    incarnations: dict[int, int]
    publications: dict[int, dict[str, Publication]]
    """slot -> token -> what is published for it."""
    start: ProgressRecord | None = None
    """The `StreamStarted` that this transaction opens the epoch with."""
    phase: TransactionPhase = TransactionPhase.PUBLISHING
    snapshots: dict[int, SlotProgress] = field(default_factory=dict)
    snapshot_offsets: dict[int, int] = field(default_factory=dict)
    is_doubtful: bool = False
    """Whether the commit was asked for without an answer: only another commit can settle it."""
    ask_until_us: int = 0
    """Until when the commit is asked for again while no answer comes."""

    @property
    def is_decided(self) -> bool:
        """Whether nothing is to be done for it any more but to wait for its outcome."""
        return self.phase in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING)
