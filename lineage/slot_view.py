"""A reader's view of one slot: the snapshot in effect and the announcements after it.

Records are folded in the order of their offsets, each once: records at or below `folded_through`
are ignored.  A snapshot waits until its reader has reached every entry of its vector
(`docs/protocol.md`, 6.2); of several in effect the highest revision applies.  Of a snapshot's
tokens only the slowest is kept, because only the minimum is needed: an announcement's `start - 1`
is never above the watermark that the same token has in a snapshot, so counting a token twice cannot
raise the minimum.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from sys import intern
from typing import Any

from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.snapshot_queue import (
    ENTRIES_WAITING_MAX,
    HasReached,
    Slowest,
    Snapshot,
    SnapshotMark,
    SnapshotQueue,
    Vector,
)
from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressBody,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    SlotWatermark,
    SlotWatermarkExpired,
    StreamControl,
    StreamStarted,
    TableAdded,
    WorkerDrain,
)

ANNOUNCEMENTS_MAX = 1_000
"""Number of a slot's announcements beyond which those that leave together are joined.

In a long history every stream partition that ever existed is announced.  Between two waiting
snapshots, only the lowest start can hold the watermark back.
"""


@dataclass(frozen=True, slots=True)
class SlotMark:
    """How far a slot was at one moment."""

    folded_through: int
    snapshots: SnapshotMark


@dataclass(frozen=True, slots=True)
class _OpenSet:
    """The chunks of one snapshot read so far; the snapshot does not exist before the last chunk."""

    snapshot: Snapshot
    vector: Vector
    next_chunk: int
    chunks: int

    def is_continued_by(self, body: SlotProgress | SlotChanges | SlotWatermark) -> bool:
        expected = (self.snapshot.revision, self.next_chunk, self.chunks)
        return (body.revision, body.chunk, body.chunks) == expected


@dataclass(frozen=True, slots=True)
class _Announcement:
    offset: int
    slowest: Slowest


@dataclass(slots=True)
class SlotView:
    """One slot as read so far; only `fold`, `settle` and `apply` change it."""

    slot: int
    folded_through: int = -1
    """Offset of the newest record folded."""
    finished_tokens: int = 0
    gaps: dict[int, PartitionGap] = field(default_factory=dict)
    """Accepted gaps of its stream partitions, by offset; read only."""
    _snapshots: SnapshotQueue = field(default_factory=SnapshotQueue)
    _announced: dict[tuple[str, str], _Announcement] = field(default_factory=dict)
    _open: _OpenSet | None = None

    @property
    def current(self) -> Snapshot | None:
        """The snapshot in effect."""
        return self._snapshots.current

    @property
    def vector_in_effect(self) -> Vector:
        """The vector of the snapshot in effect; empty without one."""
        return self._snapshots.vector_in_effect

    @property
    def snapshots_waiting(self) -> int:
        """Number of snapshots that were read and are not in effect."""
        return self._snapshots.waiting

    def fold(self, body: ProgressBody, *, offset: int) -> None:
        """Fold the record at an offset of this slot; a record that was folded before is ignored.

        Raises ProtocolError for a snapshot of another slot, or one whose revision does not grow.
        """
        if offset <= self.folded_through:
            return
        self.folded_through = offset
        match body:
            case PartitionAnnounced():
                start_us = body.child.start_ns // NS_PER_US
                self._announced[body.child.token, body.parent] = _Announcement(
                    offset, Slowest(start_us - 1, body.child.token)
                )
            case PartitionFinished():
                # The chunks of a marker share one identity: count only the first.
                self.finished_tokens += body.chunk == 0
            case SlotProgress() | SlotChanges() | SlotWatermark():
                self._fold_snapshot(body)
            case PartitionGap():
                # Before the snapshot that passes it: both are in one transaction.
                self.gaps[offset] = body
            case StreamStarted() | TableAdded() | SlotWatermarkExpired():
                pass  # the frontier keeps stream and tables, as they concern all slots
            case StreamControl() | WorkerDrain() | SlotPaused():
                pass  # requests to workers do not change what is proved

    def settle(self, has_reached: HasReached, *, entries_max: int = ENTRIES_WAITING_MAX) -> None:
        """Put the newest snapshot whose vector is reached into effect.

        `entries_max` bounds the vectors of the snapshots that still wait.
        """
        if self._snapshots.settle(has_reached):
            self._drop_announced()
        self._snapshots.thin(entries_max)
        if len(self._announced) > ANNOUNCEMENTS_MAX:
            self._join_announced()

    def slowest(self) -> Slowest | None:
        """The stream partition of this slot with the lowest watermark; None if there is none."""
        current = None if self.current is None else self.current.slowest
        candidates = (current, self.slowest_announced())
        return min((candidate for candidate in candidates if candidate is not None), default=None)

    def slowest_announced(self) -> Slowest | None:
        """The announced stream partition with the lowest start that `current` lacks, if any."""
        return min(
            (announcement.slowest for announcement in self._announced.values()), default=None
        )

    def check_invariants(self) -> None:
        """Raise InvariantViolation if this view contradicts itself."""
        self._snapshots.check_invariants(self.slot)
        includes = -1 if self.current is None else self.current.includes
        for (token, _), announcement in self._announced.items():
            invariant(
                includes < announcement.offset <= self.folded_through,
                "an announcement is kept that its slot's snapshot contains",
                slot=self.slot,
                token=token,
            )

    # ------------------------------------------------------------ what has changed, as plain data

    def mark(self) -> SlotMark:
        """Return how far the slot is now."""
        return SlotMark(self.folded_through, self._snapshots.mark())

    def items_since(self, mark: SlotMark | None) -> Iterator[list[Any]]:
        """Yield items for `apply` with all changes since a mark; None marks an empty view."""
        if self.mark() == mark:
            return
        marked = -1 if mark is None else mark.folded_through
        for (token, parent), announcement in self._announced.items():
            if announcement.offset > marked:
                yield [
                    "announced",
                    token,
                    parent,
                    announcement.offset,
                    announcement.slowest.watermark_us,
                ]
        for offset, gap in self.gaps.items():
            if offset > marked:
                yield ["gap", offset, asdict(gap)]
        yield from self._snapshots.items_since(None if mark is None else mark.snapshots)
        yield ["slot", self.folded_through, self.finished_tokens, _open_to_json(self._open)]

    def apply(self, item: list[Any]) -> None:
        """Apply the next item of `items_since`."""
        match item:
            case ["announced", token, parent, offset, watermark_us]:
                announced = _Announcement(offset, Slowest(watermark_us, token))
                self._announced[token, parent] = announced
            case ["gap", offset, gap]:
                self.gaps[offset] = PartitionGap(**gap)
            case ["slot", folded_through, finished_tokens, unfinished]:
                self.folded_through, self.finished_tokens = folded_through, finished_tokens
                self._open = _open_from_json(unfinished)
                if self.current is not None:
                    self._drop_announced()
            case _:
                self._snapshots.apply(item)

    @classmethod
    def of_format_1(cls, data: Mapping[str, Any]) -> SlotView:
        """Restore a view from the format of programs that stored the frontier as one file."""
        view = cls(data["slot"], data["folded_through"], data["finished_tokens"])
        snapshots = [
            snapshot for snapshot in (data["current"], *data["waiting"]) if snapshot is not None
        ]
        for number, snapshot in enumerate(snapshots):
            view._snapshots.add(_snapshot_of(snapshot), _vector_of(snapshot))
            if number == 0 and data["current"] is not None:
                view._snapshots.apply(["current", snapshot["revision"]])
        view._announced = {
            (token, parent): _Announcement(offset, Slowest(watermark_us, token))
            for token, parent, offset, watermark_us in data["announced"]
        }
        if (unfinished := data["open"]) is not None:
            snapshot = unfinished["snapshot"]
            chunks = unfinished["next_chunk"], unfinished["chunks"]
            view._open = _OpenSet(_snapshot_of(snapshot), _vector_of(snapshot), *chunks)
        return view

    # ------------------------------------------------------------ inside

    def _drop_announced(self) -> None:
        """Drop the announcements that the snapshot in effect contains."""
        includes = -1 if self.current is None else self.current.includes
        self._announced = {
            k: announcement
            for k, announcement in self._announced.items()
            if announcement.offset > includes
        }

    def _join_announced(self) -> None:
        """Join the announcements between two waiting snapshots: they will be dropped together.

        Without a snapshot in effect there is no watermark, and the first one will contain all that
        the waiting ones contain.
        """
        ends = sorted(set(self._snapshots.includes_waiting))
        announced: dict[tuple[str, str], _Announcement] = {}
        joined: dict[int, _Announcement] = {}
        for key, announcement in self._announced.items():
            place = bisect_left(ends, announcement.offset)
            if place == len(ends):
                announced[key] = announcement
            elif place > 0 or self.current is not None:
                former = joined.get(place, announcement)
                offset, slowest = (
                    max(announcement.offset, former.offset),
                    min(announcement.slowest, former.slowest),
                )
                joined[place] = _Announcement(offset, slowest)
        # Not under a parent's name: the parent's own announcement must not take their place.
        announced |= {
            (announcement.slowest.token, f"*{announcement.offset}"): announcement
            for announcement in joined.values()
        }
        self._announced = announced

    def _fold_snapshot(self, body: SlotProgress | SlotChanges | SlotWatermark) -> None:
        if body.slot != self.slot:
            raise ProtocolError(
                "a slot holds another slot's snapshot", slot=self.slot, snapshot_of=body.slot
            )
        if body.chunk == 0:
            unfinished = _OpenSet(_reduce(body), _vector(body), next_chunk=1, chunks=body.chunks)
        elif self._open is not None and self._open.is_continued_by(body):
            unfinished = _joined(self._open, body)
        else:
            # A compaction removed chunks of an older set: the set is incomplete for good.
            self._open = None
            return
        if unfinished.next_chunk < unfinished.chunks:
            self._open = unfinished
            return
        self._open = None
        self._add(unfinished, body)

    def _add(self, whole: _OpenSet, body: SlotProgress | SlotChanges | SlotWatermark) -> None:
        """Queue a complete snapshot until its vector is reached; a repeated one is ignored."""
        snapshot, newest = whole.snapshot, self._snapshots.newest
        revision = -1 if newest is None else newest.revision
        if isinstance(body, SlotWatermark) and snapshot.revision == revision:
            return  # it repeats the record before it
        if snapshot.revision <= revision:
            raise ProtocolError(
                "snapshot revisions of a slot do not grow: two workers write to it",
                slot=self.slot,
                revision=body.revision,
                before=revision,
            )
        if not isinstance(body, SlotChanges):
            self._snapshots.add(snapshot, whole.vector)
        elif newest is not None and snapshot.revision == revision + 1:
            self._snapshots.add_changes(snapshot, whole.vector)
        # Else it is the remainder of an older chain after compaction.


def _reduce(body: SlotProgress | SlotChanges | SlotWatermark) -> Snapshot:
    if isinstance(body, SlotProgress):
        is_open = len(body.tokens)
        slowest = min((Slowest(t.watermark_us, t.token) for t in body.tokens), default=None)
    else:
        is_open, mark = body.open, body.slowest
        slowest = None if mark is None else Slowest(mark.watermark_us, mark.token)
    return Snapshot(body.revision, body.includes, tokens=is_open, slowest=slowest)


def _vector(body: SlotProgress | SlotChanges | SlotWatermark) -> Vector:
    # One text for each topic: a reader keeps thousands of entries.
    return {(intern(entry.topic), entry.topic_partition): entry.offset for entry in body.vector}


def _joined(before: _OpenSet, body: SlotProgress | SlotChanges | SlotWatermark) -> _OpenSet:
    """Return a set with one more chunk; only the tokens of a `SlotProgress` are counted."""
    part, snapshot = _reduce(body), before.snapshot
    candidates = [slowest for slowest in (snapshot.slowest, part.slowest) if slowest is not None]
    return _OpenSet(
        replace(
            snapshot,
            tokens=snapshot.tokens + (part.tokens if isinstance(body, SlotProgress) else 0),
            slowest=min(candidates, default=None),
        ),
        {**before.vector, **_vector(body)},
        next_chunk=body.chunk + 1,
        chunks=body.chunks,
    )


def _open_to_json(unfinished: _OpenSet | None) -> list[Any] | None:
    if unfinished is None:
        return None
    snapshot = unfinished.snapshot
    slowest = (
        None
        if snapshot.slowest is None
        else [snapshot.slowest.watermark_us, snapshot.slowest.token]
    )
    entries = [[topic, number, offset] for (topic, number), offset in unfinished.vector.items()]
    head = [snapshot.revision, snapshot.includes, snapshot.tokens, slowest]
    return [*head, entries, unfinished.next_chunk, unfinished.chunks]


def _open_from_json(data: list[Any] | None) -> _OpenSet | None:
    if data is None:
        return None
    revision, includes, tokens, slowest, entries, next_chunk, chunks = data
    snapshot = Snapshot(revision, includes, tokens, None if slowest is None else Slowest(*slowest))
    vector = {(topic, number): offset for topic, number, offset in entries}
    return _OpenSet(snapshot, vector, next_chunk, chunks)


def _snapshot_of(data: Mapping[str, Any]) -> Snapshot:
    mark = data["slowest"]
    slowest = None if mark is None else Slowest(*mark)
    return Snapshot(data["revision"], data["includes"], data["tokens"], slowest)


def _vector_of(data: Mapping[str, Any]) -> Vector:
    return {
        (t, int(p)): offset
        for t, offsets in data["vector"].items()
        for p, offset in offsets.items()
    }
