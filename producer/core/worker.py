"""One worker's whole state machine: slots, stream partitions, and the transaction cycle over them.

`handle(event, now_us=…)` is the only way to change it and returns what is to be done, in order.
Effects of one call are carried out in order; what comes of them returns as events.

The cycle: begin; data, announcements and completion markers; their delivery; snapshots; their
delivery; the fence; commit (`docs/protocol.md`, 3.1 and 3.4).  Records are kept until the commit is
confirmed.  An abort leaves everything as it was, and the next cycle publishes it again, unless a
slot was lost meanwhile. After an unknown outcome nothing is remembered: every slot is read again
from the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.slot import Slot, SlotPhase
from tidegate.producer.core.stream_partition import PartitionState, Publication, StreamPartition
from tidegate.producer.core.transaction import OpenTransaction, TransactionPhase
from tidegate.producer.errors import ProducerFencedError
from tidegate.schemas.errors import TidegateError, invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    ChildPartition,
    ProgressRecord,
    StreamStarted,
    TopicTotals,
)
from tidegate.schemas.progress_codec import CHUNK_ITEMS_MAX
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

if TYPE_CHECKING:
    from tidegate.producer.core.stream_identity import StreamIdentity

__all__ = ["Worker", "WorkerLimits"]

_REPUBLISH_DELAY_US = 100_000
_COUNTED = (
    "committed",
    "finished",
    "unproven_finish",
    "query_retry",
    "abort",
    "unknown_outcome",
)


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """When a transaction is due, and how its progress is cut."""

    commit_interval_us: int = 250_000
    commit_bytes_max: int = 8 << 20
    chunk_items_max: int = CHUNK_ITEMS_MAX
    """Tokens or children in one progress record."""


class Worker:
    """See the module.

    `epoch`, `start_ns` (None: now) and `end_ns` count only if this worker opens the stream.
    """

    def __init__(
        self,
        *,
        name: str,
        epoch: str,
        identity: StreamIdentity,
        start_ns: int | None = None,
        end_ns: int | None = None,
        limits: WorkerLimits | None = None,
    ) -> None:
        """Own nothing yet."""
        self.name = name
        self.slots: dict[int, Slot] = {}
        self.stream: StreamStarted | None = None
        self.epoch: str | None = None
        self.transaction: OpenTransaction | None = None
        self._identity = identity
        self._new_epoch = epoch
        self._start_ns = start_ns
        self._end_ns = end_ns
        self._limits = limits or WorkerLimits()
        self._incarnations = 0
        self._queries = 0
        self._seeking_start = False
        self._draining = False
        self._due_us = 0
        self._root: StreamPartition | None = None
        self.counts = dict.fromkeys(_COUNTED, 0)
        self.published: dict[str, TopicTotals] = {}
        """What this worker has committed since it began, per topic; checksums left out."""

    # ------------------------------------------------------------ events

    def handle(self, event: on.Event, *, now_us: int) -> list[do.Effect]:
        """Take an event in; return what is to be done.  Raises only InvariantViolation."""
        effects: list[do.Effect] = []
        match event:
            case on.SlotsAssigned():
                effects += self._on_assigned(event.slots)
            case on.SlotsRevoked():
                effects += self._on_revoked(event.slots)
            case on.SlotsLost():
                effects += self._on_lost(event.slots)
            case on.SlotRecoveryBegun():
                slot = self._current(event.slot, event.incarnation)
                if slot is not None:
                    slot.begin_recovery(
                        end_offset=event.end_offset, from_beginning=event.from_beginning
                    )
            case on.ProgressRead():
                slot = self._current(event.slot, event.incarnation)
                if slot is not None:
                    slot.take_in(event.offset, event.record, epoch=self.epoch)
            case on.SlotPassed():
                slot = self._current(event.slot, event.incarnation)
                if slot is not None:
                    slot.pass_to(event.position)
            case on.StreamStartFound():
                effects += self._on_stream_start(event.record)
            case on.RecordsRead():
                effects += self._on_records(event)
            case on.QueryEnded():
                self._on_query_ended(event, now_us)
            case on.QueryFailed():
                effects += self._on_query_failed(event, now_us)
            case on.Delivered():
                effects += self._on_delivered(event, now_us)
            case on.TransactionCommitted():
                effects += self._on_committed(now_us)
            case on.TransactionAborted():
                self._on_aborted(now_us)
            case on.CommitOutcomeUnknown():
                effects += self._on_unknown_outcome()
            case on.ProducerFenced():
                effects.append(do.Stop(ProducerFencedError(self.name)))
            case on.DrainRequested():
                effects += self._on_drain()
            case on.Ticked():
                pass
            case _:
                assert_never(event)
        return effects + self._advance(now_us)

    def _on_assigned(self, numbers: tuple[int, ...]) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in numbers:
            invariant(number not in self.slots, "a slot was assigned twice", slot=number)
            self._incarnations += 1
            self.slots[number] = Slot(number, self._incarnations)
            effects.append(do.RecoverSlot(number, self._incarnations))
        if numbers and self.stream is None and not self._seeking_start:
            self._seeking_start = True
            effects.append(do.FindStreamStart())
        return effects

    def _current(self, number: int, incarnation: int) -> Slot | None:
        """Return the slot, unless the event speaks of an assignment that is over."""
        slot = self.slots.get(number)
        return slot if slot is not None and slot.incarnation == incarnation else None

    def _on_revoked(self, numbers: tuple[int, ...]) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in numbers:
            slot = self.slots[number]
            slot.phase = SlotPhase.REVOKING
            effects += self._stop_queries(slot)
        return effects

    def _on_lost(self, numbers: tuple[int, ...]) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in numbers:
            effects += self._forget(number)
        open_one = self.transaction
        if open_one is None or open_one.is_decided:
            return effects  # its outcome is on its way, and counts for the slots still owned
        if open_one.incarnations.keys().isdisjoint(numbers):
            return effects
        open_one.phase = TransactionPhase.ABORTING
        return [*effects, do.AbortTransaction()]

    def _on_stream_start(self, record: ProgressRecord) -> list[do.Effect]:
        if self.stream is not None or not isinstance(record.body, StreamStarted):
            return []
        try:
            self._identity.require(record.body)
        except TidegateError as error:
            return [do.Stop(error)]
        self.stream = record.body
        self.epoch = record.epoch
        return self._close_root()

    def _on_records(self, event: on.RecordsRead) -> list[do.Effect]:
        partition = self._running(event.token, event.query_id)
        if partition is None:
            return [do.ReleaseBudget(event.size_bytes)]
        try:
            has_ended = partition.take_in(event.items, event.size_bytes, end_ns=self._bound_ns())
        except TidegateError as error:
            return [do.Stop(error)]
        return self._stop_query(partition) if has_ended else []

    def _on_query_ended(self, event: on.QueryEnded, now_us: int) -> None:
        partition = self._running(event.token, event.query_id)
        if partition is None:
            return
        if not partition.end_query():
            self.counts["unproven_finish"] += 1
            partition.fail_query(now_us)

    def _on_query_failed(self, event: on.QueryFailed, now_us: int) -> list[do.Effect]:
        partition = self._running(event.token, event.query_id)
        if partition is None:
            return []
        if not event.error.retriable:
            return [do.Stop(event.error)]
        self.counts["query_retry"] += 1
        partition.fail_query(now_us)
        return []

    def _on_drain(self) -> list[do.Effect]:
        self._draining = True
        return self._on_revoked(tuple(self.slots))

    # ------------------------------------------------------------ the transaction cycle

    def _on_delivered(self, event: on.Delivered, now_us: int) -> list[do.Effect]:
        open_one = self.transaction
        if open_one is None or open_one.phase is TransactionPhase.ABORTING:
            return []
        if open_one.phase is TransactionPhase.PUBLISHING:
            return self._publish_snapshots(open_one, event, now_us)
        invariant(open_one.phase is TransactionPhase.SNAPSHOTTING, "reports came out of turn")
        open_one.snapshot_offsets = event.snapshots
        offsets = tuple(
            (number, self.slots[number].fence_offset(snapshot, event.snapshots[number]))
            for number, snapshot in sorted(open_one.snapshots.items())
        )
        invariant(offsets, "a fence without an offset does not fence")
        open_one.phase = TransactionPhase.COMMITTING
        return [do.SendOffsets(offsets), do.CommitTransaction()]

    def _publish_snapshots(
        self, open_one: OpenTransaction, event: on.Delivered, now_us: int
    ) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in sorted(open_one.incarnations):
            snapshot = self.slots[number].draft(
                open_one.publications[number], event.written.get(number, ()), now_us=now_us
            )
            open_one.snapshots[number] = snapshot
            effects += self._writer.record(snapshot, slot=number)
        open_one.phase = TransactionPhase.SNAPSHOTTING
        return [*effects, do.AwaitDelivery()]

    def _on_committed(self, now_us: int) -> list[do.Effect]:
        done = self.transaction
        invariant(
            done is not None and done.phase is TransactionPhase.COMMITTING, "committed unasked"
        )
        if done is None:
            return []
        self.transaction = None
        self.counts["committed"] += 1
        effects: list[do.Effect] = []
        size_bytes = 0
        for number, snapshot in done.snapshots.items():
            slot = self._current(number, done.incarnations[number])
            if slot is None:
                continue  # lost while the commit was under way: its next owner reads it
            self._count(slot, done.publications[number])
            slot.confirm(snapshot, done.snapshot_offsets[number], done.publications[number])
            size_bytes += sum(p.size_bytes for p in done.publications[number].values())
        if size_bytes:
            effects.append(do.ReleaseBudget(size_bytes))
        if done.start is not None and isinstance(done.start.body, StreamStarted):
            self.stream, self.epoch = done.start.body, done.start.epoch
            effects += self._close_root()
        self._due_us = now_us + self._limits.commit_interval_us
        return effects

    def _count(self, slot: Slot, publications: dict[str, Publication]) -> None:
        for token, publication in publications.items():
            self.counts["finished"] += publication.finish is not None
            before = slot.tokens[token].totals
            for topic, totals in publication.totals.items():
                old = before.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
                sofar = self.published.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
                self.published[topic] = TopicTotals(
                    topic,
                    sofar.records + totals.records - old.records,
                    sofar.mods + totals.mods - old.mods,
                    sofar.value_bytes + totals.value_bytes - old.value_bytes,
                    checksum=0,
                )

    def _on_aborted(self, now_us: int) -> None:
        self.counts["abort"] += 1
        self.transaction = None
        for slot in self.slots.values():
            if slot.phase is SlotPhase.REVOKING:
                slot.may_publish = False  # the next owner reads it again; the group waits
        self._due_us = now_us + _REPUBLISH_DELAY_US

    def _on_unknown_outcome(self) -> list[do.Effect]:
        self.counts["unknown_outcome"] += 1
        self.transaction = None
        effects: list[do.Effect] = []
        revoking = tuple(n for n, s in self.slots.items() if s.phase is SlotPhase.REVOKING)
        kept = tuple(number for number in self.slots if number not in revoking)
        for number in list(self.slots):
            effects += self._forget(number)
        effects.append(do.RestartProducer())
        if revoking:
            effects.append(do.LetGoSlots(revoking))
        return effects + self._on_assigned(kept)

    def _begin(self, concerned: list[Slot]) -> list[do.Effect]:
        publications = {
            slot.number: {
                token: partition.publication()
                for token, partition in slot.tokens.items()
                if partition.has_news
            }
            for slot in concerned
        }
        self.transaction = OpenTransaction(
            {slot.number: slot.incarnation for slot in concerned}, publications
        )
        effects: list[do.Effect] = [do.BeginTransaction()]
        for number, by_token in publications.items():
            for token, publication in sorted(by_token.items()):
                if publication.records:
                    effects.append(do.PublishRecords(number, token, publication.records))
                if publication.finish is not None:
                    partition = self.slots[number].tokens[token]
                    effects += self._writer.finish(partition.child, publication, slot=number)
        return [*effects, do.AwaitDelivery()]

    @property
    def _writer(self) -> ProgressWriter:
        return ProgressWriter(
            self.epoch or self._new_epoch,
            self.name,
            self._identity.slots,
            self._limits.chunk_items_max,
        )

    # ------------------------------------------------------------ opening a stream

    def _open_stream(self, root_slot: Slot, now_us: int) -> list[do.Effect]:
        """Drive the initial query, and once it is proved, the transaction that opens the epoch."""
        if self._root is None:
            start_ns = now_us * NS_PER_US if self._start_ns is None else self._start_ns
            self._root = StreamPartition(ChildPartition(ROOT_TOKEN, (), start_ns))
        root = self._root
        if root.state is PartitionState.SCHEDULED and root.retry_at_us <= now_us:
            return [self._start_query(root)]
        if root.state is not PartitionState.FINISHED or self.transaction is not None:
            return []
        if now_us < self._due_us:
            return []  # an abort just now: whoever polls in between may learn why
        finish = root.publication().finish
        invariant(finish, "the initial query finished without children")
        children = () if finish is None else finish[1]
        started = self._identity.started(
            start_ns=root.child.start_ns, end_ns=self._end_ns, children=children
        )
        number = root_slot.number
        self.transaction = OpenTransaction(
            {number: root_slot.incarnation},
            {number: {}},
            start=ProgressRecord(self._new_epoch, self.name, started),
        )
        effects: list[do.Effect] = [do.BeginTransaction()]
        effects += self._writer.record(started, slot=number, author_slot=number)
        for child in children:
            effects += self._writer.announcement(child, parent=ROOT_TOKEN, author_slot=number)
        return [*effects, do.AwaitDelivery()]

    # ------------------------------------------------------------ what can go on, goes on

    def _advance(self, now_us: int) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for slot in list(self.slots.values()):
            if slot.phase is SlotPhase.RECOVERING and slot.has_caught_up:
                effects += self._after_recovery(slot, now_us)
            if slot.phase is SlotPhase.OWNED:
                effects += [
                    self._start_query(partition)
                    for partition in slot.tokens.values()
                    if partition.state is PartitionState.SCHEDULED
                    and partition.retry_at_us <= now_us
                ]
        if self.transaction is None:
            effects += self._next_transaction(now_us)
        if self._draining and not self.slots and self.transaction is None:
            effects.append(do.Stop(None))
        return effects

    def _after_recovery(self, slot: Slot, now_us: int) -> list[do.Effect]:
        effects: list[do.Effect] = []
        if self.stream is None and slot.stream_start is not None:
            effects += self._on_stream_start(slot.stream_start)
        if self.epoch is not None:
            slot.own(self.epoch)
            return effects
        if slot.number == self._root_slot and slot.lacks_stream_start and not self._draining:
            return self._open_stream(slot, now_us)
        return effects

    def _next_transaction(self, now_us: int) -> list[do.Effect]:
        revoking = [s for s in self.slots.values() if s.phase is SlotPhase.REVOKING]
        if revoking:
            unsaved = [s for s in revoking if s.may_publish and s.has_news]
            if unsaved:
                return self._begin(unsaved)
            return self._let_go(revoking)
        owned = [s for s in self.slots.values() if s.phase is SlotPhase.OWNED]
        moved = [s for s in owned if s.has_news]
        due = {s.number: s for s in owned if s.needs_snapshot(now_us)}
        size = sum(p.pending_bytes for s in moved for p in s.tokens.values())
        is_due = now_us >= self._due_us or size >= self._limits.commit_bytes_max
        concerned = {**due, **{slot.number: slot for slot in moved}}
        if not concerned or not is_due:
            return []
        return self._begin([concerned[number] for number in sorted(concerned)])

    def _let_go(self, slots: list[Slot]) -> list[do.Effect]:
        numbers = tuple(slot.number for slot in slots)
        effects: list[do.Effect] = []
        for number in numbers:
            effects += self._forget(number)
        effects.append(do.LetGoSlots(numbers))
        return effects

    # ------------------------------------------------------------ queries

    def _start_query(self, partition: StreamPartition) -> do.StartQuery:
        self._queries += 1
        start_ns = partition.begin_query(self._queries)
        return do.StartQuery(partition.child.token, self._queries, start_ns)

    def _stop_query(self, partition: StreamPartition) -> list[do.Effect]:
        query_id = partition.stop_query()
        return [] if query_id is None else [do.StopQuery(partition.child.token, query_id)]

    def _stop_queries(self, slot: Slot) -> list[do.Effect]:
        return [
            effect for partition in slot.tokens.values() for effect in self._stop_query(partition)
        ]

    def _forget(self, number: int) -> list[do.Effect]:
        slot = self.slots.pop(number)
        effects = self._stop_queries(slot)
        size = sum(partition.pending_bytes for partition in slot.tokens.values())
        if size:
            effects.append(do.ReleaseBudget(size))
        return effects + self._close_root() if number == self._root_slot else effects

    def _close_root(self) -> list[do.Effect]:
        """End the initial query: the epoch is open, or another worker has to open it."""
        root, self._root = self._root, None
        if root is None:
            return []
        effects = self._stop_query(root)
        return [*effects, do.ReleaseBudget(root.pending_bytes)] if root.pending_bytes else effects

    @property
    def _root_slot(self) -> int:
        return slot_of(ROOT_TOKEN, self._identity.slots)

    def _running(self, token: str, query_id: int) -> StreamPartition | None:
        """Return the stream partition whose running query this is, or None if it is not wanted."""
        if token == ROOT_TOKEN:
            partition = self._root
        else:
            slot = self.slots.get(slot_of(token, self._identity.slots))
            partition = None if slot is None else slot.tokens.get(token)
        return partition if partition is not None and partition.query_id == query_id else None

    def _bound_ns(self) -> int | None:
        return self._end_ns if self.stream is None else self.stream.end_ns

    # ------------------------------------------------------------ inspection

    @property
    def watermark_us(self) -> int | None:
        """The least published watermark of the owned tokens; None without one."""
        marks = [
            p.published.watermark_us for slot in self.slots.values() for p in slot.tokens.values()
        ]
        return min(marks, default=None)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the worker contradicts itself."""
        for number, slot in self.slots.items():
            invariant(number == slot.number, "a slot under another number", slot=number)
            slot.check_invariants()
            for token in slot.tokens:
                home = slot_of(token, self._identity.slots)
                invariant(home == number, "a token in another's slot", token=token, slot=number)
        if self.transaction is not None:
            for number, incarnation in self.transaction.incarnations.items():
                slot_now = self.slots.get(number)
                invariant(
                    self.transaction.is_decided
                    or (slot_now is not None and slot_now.incarnation == incarnation),
                    "a transaction speaks for a slot that is gone",
                    slot=number,
                )
