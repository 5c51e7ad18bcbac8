"""The cycle of one worker's transactions over its slots, at most one at a time.

    begin -> data, announcements, completion markers -> their delivery -> snapshots -> their
    delivery -> the fence -> commit                                     (`docs/protocol.md`, 7.7)

Records are kept until the commit is confirmed, and nothing in a slot changes before; an abort
leaves everything as it was.  A transaction whose commit was requested is decided: a slot that is
lost from then on does not change the outcome, only the outcome is not applied to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.producer.core import effects as do
from tidegate.producer.core.added_tables import AddedTables
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.events import Delivered
from tidegate.producer.core.group_watch import WatchLimits
from tidegate.producer.core.heartbeat import HeartbeatLimits
from tidegate.producer.core.lifecycle import SlotChange, SlotPhase
from tidegate.producer.core.now import Now
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.queries import QueryLimits
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.transaction import OpenTransaction, TransactionPhase
from tidegate.schemas.errors import invariant
from tidegate.schemas.progress import PartitionGap, ProgressRecord, SlotPaused, StreamStarted
from tidegate.schemas.progress_chunks import CHUNK_BYTES_MAX, CHUNK_ITEMS_MAX
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

_REPUBLISH_DELAY_US = 100_000
_COMMIT_PATIENCE_US = 60_000_000


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """When a transaction is due, and how its progress is cut."""

    commit_interval_us: int = 250_000
    commit_bytes_max: int = 8 << 20
    chunk_items_max: int = CHUNK_ITEMS_MAX
    """Tokens or children in one progress record."""
    chunk_bytes_max: int = CHUNK_BYTES_MAX
    """Estimated bytes of what is cut in one progress record."""
    group_watch: WatchLimits = field(default_factory=WatchLimits)
    queries: QueryLimits = field(default_factory=QueryLimits)
    heartbeats: HeartbeatLimits = field(default_factory=HeartbeatLimits)


@dataclass(frozen=True, slots=True)
class _News:
    """What a slot's stream partitions have to publish."""

    ready: Mapping[str, StreamPartition]
    waited_for: frozenset[str] = frozenset()
    """Topics of later tables that must be recorded first.

    A stream partition with a record of one waits as a whole: all of it follows a moment later.
    """
    waiting_bytes: int = 0


