"""The snapshots of one slot: the one in effect, and those whose vectors are not reached yet.

A vector has an entry for each topic partition that the slot's stream partitions ever wrote to, and
few entries change from one snapshot to the next.  So a waiting snapshot holds only the differences
from the previous one, and only the vector in effect is complete: memory, stored bytes and the cost
of `settle` depend on the changes.  Vectors grow (`docs/protocol/writing.md`, 7.5), so a snapshot is
reached when the previous one and its own changes are reached.  A snapshot whose vector lowers an
entry is kept complete.

`mark` and `items_since` give the changes since a moment as plain data; `apply` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeAlias

from tidegate.schemas.errors import InvariantViolation, invariant

SNAPSHOTS_WAITING_MAX = 256
"""Snapshots kept per slot while the data lags behind the progress topic, as in a catch-up.

Beyond that some are dropped, never the first or the last: the watermark then moves in longer steps,
and the frontier stays small however long the backlog is.
"""

ENTRIES_WAITING_MAX = 500_000
"""Entries of waiting vectors over all slots of a stream; beyond that snapshots are dropped too.

So streams with very many topic partitions have fewer waiting snapshots, and the frontier has the
same maximal size for all streams.
"""

_SNAPSHOTS_MIN = 2

HasReached = Callable[[str, int, int], bool]
"""(topic, topic partition, offset) -> whether the reader's next offset is greater."""

Vector: TypeAlias = dict[tuple[str, int], int]
"""(topic, topic partition) -> the last offset that was written there."""


