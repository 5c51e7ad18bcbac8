"""The one open transaction of a worker: which slots it covers, what it holds, how far it is.

    PUBLISHING    data, announcements, markers: waiting for their delivery reports
    SNAPSHOTTING  the snapshots, whose vectors hold those offsets: waiting for theirs
    COMMITTING    the fence and the commit: waiting for the outcome
    ABORTING      the abort: waiting for its outcome

Nothing in the worker's slots changes before the commit is confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidegate.producer.core.heartbeat import Heartbeat
from tidegate.producer.core.stream_partition import Publication
from tidegate.schemas.progress import ProgressRecord, TableAdded


class TransactionPhase(Enum):
    """How far the transaction is."""

    PUBLISHING = "publishing"
    SNAPSHOTTING = "snapshotting"
    COMMITTING = "committing"
    ABORTING = "aborting"


@dataclass(slots=True)
class OpenTransaction:
    """What was decided when it began; `incarnations` are those of every covered slot."""

    incarnations: dict[int, int]
    publications: dict[int, dict[str, Publication]]
    """slot -> token -> what is published for it."""
    start: ProgressRecord | None = None
    """The `StreamStarted` that this transaction opens the epoch with."""
    tables: list[TableAdded] = field(default_factory=list)
    """The later tables that this transaction records."""
    pauses: dict[int, int] = field(default_factory=dict)
    """Slot -> the number of the pause that its owner obeys with this transaction."""
    phase: TransactionPhase = TransactionPhase.PUBLISHING
    heartbeats: dict[int, Heartbeat] = field(default_factory=dict)
    snapshot_offsets: dict[int, int] = field(default_factory=dict)
    is_commit_unanswered: bool = False
    """Whether a commit got no answer: then only another commit can confirm the outcome."""
    retry_commit_until_us: int = 0
    """Until when a commit without an answer is retried."""

    @property
    def data_topics(self) -> dict[int, set[str]]:
        """Slot -> the topics of its changes, for every covered slot."""
        return {
            number: {
                message.topic
                for publication in self.publications.get(number, {}).values()
                for record in publication.records
                for message in record.messages
            }
            for number in self.incarnations
        }

    @property
    def is_decided(self) -> bool:
        """Whether only its outcome is missing."""
        return self.phase in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING)
