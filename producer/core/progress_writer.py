"""Builds the progress records of a worker and the effects that publish them."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.producer.core.effects import Effect, PublishProgress
from tidegate.producer.core.heartbeat import Heartbeat
from tidegate.producer.core.stream_partition import Publication, StreamPartition
from tidegate.schemas.progress import (
    PROGRESS_VERSION,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressBody,
    ProgressRecord,
    TableAdded,
)
from tidegate.schemas.progress_chunks import CHUNK_BYTES_MAX, CHUNK_ITEMS_MAX, split
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


@dataclass(frozen=True, slots=True)
class ProgressWriter:
    """Records of one epoch by one worker: envelope, chunks and slot.

    `author_slot` is the slot whose tokens a record is about: its offset belongs to that slot's
    vector.  A snapshot has none.
    """

    epoch: str
    worker: str
    slots: int
    chunk_items_max: int = CHUNK_ITEMS_MAX
    chunk_bytes_max: int = CHUNK_BYTES_MAX

    def record(
        self,
        body: ProgressBody,
        *,
        slot: int,
        author_slot: int | None = None,
        version: int = PROGRESS_VERSION,
    ) -> list[Effect]:
        """Publish a record into a slot, in as many chunks as it takes."""
        chunks = split(body, items_max=self.chunk_items_max, bytes_max=self.chunk_bytes_max)
        return [
            PublishProgress(
                slot, author_slot, ProgressRecord(self.epoch, self.worker, chunk, version)
            )
            for chunk in chunks
        ]

    def announcement(
        self,
        child: ChildPartition,
        *,
        parent: str,
        author_slot: int,
        version: int,
        parked_keys: tuple[int, ...] = (),
    ) -> list[Effect]:
        """Publish a child, as `parent` returned it, into the child's own slot."""
        slot = slot_of(child.token, self.slots)
        announced = PartitionAnnounced(child, parent, parked_keys)
        return self.record(announced, slot=slot, author_slot=author_slot, version=version)

    def table(self, added: TableAdded, *, author_slot: int) -> list[Effect]:
        """Publish a later table's topic into the root's slot, which another worker may own."""
        return self.record(added, slot=slot_of(ROOT_TOKEN, self.slots), author_slot=author_slot)

    def gap(self, gap: PartitionGap, *, slot: int) -> list[Effect]:
        """Publish an accepted gap into its token's slot."""
        return self.record(gap, slot=slot, author_slot=slot)

    def heartbeat(self, heartbeat: Heartbeat, *, slot: int) -> list[Effect]:
        """Publish a slot's heartbeat, and once a minute what late readers need of it."""
        version = heartbeat.version
        effects = self.record(heartbeat.body, slot=slot, version=version)
        if heartbeat.watermark is not None:
            effects += self.record(heartbeat.watermark, slot=slot, version=version)
        for expired in heartbeat.expired:
            effects += self.record(expired, slot=slot, version=version)
        return effects

    def finish(
        self, partition: StreamPartition, publication: Publication, *, slot: int, version: int
    ) -> list[Effect]:
        """Publish a finish: every child's announcement, then the completion marker."""
        if publication.finish is None:
            return []
        end_ns, children = publication.finish
        finished = partition.child
        parked_keys = tuple(sorted(publication.parked.keys))
        effects: list[Effect] = []
        for child in children:
            effects += self.announcement(
                child,
                parent=finished.token,
                author_slot=slot,
                version=version,
                parked_keys=parked_keys,
            )
        marker = PartitionFinished(
            token=finished.token,
            parents=finished.parents,
            start_ns=finished.start_ns,
            end_ns=end_ns,
            children=children,
            totals=tuple(publication.totals[topic] for topic in sorted(publication.totals)),
            filtered=publication.filtered,
            parked=publication.parked.changes,
            checksums=partition.checksums,
        )
        return effects + self.record(marker, slot=slot, author_slot=slot, version=version)