class TransactionCycle:
    """At most one open transaction; what it decides by is the worker's own, shared."""

    def __init__(
        self,
        slots: dict[int, Slot],
        index: PartitionIndex,
        *,
        tables: AddedTables,
        commands: OperatorCommands,
        limits: WorkerLimits,
        counters: Counters,
    ) -> None:
        """Start without an open transaction."""
        self.open: OpenTransaction | None = None
        self._slots = slots
        self._index = index
        self._tables = tables
        self._commands = commands
        self._limits = limits
        self._counters = counters
        self._due_us = 0
        self._not_before_us = 0
        self._given: dict[tuple[str, int], int] = {}
        """(topic, topic partition) -> the last offset that a commit of this worker was given."""

    # ------------------------------------------------------------ beginning

    def is_due(self, now_us: int, *, size_bytes: int = 0) -> bool:
        """Whether the next transaction may begin: after the interval, or with enough bytes."""
        is_large = size_bytes >= self._limits.commit_bytes_max
        if self.open is not None or now_us < self._not_before_us:
            return False
        return now_us >= self._due_us or is_large

    def due_slots(self, now: Now) -> list[Slot]:
        """Return the slots that a transaction is due for, by number; empty if it is too early."""
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
            return []  # what waits for its table is no reason to hurry
        return sorted(due, key=lambda slot: slot.number)

    def _paused_by(self, news: _News) -> int | None:
        """Return the number of the pause that a slot obeys once this news is published.

        None without one, and while some of what was read cannot be published yet.
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
        """Begin a transaction with everything that the slots' tokens have read."""
        slots = {slot.number: slot for slot in due}
        news = {number: self._news(number) for number in slots}
        publications = {
            number: {token: partition.publication() for token, partition in one.ready.items()}
            for number, one in news.items()
        }
        self.open = OpenTransaction(
            {number: slot.incarnation for number, slot in slots.items()}, publications
        )
        effects: list[do.Effect] = [do.BeginTransaction()]
        for number, one in news.items():
            paused_by = self._paused_by(one)
            if paused_by is not None:
                self.open.pauses[number] = paused_by
            for table in self._tables.due(one.waited_for):
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
        """Begin a transaction that says what is given up, over slots that have passed it."""
        by_slot = [(slot_of(gap.token, writer.slots), gap) for gap in gaps]
        begin, *rest = self.begin([self._slots[number] for number, _ in by_slot], writer)
        records = [effect for number, gap in by_slot for effect in writer.gap(gap, slot=number)]
        return [begin, *records, *rest]

    # ------------------------------------------------------------ next steps

    def deliver(self, event: Delivered, writer: ProgressWriter, now: Now) -> list[do.Effect]:
        """Continue after delivery reports: with the snapshots, or with the fence and the commit."""
        one = self.open
        if one is None or one.phase is TransactionPhase.ABORTING:
            return []
        if one.phase is TransactionPhase.PUBLISHING:
            return self._publish_snapshots(one, event, writer, now)
        is_next = one.phase is TransactionPhase.SNAPSHOTTING
        invariant(is_next, "unexpected delivery reports", transaction=one.phase.value)
        one.snapshot_offsets = event.snapshots
        offsets = tuple(
            (number, self._slots[number].fence_offset(heartbeat, event.snapshots[number]))
            for number, heartbeat in sorted(one.heartbeats.items())
        )
        invariant(offsets, "fence without an offset", transaction=one.phase.value)
        one.phase = TransactionPhase.COMMITTING
        one.retry_commit_until_us = now.monotonic_us + _COMMIT_PATIENCE_US
        return [do.SendOffsets(offsets), do.CommitTransaction()]

    def _publish_snapshots(
        self, one: OpenTransaction, event: Delivered, writer: ProgressWriter, now: Now
    ) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in sorted(one.incarnations):
            slot = self._slots[number]
            heartbeat = slot.draft(
                one.publications[number],
                event.written.get(number, ()),
                wall_us=now.wall_us,
                given=self._given,
            )
            one.heartbeats[number] = heartbeat
            effects += writer.heartbeat(heartbeat, slot=number)
            if number in one.pauses:
                effects += writer.record(SlotPaused(number, one.pauses[number]), slot=number)
        one.phase = TransactionPhase.SNAPSHOTTING
        return [*effects, do.AwaitDelivery()]

    def abort_if_lost(self, lost: Iterable[int]) -> list[do.Effect]:
        """Abort the open transaction if it covers a lost slot and its outcome is not decided."""
        covered = sorted(self.open.incarnations.keys() & set(lost)) if self.open else []
        return self.abort_open(f"slots {covered} were lost") if covered else []

    def abort_open(self, reason: str) -> list[do.Effect]:
        """Abort the open transaction, if there is one whose outcome is not decided."""
        if self.open is None or self.open.is_decided:
            return []
        self.open.phase = TransactionPhase.ABORTING
        return [do.AbortTransaction(reason)]

    # ------------------------------------------------------------ outcomes

    def commit(self, now_us: int) -> tuple[list[do.Effect], ProgressRecord | None]:
        """Apply a confirmed commit to the slots that are still owned.

        Returns effects, and the record that opened an epoch if the transaction held it.
        """
        one, self.open = self.open, None
        invariant(
            one is not None and one.phase is TransactionPhase.COMMITTING,
            "commit confirmed, but no commit was in progress",
            transaction=None if one is None else one.phase.value,
        )
        if one is None:
            return [], None
        self._counters.counts["committed"] += 1
        self._tables.confirm(one.tables)
        self._due_us = now_us + self._limits.commit_interval_us
        released: list[tuple[str, int]] = []
        for number, heartbeat in one.heartbeats.items():
            for place, offset in heartbeat.after.vector.items():
                self._given[place] = max(offset, self._given.get(place, -1))
            slot = self._slots.get(number)
            if slot is None or slot.incarnation != one.incarnations[number]:
                continue  # lost during the commit: its next owner reads the slot
            slot.paused_by = one.pauses.get(number, slot.paused_by)
            publications = one.publications[number]
            self._counters.add(slot.tokens, publications)
            released += slot.confirm(heartbeat, one.snapshot_offsets[number], publications)
        return ([do.ReleaseBudget(tuple(released))] if released else []), one.start

    def abort(self, now_us: int) -> None:
        """Drop the aborted transaction; its records stay pending."""
        self.open = None
        self._counters.counts["abort"] += 1
        for slot in self._slots.values():
            if slot.is_leaving:
                slot.move(SlotChange.ABORTED)  # the group waits; its next owner reads it again
        # However much is pending: only a poll in between can report why it was aborted.
        self._not_before_us = now_us + _REPUBLISH_DELAY_US

    def retry_commit(self, now_us: int) -> list[do.Effect]:
        """Retry a commit without an answer; returns no effect once the time for it is over."""
        one = self.open
        invariant(
            one is not None and one.phase is TransactionPhase.COMMITTING,
            "commit retried, but no commit was in progress",
            transaction=None if one is None else one.phase.value,
        )
        if one is None or now_us >= one.retry_commit_until_us:
            return []
        one.is_commit_unanswered = True
        return [do.CommitTransaction()]

    @property
    def is_commit_unanswered(self) -> bool:
        """Whether a commit of the open transaction got no answer, so that no abort proves more."""
        return self.open is not None and self.open.is_commit_unanswered

    def drop(self) -> None:
        """Drop the open transaction without its outcome."""
        self.open = None
        self._counters.counts["unknown_outcome"] += 1

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the open transaction covers a slot that is not owned."""
        one = self.open
        if one is None or one.is_decided:
            return
        for number, incarnation in one.incarnations.items():
            slot = self._slots.get(number)
            invariant(
                slot is not None and slot.incarnation == incarnation,
                "transaction covers a slot that is no longer owned",
                slot=number,
            )
