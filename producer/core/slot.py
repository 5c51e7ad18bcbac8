"""One slot in its owner's hands: recovery from the log, the tokens, the vector, the next snapshot.

A slot is a snapshot plus the announcements after the snapshot's `includes`.  Announcements enter
only through this slot's own consumption, in offset order, those that this worker wrote too: to
count one's own at once would skip a foreign one that is still in an open transaction before it.

A slot is *recovering* until its reading has passed every transaction that was open when reading
began, then *owned*, and *revoking* from the group's wish to have it back until it is let go.  Every
assignment, and every recovery after an unknown outcome, is a new incarnation; what belongs to an
older one is void.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tidegate.producer.core.stream_partition import Publication, StreamPartition
from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import (
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TopicOffset,
)
from tidegate.schemas.progress_codec import ProgressAssembler

__all__ = ["US_PER_MINUTE", "Slot", "SlotPhase"]

US_PER_MINUTE = 60_000_000


class SlotPhase(Enum):
    """How far a slot is this worker's."""

    RECOVERING = "read again until nothing of the former owner is open"
    OWNED = "published for"
    REVOKING = "wanted back by the group"


@dataclass(slots=True)
class _Recovery:
    """What reading has brought so far, by epoch, as the epoch may not be known yet."""

    end_offset: int
    from_beginning: bool
    snapshots: dict[str, tuple[SlotProgress, int]] = field(default_factory=dict)
    announced: list[tuple[int, str, PartitionAnnounced]] = field(default_factory=list)
    started: ProgressRecord | None = None


