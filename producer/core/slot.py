"""One slot of a worker: its recovery from the log, its tokens, its vector, its next snapshot.

A slot is a snapshot plus the announcements after the snapshot's `includes`.  Announcements enter
only through reading the slot, in offset order, including those that this worker wrote: counting its
own at once would skip an announcement of another worker in an earlier transaction that is still
open.

Every assignment, and every recovery after an unknown outcome, is a new incarnation; events of an
older one are ignored.  `core.lifecycle` holds the phases of an incarnation.

Within an incarnation reading never moves backwards: an announcement that is read a second time
would restore a stream partition that has since finished.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from tidegate.producer.core.lifecycle import (
    LEAVING,
    SLOT_TRANSITIONS,
    SlotChange,
    SlotPhase,
    transition,
)
from tidegate.producer.core.progress_writer import (
    Heartbeat,
    HeartbeatLimits,
    HeartbeatWriter,
    SlotState,
)
from tidegate.producer.core.publication import Publication
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import ProgressLost, TopicsChangedError
from tidegate.schemas.errors import InvariantViolation, SchemaError, invariant
from tidegate.schemas.progress import (
    ChecksumKind,
    PartitionAnnounced,
    PartitionGap,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    StreamStarted,
    TopicOffset,
)
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_chunks import ProgressAssembler

US_PER_MINUTE = 60_000_000


@dataclass(slots=True)
class _Recovery:
    """The records read so far, by epoch, because the epoch may not be known yet."""

    end_offset: int
    committed_offset: int | None
    chains: dict[str, SlotChain] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    """The version of the snapshot that begins each chain."""
    broken: dict[str, SchemaError] = field(default_factory=dict)
    """The error of the first changes that did not continue a chain."""
    announced: list[tuple[int, str, PartitionAnnounced]] = field(default_factory=list)
    started: ProgressRecord | None = None
    paused: dict[str, int] = field(default_factory=dict)
    is_empty: bool = True
    """Whether no record was read."""


class Slot:
    """One incarnation of a slot; every state change goes through `move`."""

    def __init__(
        self,
        number: int,
        incarnation: int,
        *,
        heartbeats: HeartbeatLimits | None = None,
        changed: dict[str, StreamPartition] | None = None,
    ) -> None:
        """Start in ASSIGNED, without tokens.

        Its stream partitions enter themselves into `changed` when they change.
        """
        self._changed = {} if changed is None else changed
        self.number = number
        self.incarnation = incarnation
        self.phase = SlotPhase.ASSIGNED
        self.tokens: dict[str, StreamPartition] = {}
        self.position = 0
        self.revision = 0
        self.minute = -1
        self.chain_offset: int | None = None
        """The offset of the newest `SlotProgress`; None if there is none."""
        self.vector: dict[tuple[str, int], int] = {}
        self.heartbeat = HeartbeatWriter(number, heartbeats or HeartbeatLimits())
        self.paused_by: int | None = None
        """The number of the newest pause that an owner has confirmed, as far as it was read."""
        self._assembler = ProgressAssembler()
        self._unsaid: set[str] = set()
        """Tokens that stopped, or were restored as stopped, after the newest heartbeat."""
        self._recovery: _Recovery | None = None

    def move(self, change: SlotChange) -> None:
        """Change the phase; raises InvariantViolation if the change is not possible in it."""
        self.phase = transition(SLOT_TRANSITIONS, self.phase, change, slot=self.number)

    @property
    def is_leaving(self) -> bool:
        """Whether the group waits for this slot's release."""
        return self.phase in LEAVING

    # ------------------------------------------------------------ recovery

    def start_recovery(self, *, committed_offset: int | None, end_offset: int) -> None:
        """Record the offset where reading started, and the end of the recovery.

        Raises ProgressLost if the slot ends before the last fence.
        """
        self.move(SlotChange.RECOVERY_STARTED)
        self._recovery = _Recovery(end_offset, committed_offset)
        if committed_offset is None:
            return
        if end_offset <= committed_offset:
            raise ProgressLost(
                "a slot ends before the offset that the group has committed for it",
                slot=self.number,
                committed=committed_offset,
                end=end_offset,
            )
        self.position = committed_offset

    @property
    def has_caught_up(self) -> bool:
        """Whether reading has passed everything that was in the slot when it started."""
        return self._recovery is not None and self.position >= self._recovery.end_offset

    @property
    def lacks_stream_start(self) -> bool:
        """Whether the slot was read from its beginning to its end and is empty.

        The record that opens an epoch is the first one of its slot.
        """
        recovery = self._recovery
        return (
            self.has_caught_up
            and recovery is not None
            and recovery.committed_offset is None
            and recovery.is_empty
        )

    @property
    def proves_stream_start(self) -> bool:
        """Whether the slot, read to its end, shows that an owner knew the `StreamStarted`."""
        recovery = self._recovery
        return (
            self.has_caught_up
            and recovery is not None
            and (recovery.committed_offset is not None or bool(recovery.chains))
        )

    @property
    def stream_start(self) -> ProgressRecord | None:
        """The `StreamStarted` that recovery read; None if it read none."""
        return None if self._recovery is None else self._recovery.started

    def own(self, epoch: str) -> None:
        """End the recovery: the tokens are those of the last snapshot and of later announcements.

        Raises ProgressLost if a fence was committed, and no snapshot follows its offset.
        """
        recovery, self._recovery = self._recovery, None
        if recovery is None or self.position < recovery.end_offset:
            raise InvariantViolation(
                "slot became OWNED before its recovery finished", slot=self.number
            )
        if epoch in recovery.broken:
            raise ProgressLost(
                "a slot lacks changes between its snapshot and its end",
                slot=self.number,
                cause=str(recovery.broken[epoch]),
            )
        chain = recovery.chains.get(epoch)
        if recovery.committed_offset is not None and chain is None:
            raise ProgressLost(
                "a slot holds no snapshot at or after its committed offset",
                slot=self.number,
                committed=recovery.committed_offset,
                epoch=epoch,
            )
        self.paused_by = recovery.paused.get(epoch)
        includes = -1 if chain is None else chain.includes
        if chain is not None:
            self._restore(chain, recovery.versions[epoch])
        for offset, record_epoch, announced in recovery.announced:
            if offset > includes and record_epoch == epoch:
                self._announce(announced)
        self.move(SlotChange.RECOVERED)

    def _restore(self, chain: SlotChain, version: int) -> None:
        self.chain_offset = chain.offset
        self.revision = chain.revision
        self.minute = chain.minute
        self.vector = dict(chain.vector)
        self.heartbeat.restore(chain, version)
        for token, snapshot in chain.tokens.items():
            partition = self.tokens[token] = StreamPartition.restore(snapshot)
            partition.report_changes(self._changed)
            self.heartbeat.add(token, partition)
            if snapshot.stopped is not None:
                self.heartbeat.change(token, partition)  # the owner will try it again
                self._unsaid.add(token)

    # ------------------------------------------------------------ reading the own slot

    def add_record(self, offset: int, record: ProgressRecord, *, epoch: str | None) -> None:
        """Add the next committed record of the slot; records of another epoch are ignored.

        Raises ProgressLost if reading moved backwards.
        """
        if self.phase is SlotPhase.ASSIGNED:
            return  # read before recovery began: it will be read again
        self.advance_to(offset)
        self.position = offset + 1
        if self._recovery is not None:
            self._recovery.is_empty = False
        assembled = self._assembler.add(record.body, offset=offset)
        if assembled is None:
            return
        body, first_offset = assembled
        recovery = self._recovery
        if recovery is None:
            if isinstance(body, PartitionAnnounced) and record.epoch == epoch:
                self._announce(body)
            return
        match body:
            case SlotProgress():
                recovery.chains[record.epoch] = SlotChain(body, offset=first_offset)
                recovery.versions[record.epoch] = record.version
                recovery.broken.pop(record.epoch, None)
            case SlotChanges() if record.epoch in recovery.chains:
                self._continue(recovery, record.epoch, body)
            case PartitionAnnounced():
                recovery.announced.append((offset, record.epoch, body))
            case SlotPaused():
                recovery.paused[record.epoch] = body.control
            case StreamStarted():
                recovery.started = ProgressRecord(record.epoch, record.worker, body)
            case _:
                pass  # a completion marker adds nothing to the snapshot

    def _continue(self, recovery: _Recovery, epoch: str, changes: SlotChanges) -> None:
        """Add changes to a chain; only the last chain of the slot has to be complete."""
        try:
            if epoch not in recovery.broken:
                recovery.chains[epoch].add(changes)
        except SchemaError as error:
            recovery.broken[epoch] = error

    def advance_to(self, position: int) -> None:
        """Record that everything before `position` was read, including control records.

        Raises ProgressLost if reading moved backwards.
        """
        if self.phase is SlotPhase.ASSIGNED:
            return
        if position < self.position:
            raise ProgressLost(
                "reading a slot moved backwards", slot=self.number, was=self.position, now=position
            )
        self.position = position

    def fail_reading(self, reason: str) -> NoReturn:
        """Raise ProgressLost, because the log does not hold the next offset."""
        raise ProgressLost(
            "the offset that a slot is read from is not in its log",
            slot=self.number,
            position=self.position,
            reason=reason,
        )

    def _announce(self, announced: PartitionAnnounced) -> None:
        token = announced.child.token
        partition = self.tokens.get(token)
        if partition is None:
            checksums = (
                ChecksumKind.XXHASH_64 if self.heartbeat.version > 1 else ChecksumKind.BLAKE2B_64
            )
            partition = StreamPartition(announced.child, checksums=checksums)
            self.tokens[token] = partition
            self.heartbeat.add(token, partition)
            partition.report_changes(self._changed)
        if announced.parked_keys:
            self.heartbeat.require(2)  # version 1 would lose them
        if partition.announce(announced.parent, announced.parked_keys):
            self.heartbeat.change(token, partition)

    def note_stop(self, token: str) -> None:
        """Record that a stream partition stopped, so that a heartbeat is due.

        Until that heartbeat other workers wait for the stream partition.
        """
        partition = self.tokens.get(token)
        if partition is not None:
            self.heartbeat.change(token, partition)
            if self.heartbeat.version > 1:
                self._unsaid.add(token)

    def put_back(self, keys: frozenset[int]) -> bool:
        """Remove parked keys from the tokens; return whether any of them held one."""
        holding = [token for token, partition in self.tokens.items() if partition.put_back(keys)]
        for token in holding:
            self.heartbeat.change(token, self.tokens[token])
        return bool(holding)

    def pass_gap(self, gap: PartitionGap) -> None:
        """Move the read position of a token past a gap; the next heartbeat describes it in full."""
        partition = self.tokens[gap.token]
        partition.pass_gap(gap.until_us)
        self.heartbeat.change(gap.token, partition)

    # ------------------------------------------------------------ writing

    def needs_snapshot(self, wall_us: int) -> bool:
        """Whether a snapshot is due although no token has anything to publish."""
        is_due = self.minute != wall_us // US_PER_MINUTE or bool(self._unsaid)
        return self.phase is SlotPhase.OWNED and is_due

    def draft(
        self,
        publications: dict[str, Publication],
        written: tuple[TopicOffset, ...],
        *,
        wall_us: int,
        earlier: Mapping[tuple[str, int], int] | None = None,
    ) -> Heartbeat:
        """Return the heartbeat that is true once the publications are committed.

        `written` are their last offsets, `earlier` the last offsets of earlier commits by other
        slots of the worker.  Raises TopicsChangedError if a topic partition assigned an offset a
        second time.
        """
        entries = {(o.topic, o.topic_partition): o.offset for o in written}
        committed = {} if earlier is None else earlier
        highest = {
            place: max(self.vector.get(place, -1), committed.get(place, -1)) for place in entries
        }
        fallen = [
            _fall_of(place, highest[place], offset)
            for place, offset in entries.items()
            if offset < highest[place]
        ]
        if fallen:
            raise TopicsChangedError(fallen)
        before = SlotState(self.revision, self.minute, -1, self.vector)
        after = SlotState(self.revision + 1, wall_us // US_PER_MINUTE, self.position - 1, entries)
        return self.heartbeat.draft(self.tokens, publications, before, after)

    def confirm(
        self, heartbeat: Heartbeat, offset: int, publications: dict[str, Publication]
    ) -> list[tuple[str, int]]:
        """Apply a committed heartbeat, which begins at `offset`; return the bytes to release."""
        after = heartbeat.after
        invariant(after.revision == self.revision + 1, "revision skipped", slot=self.number)
        self.revision = after.revision
        self.minute = after.minute
        if isinstance(heartbeat.body, SlotProgress):
            self.chain_offset = offset
        self.vector.update(after.vector)
        released = []
        for token, publication in publications.items():
            size_bytes = self.tokens[token].confirm(publication)
            if size_bytes:
                released.append((token, size_bytes))
            if publication.finish is not None:
                del self.tokens[token]
        self.heartbeat.confirm(heartbeat, self.tokens, publications)
        self._unsaid &= self.heartbeat.undescribed
        return released

    def fence_offset(self, heartbeat: Heartbeat, first_offset: int) -> int:
        """Return where the next owner starts to read: the chain, or an announcement that it lacks.

        Raises ProgressLost if the heartbeat was written before the records that were read of the
        slot.
        """
        if first_offset < self.position:
            raise ProgressLost(
                "a slot's snapshot was written before the offset that it was read up to",
                slot=self.number,
                position=self.position,
                offset=first_offset,
            )
        begins_chain = isinstance(heartbeat.body, SlotProgress)
        chain_offset = first_offset if begins_chain else self.chain_offset
        if chain_offset is None:
            raise InvariantViolation(
                "changes of a slot without a snapshot before them", slot=self.number
            )
        return min(chain_offset, heartbeat.after.includes + 1)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the slot contradicts itself."""
        for token, partition in self.tokens.items():
            invariant(
                token == partition.child.token, "token registered under another name", token=token
            )
            partition.check_invariants()
        self.heartbeat.check_invariants(self.tokens)


def _fall_of(place: tuple[str, int], was: int, offset: int) -> str:
    topic, number = place
    return (
        f"topic {topic} was re-created or truncated: the last offset in its topic partition "
        f"{number} was {was}, it is {offset}"
    )
