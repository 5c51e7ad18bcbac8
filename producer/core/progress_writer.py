"""Turns what a worker has to say in the progress topic into effects: envelope, chunks, slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.producer.core.effects import Effect, PublishProgress
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressBody,
    ProgressRecord,
)
from tidegate.schemas.progress_codec import CHUNK_ITEMS_MAX, split
from tidegate.schemas.topics import slot_of

if TYPE_CHECKING:
    from tidegate.producer.core.stream_partition import Publication

__all__ = ["ProgressWriter"]


@dataclass(frozen=True, slots=True)
class ProgressWriter:
    """Writes for one epoch, in one worker's name.

    `author_slot` is the slot whose tokens a record speaks of: its offset belongs to that slot's
    vector.  A snapshot has none.
    """

    epoch: str
    worker: str
    slots: int
    chunk_items_max: int = CHUNK_ITEMS_MAX

    def record(
        self, body: ProgressBody, *, slot: int, author_slot: int | None = None
    ) -> list[Effect]:
        """Publish a record into a slot, in as many chunks as it takes."""
        return [
            PublishProgress(slot, author_slot, ProgressRecord(self.epoch, self.worker, chunk))
            for chunk in split(body, items_max=self.chunk_items_max)
        ]

    def announcement(self, child: ChildPartition, *, parent: str, author_slot: int) -> list[Effect]:
        """Publish a child, as `parent` brought it, into the child's own slot."""
        slot = slot_of(child.token, self.slots)
        return self.record(PartitionAnnounced(child, parent), slot=slot, author_slot=author_slot)

    def finish(
        self, partition: ChildPartition, publication: Publication, *, slot: int
    ) -> list[Effect]:
        """Publish all that a finish consists of: every child's announcement, then the marker."""
        if publication.finish is None:
            return []
        end_ns, children = publication.finish
        effects: list[Effect] = []
        for child in children:
            effects += self.announcement(child, parent=partition.token, author_slot=slot)
        marker = PartitionFinished(
            token=partition.token,
            parents=partition.parents,
            start_ns=partition.start_ns,
            end_ns=end_ns,
            children=children,
            totals=tuple(publication.totals[topic] for topic in sorted(publication.totals)),
        )
        return effects + self.record(marker, slot=slot, author_slot=slot)