@dataclass(frozen=True, slots=True, order=True)
class Slowest:
    """The stream partition that holds a watermark back."""

    watermark_us: int
    token: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A heartbeat, reduced to what a reader needs, without its vector."""

    revision: int
    includes: int
    tokens: int
    slowest: Slowest | None


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """How far the snapshots of a slot were at one moment; -1 if there are none."""

    newest: int
    current: int


@dataclass(slots=True)
class WaitingSnapshot:
    """A snapshot that is not in effect.

    `changes` are the differences of its vector from the previous one; with `is_whole` they are the
    complete vector.
    """

    snapshot: Snapshot
    changes: Vector
    is_whole: bool = False

    def is_reached(self, has_reached: HasReached) -> bool:
        """Whether the reader has consumed everything that `changes` names."""
        return all(has_reached(*place, offset) for place, offset in self.changes.items())


@dataclass(slots=True)
class SnapshotQueue:
    """The snapshots of one slot; only `add`, `settle`, `thin` and `apply` change it."""

    current: Snapshot | None = None
    """The snapshot in effect."""
    newest: Snapshot | None = None
    """The snapshot with the highest revision."""
    _waiting: list[WaitingSnapshot] = field(default_factory=list)
    _in_effect: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """The vector in effect, each entry with the revision that changed it last, in that order."""
    _whole_since: int = -1
    """The last revision that replaced the whole vector in effect."""
    _vector: Vector = field(default_factory=dict)
    """The vector of the newest snapshot."""
    _entries: int = 0
    """Number of entries of all waiting snapshots."""
    _thinned_at: int = -1
    """The newest revision when snapshots were last dropped."""

    @property
    def waiting(self) -> int:
        """Number of snapshots that are not in effect."""
        return len(self._waiting)

    @property
    def includes_waiting(self) -> list[int]:
        """The `includes` of each waiting snapshot, by revision."""
        return [waiting.snapshot.includes for waiting in self._waiting]

    @property
    def vector_in_effect(self) -> Vector:
        """The vector of `current`."""
        return {place: offset for place, (offset, _) in self._in_effect.items()}

    def add(self, snapshot: Snapshot, vector: Mapping[tuple[str, int], int]) -> None:
        """Queue a snapshot; `vector` is its complete vector."""
        before = self._vector
        takes_back = any(vector.get(place, -1) < offset for place, offset in before.items())
        changed = {p: offset for p, offset in vector.items() if before.get(p) != offset}
        self._append(snapshot, dict(vector) if takes_back else changed, is_whole=takes_back)

    def add_changes(self, snapshot: Snapshot, changes: Mapping[tuple[str, int], int]) -> None:
        """Queue a snapshot whose vector is the newest one with these entries replaced."""
        if any(self._vector.get(place, -1) > offset for place, offset in changes.items()):
            self._append(snapshot, {**self._vector, **changes}, is_whole=True)
            return
        changed = {p: offset for p, offset in changes.items() if self._vector.get(p) != offset}
        self._append(snapshot, changed, is_whole=False)

    def settle(self, has_reached: HasReached) -> bool:
        """Put the newest snapshot whose vector is reached into effect; return whether one was."""
        starts = [n for n, waiting in enumerate(self._waiting) if n == 0 or waiting.is_whole]
        for start, end in reversed(list(pairwise([*starts, len(self._waiting)]))):
            reached = start
            while reached < end and self._waiting[reached].is_reached(has_reached):
                reached += 1
            if reached > start:
                self._put_into_effect(reached)
                return True
        return False

    def thin(self, entries_max: int) -> None:
        """Drop snapshots while there are too many, or they have too many entries.

        Only every second snapshot may be dropped; those between the closest watermarks are.
        """
        while len(self._waiting) > SNAPSHOTS_WAITING_MAX or (
            self._entries > entries_max and len(self._waiting) > _SNAPSHOTS_MIN
        ):
            times = [self._watermark_us(number) for number in range(len(self._waiting))]
            inner = range(1, len(times) - 1, 2)
            closest = sorted(inner, key=lambda number: times[number + 1] - times[number - 1])
            dropped = {*closest[: (len(inner) + 1) // 2]}
            revisions = [waiting.snapshot.revision for waiting in self._waiting]
            self._keep(
                {revision for number, revision in enumerate(revisions) if number not in dropped}
            )

    def check_invariants(self, slot: int) -> None:
        """Raise InvariantViolation if the snapshots contradict each other."""
        revisions = [waiting.snapshot.revision for waiting in self._waiting]
        if self.current is not None:
            revisions.insert(0, self.current.revision)
        invariant(
            all(low < high for low, high in pairwise(revisions)),
            "snapshots of a slot are out of order",
            slot=slot,
            revisions=revisions,
        )
        newest = -1 if self.newest is None else self.newest.revision
        invariant(
            not revisions or revisions[-1] == newest,
            "the newest snapshot of a slot is not kept",
            slot=slot,
            newest=newest,
            revisions=revisions[-1:],
        )

    # ------------------------------------------------------------ what has changed, as plain data

    def mark(self) -> SnapshotMark:
        """Return how far the snapshots are now."""
        newest = -1 if self.newest is None else self.newest.revision
        return SnapshotMark(newest, -1 if self.current is None else self.current.revision)

    def items_since(self, mark: SnapshotMark | None) -> Iterator[list[Any]]:
        """Yield items for `apply` with all changes since a mark; None marks an empty queue."""
        marked = -1 if mark is None else mark.newest
        current = -1 if self.current is None else self.current.revision
        if self.current is not None and current > marked:
            is_whole = mark is None or self._whole_since > marked
            yield _item(
                self.current, self._changed_since(-1 if is_whole else marked), is_whole=is_whole
            )
        for waiting in self._waiting:
            if waiting.snapshot.revision > marked:
                yield _item(waiting.snapshot, waiting.changes, is_whole=waiting.is_whole)
        if mark is None or current != mark.current:
            yield ["current", current]
        if self._thinned_at > marked:
            yield ["kept", [waiting.snapshot.revision for waiting in self._waiting]]

    def apply(self, item: list[Any]) -> None:
        """Apply the next item of `items_since`."""
        match item:
            case ["snapshot", revision, includes, tokens, slowest, is_whole, by_topic]:
                snapshot = Snapshot(
                    revision, includes, tokens, None if slowest is None else Slowest(*slowest)
                )
                changes = {
                    (t, int(p)): o for t, offsets in by_topic.items() for p, o in offsets.items()
                }
                self._append(snapshot, changes, is_whole=is_whole)
            case ["current", revision]:
                if count := sum(waiting.snapshot.revision <= revision for waiting in self._waiting):
                    self._put_into_effect(count)
            case ["kept", revisions]:
                self._keep(set(revisions))
            case _:
                raise InvariantViolation("unknown part of stored snapshots", part=item[:1])

    # ------------------------------------------------------------ inside

    def _watermark_us(self, number: int) -> int:
        slowest = self._waiting[number].snapshot.slowest
        return 0 if slowest is None else slowest.watermark_us

    def _append(self, snapshot: Snapshot, changes: Vector, *, is_whole: bool) -> None:
        self._waiting.append(WaitingSnapshot(snapshot, changes, is_whole))
        self._entries += len(changes)
        if is_whole:
            self._vector = dict(changes)
        else:
            self._vector.update(changes)
        self.newest = snapshot

    def _put_into_effect(self, count: int) -> None:
        """Put the last of the first `count` snapshots into effect."""
        for waiting in self._waiting[:count]:
            revision = waiting.snapshot.revision
            self._entries -= len(waiting.changes)
            if waiting.is_whole:
                self._in_effect.clear()
                self._whole_since = revision
            for place, offset in waiting.changes.items():
                self._in_effect.pop(place, None)
                self._in_effect[place] = offset, revision
        self.current = self._waiting[count - 1].snapshot
        del self._waiting[:count]

    def _keep(self, revisions: set[int]) -> None:
        """Drop all other snapshots; the next one takes over the changes of a dropped one."""
        waiting_left: list[WaitingSnapshot] = []
        dropped: WaitingSnapshot | None = None
        for waiting in self._waiting:
            snapshot = waiting
            if dropped is not None and not waiting.is_whole:
                changes = {**dropped.changes, **waiting.changes}
                snapshot = replace(waiting, changes=changes, is_whole=dropped.is_whole)
            dropped = None if snapshot.snapshot.revision in revisions else snapshot
            if dropped is None:
                waiting_left.append(snapshot)
        self._waiting = waiting_left
        self._entries = sum(len(snapshot.changes) for snapshot in waiting_left)
        self._thinned_at = -1 if self.newest is None else self.newest.revision

    def _changed_since(self, revision: int) -> Vector:
        changed: Vector = {}
        for place in reversed(self._in_effect):
            offset, changed_at = self._in_effect[place]
            if changed_at <= revision:
                break
            changed[place] = offset
        return changed


def _item(snapshot: Snapshot, changes: Vector, *, is_whole: bool) -> list[Any]:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, number), offset in changes.items():
        by_topic.setdefault(topic, {})[str(number)] = offset
    mark = snapshot.slowest
    slowest = None if mark is None else [mark.watermark_us, mark.token]
    head = [snapshot.revision, snapshot.includes, snapshot.tokens, slowest]
    return ["snapshot", *head, is_whole, by_topic]