class Slot:
    """See the module."""

    def __init__(self, number: int, incarnation: int) -> None:
        """Begin recovering; nothing is known before `begin_recovery`."""
        self.number = number
        self.incarnation = incarnation
        self.phase = SlotPhase.RECOVERING
        self.may_publish = True
        self.tokens: dict[str, StreamPartition] = {}
        self.position = 0
        self.revision = 0
        self.minute = -1
        self.snapshot_offset: int | None = None
        self.vector: dict[tuple[str, int], int] = {}
        self._assembler = ProgressAssembler()
        self._recovery: _Recovery | None = None

    # ------------------------------------------------------------ recovery

    def begin_recovery(self, *, end_offset: int, from_beginning: bool) -> None:
        """Take note that reading has begun, and how far it has to go."""
        self._recovery = _Recovery(end_offset, from_beginning)

    @property
    def has_caught_up(self) -> bool:
        """Tell whether reading has passed everything that was in the slot when it began."""
        return self._recovery is not None and self.position >= self._recovery.end_offset

    @property
    def lacks_stream_start(self) -> bool:
        """Tell whether the slot was read from its beginning and holds no `StreamStarted`."""
        recovery = self._recovery
        return (
            self.has_caught_up
            and recovery is not None
            and recovery.from_beginning
            and recovery.started is None
        )

    @property
    def stream_start(self) -> ProgressRecord | None:
        """The `StreamStarted` that recovery met, if it did."""
        return None if self._recovery is None else self._recovery.started

    def own(self, epoch: str) -> None:
        """End the recovery: the tokens are the epoch's last snapshot and what came after it."""
        recovery = self._recovery
        invariant(recovery is not None and self.has_caught_up, "owned early", slot=self.number)
        if recovery is None:
            return
        includes = -1
        if epoch in recovery.snapshots:
            snapshot, self.snapshot_offset = recovery.snapshots[epoch]
            includes = snapshot.includes
            self.revision = snapshot.revision
            self.minute = snapshot.minute
            self.vector = {(o.topic, o.topic_partition): o.offset for o in snapshot.vector}
            self.tokens = {t.token: StreamPartition.restore(t) for t in snapshot.tokens}
        for offset, record_epoch, announced in recovery.announced:
            if offset > includes and record_epoch == epoch:
                self._announce(announced)
        self._recovery = None
        self.phase = SlotPhase.OWNED

    # ------------------------------------------------------------ reading the own slot

    def take_in(self, offset: int, record: ProgressRecord, *, epoch: str | None) -> None:
        """Take the next committed record of the slot; records of another epoch are void."""
        if self.phase is SlotPhase.RECOVERING and self._recovery is None:
            return  # read before recovery began: it will be read again
        self.position = max(self.position, offset + 1)
        whole = self._assembler.add(record.body, offset=offset)
        if whole is None:
            return
        body, first_offset = whole
        recovery = self._recovery
        if recovery is None:
            if isinstance(body, PartitionAnnounced) and record.epoch == epoch:
                self._announce(body)
            return
        match body:
            case SlotProgress():
                recovery.snapshots[record.epoch] = (body, first_offset)
            case PartitionAnnounced():
                recovery.announced.append((offset, record.epoch, body))
            case StreamStarted():
                recovery.started = ProgressRecord(record.epoch, record.worker, body)
            case _:
                pass  # completion markers say nothing that the snapshot does not

    def pass_to(self, position: int) -> None:
        """Take note that everything before `position` was read, control records included."""
        if self.phase is not SlotPhase.RECOVERING or self._recovery is not None:
            self.position = max(self.position, position)

    def _announce(self, announced: PartitionAnnounced) -> None:
        token = announced.child.token
        partition = self.tokens.get(token)
        if partition is None:
            partition = self.tokens[token] = StreamPartition(announced.child)
        partition.heard.add(announced.parent)

    # ------------------------------------------------------------ writing

    @property
    def has_news(self) -> bool:
        """Tell whether a token moved since the last committed snapshot."""
        return any(partition.has_news for partition in self.tokens.values())

    def needs_snapshot(self, now_us: int) -> bool:
        """Tell whether a snapshot is due although no token moved."""
        return self.phase is SlotPhase.OWNED and self.minute != now_us // US_PER_MINUTE

    def draft(
        self,
        publications: dict[str, Publication],
        written: tuple[TopicOffset, ...],
        *,
        now_us: int,
    ) -> SlotProgress:
        """Return the snapshot that holds once the publications, at `written`, are committed."""
        vector = {**self.vector, **{(o.topic, o.topic_partition): o.offset for o in written}}
        for place, offset in self.vector.items():
            invariant(vector[place] >= offset, "a vector went back", slot=self.number, place=place)
        tokens = tuple(
            partition.snapshot(publications.get(token))
            for token, partition in sorted(self.tokens.items())
            if token not in publications or publications[token].finish is None
        )
        return SlotProgress(
            slot=self.number,
            revision=self.revision + 1,
            minute=now_us // US_PER_MINUTE,
            includes=self.position - 1,
            vector=tuple(TopicOffset(*place, offset) for place, offset in sorted(vector.items())),
            tokens=tokens,
        )

    def confirm(
        self, snapshot: SlotProgress, offset: int, publications: dict[str, Publication]
    ) -> None:
        """Take over a committed snapshot, whose first offset is given."""
        invariant(
            snapshot.revision == self.revision + 1, "a revision was skipped", slot=self.number
        )
        self.revision = snapshot.revision
        self.minute = snapshot.minute
        self.snapshot_offset = offset
        self.vector = {(o.topic, o.topic_partition): o.offset for o in snapshot.vector}
        for token, publication in publications.items():
            partition = self.tokens[token]
            partition.confirm(publication)
            if publication.finish is not None:
                del self.tokens[token]

    def fence_offset(self, snapshot: SlotProgress, first_offset: int) -> int:
        """Return where the next owner begins: at the snapshot, or an announcement it lacks."""
        return min(first_offset, snapshot.includes + 1)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the slot contradicts itself."""
        for token, partition in self.tokens.items():
            invariant(token == partition.child.token, "a token under another name", token=token)
            partition.check_invariants()
