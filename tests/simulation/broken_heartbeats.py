"""Workers that are broken on purpose: what a slot says of itself, and what its next owner reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.lineage.slot_view import SlotView
from tidegate.lineage.snapshot_queue import SnapshotQueue
from tidegate.producer.core.heartbeat import HeartbeatWriter, SlotState
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.memory import publisher
from tidegate.schemas.progress import ChecksumKind, SlotChanges, SlowestToken
from tidegate.schemas.progress_codec import encode_key

__all__ = ["BROKEN_HEARTBEATS"]

_draft = HeartbeatWriter.draft


def _written(change: Callable[[SlotState, SlotState], SlotState]) -> Callable[..., Any]:
    """Draft heartbeats of another state than the slot will have."""

    def draft(self: Any, tokens: Any, publications: Any, before: Any, after: Any) -> Any:
        return _draft(self, tokens, publications, before, change(before, after))

    return draft


def _short_vector(_before: SlotState, after: SlotState) -> SlotState:
    return replace(after, vector={place: last - 1 for place, last in after.vector.items()})


def _includes_one_more(_before: SlotState, after: SlotState) -> SlotState:
    return replace(after, includes=after.includes + 1)


def _without(state: PartitionState) -> Callable[..., Any]:
    """Draft heartbeats of a slot without its tokens in a state."""

    def draft(self: Any, tokens: Any, publications: Any, before: Any, after: Any) -> Any:
        kept = {token: one for token, one in tokens.items() if one.state is not state}
        whole, self.undescribed = self.undescribed, self.undescribed & kept.keys()
        shown = {token: one for token, one in publications.items() if token in kept}
        try:
            return _draft(self, kept, shown, before, after)
        finally:
            self.undescribed = whole

    return draft


def _changes_only(change: Callable[[SlotChanges], SlotChanges]) -> Callable[..., Any]:
    def draft(self: Any, *args: Any) -> Any:
        heartbeat = _draft(self, *args)
        if not isinstance(heartbeat.body, SlotChanges):
            return heartbeat
        return replace(heartbeat, body=change(heartbeat.body))

    return draft


def _one_move_less(body: SlotChanges) -> SlotChanges:
    return replace(body, moved=body.moved[1:])


def _finished_kept(body: SlotChanges) -> SlotChanges:
    return replace(body, removed=())


def _slowest_of_the_moved(
    self: HeartbeatWriter, tokens: Any, publications: Any
) -> SlowestToken | None:
    moved = [(p.position.watermark_us, t) for t, p in publications.items() if p.finish is None]
    marks = moved or [(p.published.watermark_us, t) for t, p in tokens.items()]
    return SlowestToken(min(marks)[1], min(marks)[0]) if marks else None


def _described_at_the_draft(self: HeartbeatWriter, *args: Any) -> Any:
    """Believe that the chain holds what an aborted transaction said."""
    heartbeat = _draft(self, *args)
    self.undescribed -= heartbeat.stated.keys()
    self._described |= heartbeat.stated.keys()
    return heartbeat


_own = Slot.own


def _own_without_vector(self: Slot, epoch: str) -> None:
    _own(self, epoch)
    self.vector = {}


def _fence_behind_snapshot(self: Slot, heartbeat: Any, first_offset: int) -> int:
    return first_offset + 1


def _fence_at_the_changes(self: Slot, heartbeat: Any, first_offset: int) -> int:
    return min(first_offset, heartbeat.after.includes + 1)


def _key_without_position(body: Any, version: int = 2) -> bytes:
    """Let compaction keep the newest changes of a slot only."""
    return encode_key(replace(body, position=1) if isinstance(body, SlotChanges) else body, version)


_restore = StreamPartition.restore.__func__  # type: ignore[attr-defined]


def _restore_with_the_newest_checksum(cls: type[StreamPartition], snapshot: Any) -> Any:
    return _restore(cls, replace(snapshot, checksums=ChecksumKind.XXHASH_64))


def _add_across_gaps(self: SlotView, whole: Any, body: Any) -> None:
    """Take changes for a snapshot, whatever they follow."""
    newest = self._snapshots.newest
    if newest is None or whole.snapshot.revision > newest.revision:
        self._snapshots.add_changes(whole.snapshot, whole.vector)


BROKEN_HEARTBEATS = (
    Mutant(
        "a vector without the last record",
        "watermark",
        ((HeartbeatWriter, "draft", _written(_short_vector)),),
    ),
    Mutant("a vector that is not taken over", "vectors", ((Slot, "own", _own_without_vector),)),
    Mutant(
        "a snapshot without the tokens that wait",
        "soundness",
        ((HeartbeatWriter, "draft", _without(PartitionState.CREATED)),),
    ),
    Mutant(
        "a snapshot without the tokens that are stopped",
        "soundness",
        ((HeartbeatWriter, "draft", _without(PartitionState.STOPPED)),),
    ),
    Mutant(
        "a snapshot that includes one offset more",
        "liveness",
        ((HeartbeatWriter, "draft", _written(_includes_one_more)),),
    ),
    Mutant(
        "a fence's offset behind the snapshot",
        "soundness",
        ((Slot, "fence_offset", _fence_behind_snapshot),),
    ),
    Mutant(
        "a fence's offset at changes whose chain began before it",
        "soundness",
        ((Slot, "fence_offset", _fence_at_the_changes),),
    ),
    Mutant(
        "changes without one of the tokens that moved",
        "chains",
        ((HeartbeatWriter, "draft", _changes_only(_one_move_less)),),
    ),
    Mutant(
        "changes that keep what has finished",
        "chains",
        ((HeartbeatWriter, "draft", _changes_only(_finished_kept)),),
    ),
    Mutant(
        "a slowest token that is sought among those that moved",
        "watermark",
        ((HeartbeatWriter, "_slowest", _slowest_of_the_moved),),
    ),
    Mutant(
        "a chain that is taken to hold what was aborted",
        "chains",
        ((HeartbeatWriter, "draft", _described_at_the_draft),),
    ),
    Mutant(
        "changes that compaction removes from a chain",
        "soundness",
        ((publisher, "encode_key", _key_without_position),),
    ),
    Mutant(
        "totals that go on with another checksum",
        "completeness",
        ((StreamPartition, "restore", classmethod(_restore_with_the_newest_checksum)),),
    ),
    Mutant(
        "a gate that takes changes for a whole vector",
        "watermark",
        ((SnapshotQueue, "add_changes", SnapshotQueue.add),),
    ),
    Mutant(
        "a gate that follows changes across a gap",
        "views",
        ((SlotView, "_add", _add_across_gaps),),
    ),
)
