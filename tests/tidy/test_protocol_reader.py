"""A reader written from docs/protocol.md, section 6.2, and nothing else, agrees with the frontier.

The histories are random and mostly make no sense as streams: what a reader concludes is a function
of what it has read, whatever that is.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_chunks import split
from tidegate.schemas.topics import TopicNames

SLOTS = 2
DATA, PROGRESS, FOREIGN = "orders.items", "orders-progress", "payments.items"
STARTED = StreamStarted("s", "d", 0, 9_000_999, "g", SLOTS, "id", (), ())

Offsets = dict[str, dict[int, int]]


class SnapshotOfPage(NamedTuple):
    """What a reader needs of a snapshot."""

    revision: int
    includes: int
    vector: dict[tuple[str, int], int]
    watermark_us: int | None


@dataclass
class SlotOfPage:
    """What step 1 says to keep."""

    in_effect: SnapshotOfPage | None = None
    newest: SnapshotOfPage | None = None
    waiting: list[SnapshotOfPage] = field(default_factory=list)
    announcements: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    chunks: list[Any] = field(default_factory=list)

    def put_together(self, chunk: Any) -> None:
        """Section 5.5."""
        if chunk.chunk == 0:
            self.chunks = []
        first = self.chunks[0] if self.chunks else chunk
        if (chunk.revision, chunk.chunks, chunk.chunk) != (
            first.revision, first.chunks, len(self.chunks)
        ):  # fmt: skip
            self.chunks = []
            return
        self.chunks.append(chunk)
        if len(self.chunks) == chunk.chunks:
            self.add(self.chunks)
            self.chunks = []

    def add(self, chunks: list[Any]) -> None:
        """Step 5."""
        first, newest = chunks[0], self.newest
        entries = [entry for chunk in chunks for entry in chunk.vector]
        vector = {(entry.topic, entry.topic_partition): entry.offset for entry in entries}
        if isinstance(first, SlotProgress):
            marks = [token.watermark_us for chunk in chunks for token in chunk.tokens]
            watermark_us = min(marks, default=None)
        else:
            watermark_us = first.slowest and first.slowest.watermark_us
        if isinstance(first, SlotChanges):
            if newest is None or first.revision != newest.revision + 1:
                return
            vector = {**newest.vector, **vector}
        elif isinstance(first, SlotWatermark) and newest and first.revision == newest.revision:
            return
        self.newest = SnapshotOfPage(first.revision, first.includes, vector, watermark_us)
        self.waiting.append(self.newest)

    def settle(self, next_offsets: Offsets) -> None:
        reached = [
            snapshot
            for snapshot in self.waiting
            if all(
                topic == FOREIGN or next_offsets.get(topic, {}).get(number, 0) > offset
                for (topic, number), offset in snapshot.vector.items()
            )
        ]
        if reached:
            self.in_effect = max(reached, key=lambda snapshot: snapshot.revision)
            revision, includes, *_ = self.in_effect
            self.waiting = [one for one in self.waiting if one.revision > revision]
            self.announcements = {
                key: found for key, found in self.announcements.items() if found[0] > includes
            }


class ReaderOfPage:
    """Section 6.2, step by step."""

    def __init__(self) -> None:
        self.started: StreamStarted | None = None
        self.slots = {slot: SlotOfPage() for slot in range(SLOTS)}

    def read(self, slot: int, offset: int, body: Any) -> None:
        match body:
            case StreamStarted():
                self.started = body
            case PartitionAnnounced():
                place = body.child.token, body.parent
                self.slots[slot].announcements[place] = offset, body.child.start_ns // 1000 - 1
            case SlotProgress() | SlotChanges() | SlotWatermark():
                self.slots[slot].put_together(body)

    def settle(self, next_offsets: Offsets) -> None:
        for slot in self.slots.values():
            slot.settle(next_offsets)

    def watermark_us(self) -> int | None:
        snapshots = [slot.in_effect for slot in self.slots.values()]
        if self.started is None or self.started.end_ns is None or None in snapshots:
            return None
        marks = [
            snapshot.watermark_us
            for snapshot in snapshots
            if snapshot and snapshot.watermark_us is not None
        ]
        marks += [us for slot in self.slots.values() for _, us in slot.announcements.values()]
        return min(marks, default=self.started.end_ns // 1000)


class Story:
    """A random progress topic, and a reader's offsets as it reads it, from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.slots = dict.fromkeys(range(SLOTS), 0)
        self.data = dict.fromkeys(range(2), 0)
        self.revisions = dict.fromkeys(range(SLOTS), 0)

    def portion(self) -> list[ProgressRow]:
        """Return the next records of one slot; the reader's offsets pass them."""
        slot = self.rng.randrange(SLOTS)
        match self.rng.randrange(8):
            case 0:
                bodies: list[Any] = [STARTED]
            case 1:
                bodies = [PartitionFinished(self.token(), (), 0, 0, (), ())]
            case 2 | 3:
                child = ChildPartition(self.token(), (), self.rng.randrange(26_000))
                bodies = [PartitionAnnounced(child, self.token())]
            case _:
                bodies = self.snapshot(slot)
        first = self.slots[slot]
        self.slots[slot] += len(bodies)
        for topic_partition in self.data:
            self.data[topic_partition] += self.rng.randrange(3)
        return [
            ProgressRow(slot, offset, ProgressRecord("e", "w", body))
            for offset, body in enumerate(bodies, start=first)
        ]

    def snapshot(self, slot: int) -> list[Any]:
        """Return a heartbeat's chunks, now and then without one of them."""
        kind = self.rng.choice((SlotProgress, SlotChanges, SlotChanges, SlotWatermark))
        skip = 0 if kind is SlotWatermark and self.rng.random() < 0.5 else self.rng.randint(1, 2)
        self.revisions[slot] += 1 if kind is SlotChanges and self.rng.random() < 0.7 else skip
        tokens = tuple(
            TokenSnapshot(self.token(), 0, (), (), self.rng.randrange(26))
            for _ in range(self.rng.randrange(4))
        )
        slowest = SlowestToken("a", self.rng.randrange(26)) if tokens else None
        revision, vector = self.revisions[slot], self.vector()
        includes = max(self.slots[slot] - self.rng.randint(1, 5), -1)
        if kind is SlotProgress:
            body: Any = SlotProgress(slot, revision, 0, includes, vector, tokens)
        elif kind is SlotChanges:
            body = SlotChanges(slot, revision, 1, 0, includes, vector, slowest, 3, tokens)
        else:
            body = SlotWatermark(slot, revision, 0, includes, vector, slowest, 3)
        size = self.rng.choice((1, 100, 1_000))
        chunks: list[Any] = list(split(body, items_max=self.rng.randint(1, 4), bytes_max=size))
        if self.rng.random() < 0.2:
            del chunks[self.rng.randrange(len(chunks))]
        return chunks

    def vector(self) -> tuple[TopicOffset, ...]:
        """Return entries that are read already, or will be soon; one for a topic partition."""
        near = {DATA: self.data, PROGRESS: self.slots, FOREIGN: self.slots}
        places = [(topic, number) for topic in near for number in range(2)]
        return tuple(
            TopicOffset(topic, number, max(near[topic][number] + self.rng.randint(-3, 3), 0))
            for topic, number in self.rng.sample(places, self.rng.randrange(3))
        )

    def token(self) -> str:
        return self.rng.choice("abcd")

    def reached(self) -> Offsets:
        return {PROGRESS: dict(self.slots), DATA: dict(self.data)}


@pytest.mark.rule("P4")
@pytest.mark.parametrize("seed", range(40))
def test_both_agree_after_every_portion(seed):
    frontier, reader = Frontier(Subscription(TopicNames("orders"))), ReaderOfPage()
    story = Story(seed)
    seen = set()

    for _ in range(100):
        rows = story.portion()
        for row in rows:
            reader.read(row.slot, row.offset, row.record.body)
        reader.settle(story.reached())
        frontier.fold(rows, reached=story.reached())

        watermark = frontier.watermark()
        assert reader.watermark_us() == (watermark.us if watermark else None)
        seen.add(watermark)
    # A story that moves nothing proves nothing.
    assert len(seen) > 3
