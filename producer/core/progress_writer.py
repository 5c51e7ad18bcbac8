"""The progress records of a worker: heartbeats of slots, announcements, completion markers.

A heartbeat is a complete snapshot of a slot, or its changes.  A `SlotProgress` begins a chain, and
each `SlotChanges` after it continues it, so that a heartbeat costs in proportion to the stream
partitions that moved.  A new chain begins once its changes outweigh the snapshot: that spreads the
snapshot's cost, and limits what the slot's next owner has to read.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.producer.core.effects import Effect, PublishProgress
from tidegate.producer.core.publication import Publication
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import (
    PROGRESS_VERSION,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressBody,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlotWatermarkExpired,
    SlowestToken,
    TableAdded,
    TopicOffset,
)
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_chunks import CHUNK_BYTES_MAX, CHUNK_ITEMS_MAX, split
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

_VOID_ALLOWED = 64


@dataclass(frozen=True, slots=True)
class HeartbeatLimits:
    """The version and the retention of heartbeats."""

    version: int = PROGRESS_VERSION
    """The version of a slot without a record of a later version."""
    history_minutes: int = 7 * 24 * 60
    """How long a `SlotWatermark` is kept."""
    chain_length_max: int = 1_000
    chain_entries_min: int = 64
    chain_entries_per_token: int = 4


@dataclass(frozen=True, slots=True)
class SlotState:
    """The fields of a slot's heartbeat apart from its tokens; see `SlotProgress`."""

    revision: int
    minute: int
    includes: int
    vector: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One slot's records in one transaction."""

    body: SlotProgress | SlotChanges
    watermark: SlotWatermark | None
    """Only in the first heartbeat of a minute; never in version 1."""
    expired: tuple[SlotWatermarkExpired, ...]
    stated: Mapping[str, int]
    """Token -> number of its description, for tokens that the body describes in full."""
    after: SlotState
    """The slot after the commit; its vector holds only the entries that the transaction has
    written."""
    version: int
    """The version of the heartbeat's records."""


