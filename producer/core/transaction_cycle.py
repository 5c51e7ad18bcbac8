"""The cycle of one worker's transactions over its slots, at most one at a time.

    begin -> data, announcements, completion markers -> their delivery -> snapshots -> their
    delivery -> the fence -> commit                                     (`docs/protocol.md`, 7.7)

Records are kept until the commit is confirmed, and nothing in a slot changes before; an abort
leaves everything unchanged.  A transaction whose commit was requested is decided: losing a slot
from then on does not change the outcome, but the outcome is not applied to that slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidegate.producer.core import effects as do
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.events import Delivered, Now
from tidegate.producer.core.group_watch import WatchLimits
from tidegate.producer.core.lifecycle import SlotChange, SlotPhase
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.progress_writer import Heartbeat, HeartbeatLimits, ProgressWriter
from tidegate.producer.core.publication import Publication
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.stream_topics import StreamTopics
from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import (
    PartitionGap,
    ProgressRecord,
    SlotPaused,
    StreamStarted,
    TableAdded,
)
from tidegate.schemas.progress_chunks import CHUNK_BYTES_MAX, CHUNK_ITEMS_MAX
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

_REPUBLISH_DELAY_US = 100_000
_COMMIT_PATIENCE_US = 60_000_000


class TransactionPhase(Enum):
    """How far the transaction is.

    PUBLISHING    data, announcements, markers: waiting for their delivery reports
    SNAPSHOTTING  the snapshots, whose vectors hold those offsets: waiting for their reports
    COMMITTING    the fence and the commit: waiting for the outcome
    ABORTING      the abort: waiting for its outcome
    """

    PUBLISHING = "publishing"
    SNAPSHOTTING = "snapshotting"
    COMMITTING = "committing"
    ABORTING = "aborting"


@dataclass(slots=True)
class OpenTransaction:
    """A transaction since its beginning."""

    incarnations: dict[int, int]
    """Slot -> incarnation, for every covered slot."""
    publications: dict[int, dict[str, Publication]]
    """Slot -> token -> publication."""
    start: ProgressRecord | None = None
    """The `StreamStarted` that this transaction opens the epoch with."""
    tables: list[TableAdded] = field(default_factory=list)
    """The later tables that this transaction records."""
    pauses: dict[int, int] = field(default_factory=dict)
    """Slot -> the number of the pause that its owner obeys with this transaction."""
    phase: TransactionPhase = TransactionPhase.PUBLISHING
    heartbeats: dict[int, Heartbeat] = field(default_factory=dict)
    snapshot_offsets: dict[int, int] = field(default_factory=dict)
    is_commit_unanswered: bool = False
    """Whether a commit was not answered: then only another commit can confirm the outcome."""
    retry_commit_until_us: int = 0
    """Until when an unanswered commit is retried."""

    @property
    def data_topics(self) -> dict[int, set[str]]:
        """Slot -> the topics of its changes, for every covered slot."""
        return {
            number: {
                message.topic
                for publication in self.publications.get(number, {}).values()
                for record in publication.records
                for message in record.messages
            }
            for number in self.incarnations
        }

    @property
    def is_decided(self) -> bool:
        """Whether only its outcome is missing."""
        return self.phase in (TransactionPhase.COMMITTING, TransactionPhase.ABORTING)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """When a transaction is due, and how its progress records are cut."""

    commit_interval_us: int = 250_000
    commit_bytes_max: int = 8 << 20
    chunk_items_max: int = CHUNK_ITEMS_MAX
    """Tokens or children in one progress record."""
    chunk_bytes_max: int = CHUNK_BYTES_MAX
    """Estimated bytes of the cut parts in one progress record."""
    group_watch: WatchLimits = field(default_factory=WatchLimits)
    queries: QueryLimits = field(default_factory=QueryLimits)
    heartbeats: HeartbeatLimits = field(default_factory=HeartbeatLimits)


@dataclass(frozen=True, slots=True)
class _News:
    """The stream partitions of a slot that have something to publish."""

    ready: Mapping[str, StreamPartition]
    waited_for: frozenset[str] = frozenset()
    """Topics of later tables that must be recorded first.

    A stream partition with a record for one of them waits as a whole, and follows a moment later.
    """
    waiting_bytes: int = 0


class TransactionCycle:
    """The cycle, with at most one open transaction; its arguments are shared with the worker."""

    def __init__(
        self,
        slots: dict[int, Slot],
        index: PartitionIndex,
        *,
        tables: StreamTopics,
        commands: OperatorCommands,
        limits: WorkerLimits,
        counters: Counters,
    ) -> None:
        self.open: OpenTransaction | None = None
        self._slots = slots
        self._index = index
        self._tables = tables
        self._commands = commands
        self._limits = limits
        self._counters = counters
        self._due_us = 0
        self._not_before_us = 0
        self._committed_offsets: dict[tuple[str, int], int] = {}
        """(topic, topic partition) -> the last offset assigned to a commit of this worker."""

    # ------------------------------------------------------------ beginning

    def is_due(self, now_us: int, *, size_bytes: int = 0) -> bool:
        """Whether the next transaction may begin: after the interval, or with enough bytes."""
        is_large = size_bytes >= self._limits.commit_bytes_max
        if self.open is not None or now_us < self._not_before_us:
            return False
        return now_us >= self._due_us or is_large

    def due_slots(self, now: Now) -> list[Slot]:
        """Return the slots for which a transaction is due, by number; empty if it is too early."""
        size_bytes, now_us = self._index.pending_bytes, now.monotonic_us
        if not self.is_due(now_us, size_bytes=size_bytes):
            return []
        owned = [slot for slot in self._slots.values() if slot.phase is SlotPhase.OWNED]
        due = []
        for slot in owned:
            news = self._news(slot.number)
            size_bytes -= news.waiting_bytes
            paused_by = self._paused_by(news)
            is_due = slot.needs_snapshot(now.wall_us) or (
                paused_by is not None and paused_by != slot.paused_by
            )
            if news.ready or is_due or self._tables.due(news.waited_for):
                due.append(slot)
        if not self.is_due(now_us, size_bytes=size_bytes):
            return []  # bytes that wait for their table do not make a transaction due
        return sorted(due, key=lambda slot: slot.number)

    def _paused_by(self, news: _News) -> int | None:
        """Return the number of the pause that a slot reaches once this news is published.

        None if the stream is not paused, and while some read records cannot be published yet.
        """
        return None if news.waited_for else self._commands.paused_by

    def has_news(self, slot: int) -> bool:
        """Whether a slot has something to publish that waits for no table."""
        return bool(self._news(slot).ready)

    def _news(self, slot: int) -> _News:
        news = self._index.news(slot)
        if not self._tables.unrecorded:
            return _News(news)
        waited_for = {token: self._tables.waited_for(p.pending) for token, p in news.items()}
        return _News(
            {token: partition for token, partition in news.items() if not waited_for[token]},
            frozenset().union(*waited_for.values()),
            sum(p.pending_bytes for token, p in news.items() if waited_for[token]),
        )

    def begin(self, due: Iterable[Slot], writer: ProgressWriter) -> list[do.Effect]:
        """Begin a transaction with all read records of the slots' tokens."""
        slots = {slot.number: slot for slot in due}
        news = {number: self._news(number) for number in slots}
        publications = {
            number: {token: partition.publication() for token, partition in slot_news.ready.items()}
            for number, slot_news in news.items()
        }
        self.open = OpenTransaction(
            {number: slot.incarnation for number, slot in slots.items()}, publications
        )
        effects: list[do.Effect] = [do.BeginTransaction()]
        for number, slot_news in news.items():
            paused_by = self._paused_by(slot_news)
            if paused_by is not None:
                self.open.pauses[number] = paused_by
            for table in self._tables.due(slot_news.waited_for):
                if table not in self.open.tables:
                    self.open.tables.append(table)
                    effects += writer.table(table, author_slot=number)
        for number, by_token in publications.items():
            for token, publication in sorted(by_token.items()):
                if publication.records:
                    effects.append(do.PublishRecords(number, token, publication.records))
                for child in publication.started:
                    version = slots[number].heartbeat.version
                    effects += writer.announcement(
                        child, parent=token, author_slot=number, version=version
                    )
                if publication.finish is not None:
                    slot = slots[number]
                    effects += writer.finish(
                        slot.tokens[token], publication, slot=number, version=slot.heartbeat.version
                    )
        return [*effects, do.AwaitDelivery()]

    def begin_stream(
        self, slot: Slot, started: StreamStarted, writer: ProgressWriter
    ) -> list[do.Effect]:
        """Begin the transaction that opens an epoch and announces the root's children."""
        number = slot.number
        self.open = OpenTransaction(
            {number: slot.incarnation},
            {number: {}},
            start=ProgressRecord(writer.epoch, writer.worker, started),
        )
        effects: list[do.Effect] = [do.BeginTransaction()]
        version = slot.heartbeat.version
        effects += writer.record(started, slot=number, author_slot=number, version=version)
        for child in started.children:
            effects += writer.announcement(
                child, parent=ROOT_TOKEN, author_slot=number, version=version
            )
        return [*effects, do.AwaitDelivery()]

    def begin_empty(self, slots: Iterable[Slot]) -> list[do.Effect]:
        """Begin a transaction over slots whose tokens have nothing to publish."""
        incarnations = {slot.number: slot.incarnation for slot in slots}
        self.open = OpenTransaction(incarnations, {number: {} for number in incarnations})
        paused_by = self._commands.paused_by
        if paused_by is not None:
            self.open.pauses = dict.fromkeys(incarnations, paused_by)
        return [do.BeginTransaction()]

    def begin_past_gaps(
        self, gaps: Iterable[PartitionGap], writer: ProgressWriter
    ) -> list[do.Effect]:
        """Begin a transaction that records gaps, over slots that have passed them."""
        by_slot = [(slot_of(gap.token, writer.slots), gap) for gap in gaps]
        begin, *rest = self.begin([self._slots[number] for number, _ in by_slot], writer)
        records = [effect for number, gap in by_slot for effect in writer.gap(gap, slot=number)]
        return [begin, *records, *rest]

    # ------------------------------------------------------------ next steps

    def deliver(self, event: Delivered, writer: ProgressWriter, now: Now) -> list[do.Effect]:
        """Continue after delivery reports: with the snapshots, or with the fence and the commit."""
        transaction = self.open
        if transaction is None or transaction.phase is TransactionPhase.ABORTING:
            return []
        if transaction.phase is TransactionPhase.PUBLISHING:
            return self._publish_snapshots(transaction, event, writer, now)
        is_next = transaction.phase is TransactionPhase.SNAPSHOTTING
        invariant(is_next, "unexpected delivery reports", transaction=transaction.phase.value)
        transaction.snapshot_offsets = event.snapshots
        offsets = tuple(
            (number, self._slots[number].fence_offset(heartbeat, event.snapshots[number]))
            for number, heartbeat in sorted(transaction.heartbeats.items())
        )
        invariant(offsets, "fence without an offset", transaction=transaction.phase.value)
        transaction.phase = TransactionPhase.COMMITTING
        transaction.retry_commit_until_us = now.monotonic_us + _COMMIT_PATIENCE_US
        return [do.SendOffsets(offsets), do.CommitTransaction()]

    def _publish_snapshots(
        self, transaction: OpenTransaction, event: Delivered, writer: ProgressWriter, now: Now
    ) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in sorted(transaction.incarnations):
            slot = self._slots[number]
            heartbeat = slot.draft(
                transaction.publications[number],
                event.written.get(number, ()),
                wall_us=now.wall_us,
                earlier=self._committed_offsets,
            )
            transaction.heartbeats[number] = heartbeat
            effects += writer.heartbeat(heartbeat, slot=number)
            pause = transaction.pauses.get(number)
            if pause is not None:
                effects += writer.record(SlotPaused(number, pause), slot=number)
        transaction.phase = TransactionPhase.SNAPSHOTTING
        return [*effects, do.AwaitDelivery()]

    def abort_if_lost(self, lost: Iterable[int]) -> list[do.Effect]:
        """Abort the open transaction if it covers a lost slot and its outcome is undecided."""
        covered = sorted(self.open.incarnations.keys() & set(lost)) if self.open else []
        return self.abort_open(f"slots {covered} were lost") if covered else []

    def abort_open(self, reason: str) -> list[do.Effect]:
        """Abort the open transaction, if there is one and its outcome is not decided."""
        if self.open is None or self.open.is_decided:
            return []
        self.open.phase = TransactionPhase.ABORTING
        return [do.AbortTransaction(reason)]

    # ------------------------------------------------------------ outcomes

    def commit(self, now_us: int) -> tuple[list[do.Effect], ProgressRecord | None]:
        """Apply a confirmed commit to the slots that are still owned.

        Returns effects, and the record that opened an epoch if the transaction held it.
        """
        transaction, self.open = self.open, None
        invariant(
            transaction is not None and transaction.phase is TransactionPhase.COMMITTING,
            "commit confirmed, but no commit was in progress",
            transaction=None if transaction is None else transaction.phase.value,
        )
        if transaction is None:
            return [], None
        self._counters.counts["committed"] += 1
        self._tables.confirm(transaction.tables)
        self._due_us = now_us + self._limits.commit_interval_us
        released: list[tuple[str, int]] = []
        for number, heartbeat in transaction.heartbeats.items():
            for place, offset in heartbeat.after.vector.items():
                self._committed_offsets[place] = max(offset, self._committed_offsets.get(place, -1))
            slot = self._slots.get(number)
            if slot is None or slot.incarnation != transaction.incarnations[number]:
                continue  # lost during the commit: its next owner reads the slot
            slot.paused_by = transaction.pauses.get(number, slot.paused_by)
            publications = transaction.publications[number]
            self._counters.add(slot.tokens, publications)
            released += slot.confirm(heartbeat, transaction.snapshot_offsets[number], publications)
        return ([do.ReleaseBudget(tuple(released))] if released else []), transaction.start

    def abort(self, now_us: int) -> None:
        """Drop the aborted transaction; its records stay pending."""
        self.open = None
        self._counters.counts["abort"] += 1
        for slot in self._slots.values():
            if slot.is_leaving:
                slot.move(SlotChange.ABORTED)  # the group waits; its next owner reads it again
        # Even with many pending bytes: only a poll in between can report why it was aborted.
        self._not_before_us = now_us + _REPUBLISH_DELAY_US

    def retry_commit(self, now_us: int) -> list[do.Effect]:
        """Retry an unanswered commit; return no effect once the time for it is over."""
        transaction = self.open
        invariant(
            transaction is not None and transaction.phase is TransactionPhase.COMMITTING,
            "commit retried, but no commit was in progress",
            transaction=None if transaction is None else transaction.phase.value,
        )
        if transaction is None or now_us >= transaction.retry_commit_until_us:
            return []
        transaction.is_commit_unanswered = True
        return [do.CommitTransaction()]

    @property
    def is_commit_unanswered(self) -> bool:
        """Whether a commit of the open transaction got no answer; then an abort proves nothing."""
        return self.open is not None and self.open.is_commit_unanswered

    def drop(self) -> None:
        """Drop the open transaction without its outcome."""
        self.open = None
        self._counters.counts["unknown_outcome"] += 1

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the open transaction covers a slot that is not owned."""
        transaction = self.open
        if transaction is None or transaction.is_decided:
            return
        for number, incarnation in transaction.incarnations.items():
            slot = self._slots.get(number)
            invariant(
                slot is not None and slot.incarnation == incarnation,
                "transaction covers a slot that is no longer owned",
                slot=number,
            )
