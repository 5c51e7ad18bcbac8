"""Every stream partition that the records of an epoch name: its parents, its start and its end.

Announcements and markers stay in the progress topic for as long as the topic does, so this is the
whole history of the stream.  Memory grows with it: some hundred bytes for each stream partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    StreamStarted,
)


@dataclass(slots=True)
class KnownPartition:
    """One stream partition; only `PartitionHistory` changes it."""

    token: str
    parents: tuple[str, ...]
    """Empty for a child of the initial query."""
    start_ns: int
    end_ns: int | None = None
    """None until its marker is read."""


class PartitionHistory:
    """The stream partitions of one epoch, open and finished; only `add` changes it."""

    def __init__(self, *, epoch: str) -> None:
        """Start without records."""
        self._epoch = epoch
        self._known: dict[str, KnownPartition] = {}
        self.finished_changes = 0
        """Changes that those which have finished have published."""

    @property
    def known(self) -> Mapping[str, KnownPartition]:
        """All of them by token, in the order in which they were read.  Read only."""
        return self._known

    def add(self, record: ProgressRecord) -> None:
        """Take the next record of a slot; slots may be mixed.  Each record is taken once."""
        if record.epoch != self._epoch:
            return
        body = record.body
        if isinstance(body, StreamStarted):
            self._add(body.children)
        elif isinstance(body, PartitionAnnounced):
            self._add((body.child,))
        elif isinstance(body, PartitionFinished):
            known = self._known.setdefault(
                body.token, KnownPartition(body.token, body.parents, body.start_ns)
            )
            known.end_ns = body.end_ns
            self.finished_changes += sum(topic.mods for topic in body.totals)
            self._add(body.children)

    def _add(self, children: Iterable[ChildPartition]) -> None:
        for child in children:
            known = KnownPartition(child.token, child.parents, child.start_ns)
            self._known.setdefault(child.token, known)