class HeartbeatWriter:
    """The heartbeats of one incarnation of a slot; only `confirm` changes its chain."""

    def __init__(self, slot: int, limits: HeartbeatLimits) -> None:
        self.version = limits.version
        self._slot = slot
        self._limits = limits
        self._position: int | None = None
        """The position of the chain's newest record; None before a chain has begun."""
        self._entries = 0
        """Number of tokens that the chain's changes have named."""
        self._next_number = 0
        self._described: set[str] = set()
        """Tokens that the chain holds."""
        self.undescribed: set[str] = set()
        """Tokens whose state differs from the chain's, or that the chain lacks; read only."""
        self._by_watermark: list[tuple[int, str]] = []
        """A heap; an entry is valid while it is the token's published watermark.

        Void entries are dropped when they come to the top, or once they are more than half of it:
        below a stream partition that does not move they would never come to the top.
        """

    def restore(self, chain: SlotChain, version: int) -> None:
        """Continue a chain of a version; a slot never returns to an earlier version."""
        self.version = max(self.version, version)
        if version == 1:
            return  # its tokens have no numbers
        self._position = chain.position
        self._entries = chain.entries
        numbers = (snapshot.number for snapshot in chain.tokens.values())
        self._next_number = 1 + max(numbers, default=-1)
        self._described = set(chain.tokens)

    def require(self, version: int) -> None:
        """Raise the least version, from the next heartbeat on."""
        self.version = max(self.version, version)

    def add(self, token: str, partition: StreamPartition) -> None:
        """Add a stream partition that the slot has restored, or that was announced."""
        heapq.heappush(self._by_watermark, (partition.published.watermark_us, token))
        if partition.number < 0:
            partition.number = self._next_number
            self._next_number += 1
        if token not in self._described:
            self.undescribed.add(token)

    def change(self, token: str, partition: StreamPartition) -> None:
        """Record that a stream partition differs from the chain's description."""
        partition.description += 1
        self.undescribed.add(token)

    # ------------------------------------------------------------ writing

    def draft(
        self,
        tokens: Mapping[str, StreamPartition],
        publications: Mapping[str, Publication],
        before: SlotState,
        after: SlotState,
    ) -> Heartbeat:
        """Return the heartbeat that is true once the publications are committed.

        `after.vector` holds the entries that the transaction has written.
        """
        finished = {
            token for token, publication in publications.items() if publication.finish is not None
        }
        is_whole = self.version == 1 or self._is_chain_due(len(tokens))
        described = (tokens.keys() if is_whole else self._stale(tokens, publications)) - finished
        stated = {token: tokens[token].description for token in sorted(described)}
        added = tuple(
            tokens[token].snapshot(publications.get(token), version=self.version)
            for token in stated
        )
        slowest, open_tokens = self._slowest(tokens, publications), len(tokens) - len(finished)
        if is_whole:
            body: SlotProgress | SlotChanges = SlotProgress(
                self._slot, after.revision, after.minute, after.includes,
                _offsets({**before.vector, **after.vector}), added,
            )  # fmt: skip
        else:
            moved = publications.keys() - finished - stated.keys()
            body = SlotChanges(
                slot=self._slot,
                revision=after.revision,
                position=1 + (self._position or 0),
                minute=after.minute,
                includes=after.includes,
                vector=_offsets(dict(after.vector.items() - before.vector.items())),
                slowest=slowest,
                open=open_tokens,
                added=added,
                moved=tuple(tokens[token].move(publications[token]) for token in sorted(moved)),
                removed=tuple(sorted(tokens[name].number for name in finished & self._described)),
            )
        watermark = None
        if self.version > 1 and after.minute != before.minute:
            watermark = SlotWatermark(
                self._slot, after.revision, after.minute, after.includes,
                _offsets({**before.vector, **after.vector}), slowest, open_tokens,
            )  # fmt: skip
        expired = self._expired(before.minute, after.minute) if watermark is not None else ()
        return Heartbeat(body, watermark, expired, stated, after, self.version)

    def _stale(
        self,
        tokens: Mapping[str, StreamPartition],
        publications: Mapping[str, Publication],
    ) -> set[str]:
        """Return the tokens that will differ from the chain's description."""
        parking = {
            token
            for token, publication in publications.items()
            if tokens[token].parks_more(publication)
        }
        return self.undescribed | parking

    def _is_chain_due(self, tokens: int) -> bool:
        limits = self._limits
        entries_max = limits.chain_entries_min + limits.chain_entries_per_token * tokens
        return (
            self._position is None
            or self._position >= limits.chain_length_max
            or self._entries >= entries_max
        )

    def _slowest(
        self, tokens: Mapping[str, StreamPartition], publications: Mapping[str, Publication]
    ) -> SlowestToken | None:
        """Return the token with the lowest watermark once the publications are committed."""
        heap, moving = self._by_watermark, []
        candidates = [
            (publication.position.watermark_us, token)
            for token, publication in publications.items()
            if publication.finish is None
        ]
        while heap:
            watermark_us, token = heap[0]
            partition = tokens.get(token)
            if partition is None or partition.published.watermark_us != watermark_us:
                heapq.heappop(heap)
            elif token in publications:
                moving.append(heapq.heappop(heap))
            else:
                candidates.append(heap[0])
                break
        for entry in moving:
            heapq.heappush(heap, entry)
        if not candidates:
            return None
        watermark_us, token = min(candidates)
        return SlowestToken(token, watermark_us)

    def _expired(self, before: int, now: int) -> tuple[SlotWatermarkExpired, ...]:
        """Return the watermarks that have expired since the minute `before`."""
        kept = self._limits.history_minutes
        first = max(before, now - kept) + 1 - kept if before >= 0 else now + 1
        return tuple(
            SlotWatermarkExpired(self._slot, minute) for minute in range(first, now - kept + 1)
        )

    # ------------------------------------------------------------ outcome

    def confirm(
        self,
        heartbeat: Heartbeat,
        tokens: Mapping[str, StreamPartition],
        publications: Mapping[str, Publication],
    ) -> None:
        """Apply a committed heartbeat, with which `tokens` have moved."""
        body = heartbeat.body
        if isinstance(body, SlotProgress):
            self._position, self._entries = (None if heartbeat.version == 1 else 0), 0
            self._described = set()
        else:
            self._position = body.position
            self._entries += len(body.added) + len(body.moved) + len(body.removed)
        for token, description in heartbeat.stated.items():
            self._described.add(token)
            if token in tokens and tokens[token].description == description:
                self.undescribed.discard(token)
        for token in publications:
            if token in tokens:
                entry = (tokens[token].published.watermark_us, token)
                heapq.heappush(self._by_watermark, entry)
            else:
                self._described.discard(token)
                self.undescribed.discard(token)
        if len(self._by_watermark) > 2 * len(tokens) + _VOID_ALLOWED:
            self._by_watermark = [(p.published.watermark_us, t) for t, p in tokens.items()]
            heapq.heapify(self._by_watermark)

    def check_invariants(self, tokens: Mapping[str, StreamPartition]) -> None:
        """Raise InvariantViolation unless the bookkeeping agrees with the tokens."""
        invariant(
            self._described | self.undescribed == tokens.keys(),
            "a slot's chain and its tokens differ",
            slot=self._slot,
        )
        entries = set(self._by_watermark)
        for token, partition in tokens.items():
            entry = (partition.published.watermark_us, token)
            invariant(entry in entries, "a watermark is not in the slot's heap", token=token)


def _offsets(vector: Mapping[tuple[str, int], int]) -> tuple[TopicOffset, ...]:
    return tuple(TopicOffset(*place, offset) for place, offset in sorted(vector.items()))


@dataclass(frozen=True, slots=True)
class ProgressWriter:
    """Records of one epoch by one worker: envelope, chunks and slot.

    `author_slot` is the slot of the tokens in a record: its offset belongs to that slot's vector.
    A snapshot has no author slot.
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
        """Publish a record into a slot, in as many chunks as necessary."""
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
        """Publish a slot's heartbeat, and once a minute the watermark for late readers."""
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
        """Publish every child's announcement, then the completion marker."""
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
