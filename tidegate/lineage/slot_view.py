"""A reader's view of one slot: the snapshot in effect and the announcements after it.

Records are folded in the order of their offsets, each once: what is at or below `folded_through` is
known already.  A snapshot waits until its reader has reached every entry of its vector
(`docs/protocol.md`, 6.2); of several in effect the highest revision holds.  Of a snapshot's tokens
only the slowest is kept, because only the minimum is needed: an announcement's
`start - 1` is never above the watermark that the same token has in a snapshot, so counting a token
twice cannot raise the minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tidegate.lineage.errors import ProtocolError
from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    PartitionAnnounced,
    PartitionFinished,
    ProgressBody,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlotWatermarkExpired,
    StreamStarted,
    TableAdded,
)

__all__ = ["SNAPSHOTS_WAITING_MAX", "HasReached", "SlotView", "Slowest", "Snapshot"]

SNAPSHOTS_WAITING_MAX = 256
"""Snapshots kept per slot while the data lags behind the progress topic, as in a catch-up.

Beyond that every second one is dropped, never the first or the last: the watermark then
moves in longer steps, and the frontier stays small however long the backlog is.
"""

HasReached = Callable[[str, int, int], bool]
"""(topic, topic partition, offset) -> whether the reader's next offset is greater."""


@dataclass(frozen=True, slots=True, order=True)
class Slowest:
    """The stream partition that holds a watermark back."""

    watermark_us: int
    token: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A `SlotProgress`, reduced to what a reader needs."""

    revision: int
    includes: int
    vector: Mapping[str, Mapping[int, int]]
    tokens: int
    slowest: Slowest | None

    def is_in_effect(self, has_reached: HasReached) -> bool:
        """Whether the reader has consumed everything that this snapshot's tokens had written."""
        return all(
            has_reached(topic, topic_partition, offset)
            for topic, offsets in self.vector.items()
            for topic_partition, offset in offsets.items()
        )

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        return {
            "revision": self.revision,
            "includes": self.includes,
            "vector": {t: {str(p): o for p, o in of.items()} for t, of in self.vector.items()},
            "tokens": self.tokens,
            "slowest": _slowest_to_json(self.slowest),
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> Snapshot:
        """Rebuild what `snapshot` gave."""
        return cls(
            revision=data["revision"],
            includes=data["includes"],
            vector={t: {int(p): o for p, o in of.items()} for t, of in data["vector"].items()},
            tokens=data["tokens"],
            slowest=_slowest_from_json(data["slowest"]),
        )


@dataclass(frozen=True, slots=True)
class _OpenSet:
    """Chunks of one snapshot that were read so far; the snapshot does not exist before the last."""

    snapshot: Snapshot
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
    """One slot, as far as it was read; changed by `fold` and `settle` only."""

    slot: int
    folded_through: int = -1
    """Offset of the newest record folded."""
    current: Snapshot | None = None
    """The snapshot in effect."""
    finished_tokens: int = 0
    _waiting: list[Snapshot] = field(default_factory=list)
    _announced: dict[tuple[str, str], _Announcement] = field(default_factory=dict)
    _open: _OpenSet | None = None
    _newest: Snapshot | None = None
    """Of the highest revision that was folded, also once it was thinned out."""

    @property
    def snapshots_waiting(self) -> int:
        """How many snapshots were read and are not in effect."""
        return len(self._waiting)

    def fold(self, body: ProgressBody, *, offset: int) -> None:
        """Take the record at an offset of this slot; a record that was taken before is ignored.

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
                # A marker's chunks share one identity: count the first.
                self.finished_tokens += body.chunk == 0
            case SlotProgress() | SlotChanges() | SlotWatermark():
                self._fold_snapshot(body)
            case StreamStarted() | TableAdded() | SlotWatermarkExpired():
                pass  # the frontier keeps stream and tables, as they concern all slots

    def settle(self, has_reached: HasReached) -> None:
        """Put the newest snapshot whose vector is reached into effect."""
        for index in range(len(self._waiting) - 1, -1, -1):
            snapshot = self._waiting[index]
            if snapshot.is_in_effect(has_reached):
                self.current = snapshot
                del self._waiting[: index + 1]
                self._announced = {
                    key: announcement
                    for key, announcement in self._announced.items()
                    if announcement.offset > snapshot.includes
                }
                break
        while len(self._waiting) > SNAPSHOTS_WAITING_MAX:
            self._waiting = [*self._waiting[:-1:2], self._waiting[-1]]

    def slowest(self) -> Slowest | None:
        """The stream partition of this slot with the lowest watermark, if there is any."""
        current = None if self.current is None else self.current.slowest
        candidates = (current, self.slowest_announced())
        return min((one for one in candidates if one is not None), default=None)

    def slowest_announced(self) -> Slowest | None:
        """The one with the lowest start of those that `current` does not contain, if any."""
        return min((one.slowest for one in self._announced.values()), default=None)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if this view contradicts itself."""
        revisions = [snapshot.revision for snapshot in self._waiting]
        if self.current is not None:
            revisions.insert(0, self.current.revision)
        invariant(
            all(low < high for low, high in pairwise(revisions)),
            "snapshots of a slot are out of order",
            slot=self.slot,
            revisions=revisions,
        )
        includes = -1 if self.current is None else self.current.includes
        for (token, _), announcement in self._announced.items():
            invariant(
                includes < announcement.offset <= self.folded_through,
                "an announcement is kept that its slot's snapshot contains",
                slot=self.slot,
                token=token,
            )

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        return {
            "slot": self.slot,
            "folded_through": self.folded_through,
            "finished_tokens": self.finished_tokens,
            "current": None if self.current is None else self.current.snapshot(),
            "waiting": [snapshot.snapshot() for snapshot in self._waiting],
            "announced": [
                [token, parent, announcement.offset, announcement.slowest.watermark_us]
                for (token, parent), announcement in sorted(self._announced.items())
            ],
            "newest": None if self._newest is None else self._newest.snapshot(),
            "open": None
            if self._open is None
            else {
                "snapshot": self._open.snapshot.snapshot(),
                "next_chunk": self._open.next_chunk,
                "chunks": self._open.chunks,
            },
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> SlotView:
        """Rebuild what `snapshot` gave."""
        # States from before version 2 hold no newest one: it is among the others.
        newest = data.get("newest") or next(iter(data["waiting"][-1:]), data["current"])
        unfinished = data["open"]
        return cls(
            slot=data["slot"],
            folded_through=data["folded_through"],
            finished_tokens=data["finished_tokens"],
            current=None if data["current"] is None else Snapshot.restore(data["current"]),
            _waiting=[Snapshot.restore(snapshot) for snapshot in data["waiting"]],
            _announced={
                (token, parent): _Announcement(offset, Slowest(watermark_us, token))
                for token, parent, offset, watermark_us in data["announced"]
            },
            _newest=None if newest is None else Snapshot.restore(newest),
            _open=None
            if unfinished is None
            else _OpenSet(
                snapshot=Snapshot.restore(unfinished["snapshot"]),
                next_chunk=unfinished["next_chunk"],
                chunks=unfinished["chunks"],
            ),
        )

    def _fold_snapshot(self, body: SlotProgress | SlotChanges | SlotWatermark) -> None:
        if body.slot != self.slot:
            message = "a slot holds another slot's snapshot"
            raise ProtocolError(message, slot=self.slot, snapshot_of=body.slot)
        if body.chunk == 0:
            unfinished = _OpenSet(_reduce(body), next_chunk=1, chunks=body.chunks)
        elif self._open is not None and self._open.is_continued_by(body):
            unfinished = _OpenSet(_joined(self._open.snapshot, body), body.chunk + 1, body.chunks)
        else:
            # A compaction removed chunks of an older set: the set is incomplete for good.
            self._open = None
            return
        if unfinished.next_chunk < unfinished.chunks:
            self._open = unfinished
            return
        self._open = None
        self._add(unfinished.snapshot, body)

    def _add(self, snapshot: Snapshot, body: SlotProgress | SlotChanges | SlotWatermark) -> None:
        """Let a whole record wait for its vector; one that says nothing new is left out."""
        newest = self._newest
        revision = -1 if newest is None else newest.revision
        if isinstance(body, SlotWatermark) and snapshot.revision == revision:
            return  # it repeats the record before it
        if snapshot.revision <= revision:
            message = "snapshot revisions of a slot do not grow: two workers write to it"
            raise ProtocolError(message, slot=self.slot, revision=body.revision, before=revision)
        if isinstance(body, SlotChanges):
            if newest is None or snapshot.revision != revision + 1:
                return  # what compaction has left of an older chain
            snapshot = replace(snapshot, vector=_united(newest.vector, snapshot.vector))
        self._newest = snapshot
        self._waiting.append(snapshot)


def _reduce(body: SlotProgress | SlotChanges | SlotWatermark) -> Snapshot:
    vector: dict[str, dict[int, int]] = {}
    for entry in body.vector:
        vector.setdefault(entry.topic, {})[entry.topic_partition] = entry.offset
    if isinstance(body, SlotProgress):
        is_open = len(body.tokens)
        slowest = min((Slowest(t.watermark_us, t.token) for t in body.tokens), default=None)
    else:
        is_open, mark = body.open, body.slowest
        slowest = None if mark is None else Slowest(mark.watermark_us, mark.token)
    return Snapshot(body.revision, body.includes, vector, tokens=is_open, slowest=slowest)


def _joined(before: Snapshot, body: SlotProgress | SlotChanges | SlotWatermark) -> Snapshot:
    """Return a snapshot with one more chunk; only a `SlotProgress` has its tokens counted."""
    part = _reduce(body)
    known = [slowest for slowest in (before.slowest, part.slowest) if slowest is not None]
    return replace(
        before,
        vector=_united(before.vector, part.vector),
        tokens=before.tokens + (part.tokens if isinstance(body, SlotProgress) else 0),
        slowest=min(known, default=None),
    )


def _united(
    before: Mapping[str, Mapping[int, int]], after: Mapping[str, Mapping[int, int]]
) -> dict[str, Mapping[int, int]]:
    """Return a vector with the entries of another one in it."""
    return {**before, **{t: {**before.get(t, {}), **offsets} for t, offsets in after.items()}}


def _slowest_to_json(slowest: Slowest | None) -> list[Any] | None:
    return None if slowest is None else [slowest.watermark_us, slowest.token]


def _slowest_from_json(data: list[Any] | None) -> Slowest | None:
    return None if data is None else Slowest(*data)
