"""One worker's whole state machine: slots, stream partitions, and the transaction cycle over them.

`handle(event, now_us=…)` is the only way to change it and returns what is to be done, in order.
Effects of one call are carried out in order; what comes of them returns as events.

After an abort the next cycle publishes the same again, unless a slot was lost meanwhile.  After an
unknown outcome nothing is remembered: every slot is read again from the log.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, assert_never

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.slot import Slot, SlotPhase
from tidegate.producer.core.stream_partition import PartitionState, StreamPartition
from tidegate.producer.core.tally import Tally
from tidegate.producer.core.transaction_cycle import TransactionCycle, WorkerLimits
from tidegate.producer.errors import ProducerFencedError
from tidegate.schemas.errors import TidegateError, invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import ChildPartition, ProgressRecord, StreamStarted
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.producer.core.stream_identity import StreamIdentity
    from tidegate.producer.core.transaction import OpenTransaction

__all__ = ["Worker"]

_KNOWN = (
    "slots",
    "stream",
    "epoch",
    "tally",
    "_cycle",
    "_incarnations",
    "_queries",
    "_seeking_start",
    "_draining",
    "_root",
)


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
        self._identity = identity
        self._new_epoch = epoch
        self._start_ns = start_ns
        self._end_ns = end_ns
        self._limits = limits or WorkerLimits()
        self.tally = Tally()
        self._cycle = TransactionCycle(self.slots, limits=self._limits, tally=self.tally)
        self._incarnations = 0
        self._queries = 0
        self._seeking_start = False
        self._draining = False
        self._root: StreamPartition | None = None

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
                effects += self._cycle.deliver(event, self._writer, now_us)
            case on.TransactionCommitted():
                effects += self._on_committed(now_us)
            case on.TransactionAborted():
                if self._cycle.is_doubtful:
                    effects += self._on_unknown_outcome()
                else:
                    self._cycle.abort(now_us)
            case on.CommitOutcomeUnknown():
                effects += self._on_unknown_outcome()
            case on.CommitUnanswered():
                again = self._cycle.ask_again(now_us)
                effects += again or self._on_unknown_outcome()
            case on.ProducerFenced():
                if event.has_successor:
                    effects.append(do.Stop(ProducerFencedError(self.name)))
                else:
                    effects += self._on_unknown_outcome()
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
        return effects + self._cycle.give_up(numbers)

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
            self.tally.counts["unproven_finish"] += 1
            partition.fail_query(now_us)

    def _on_query_failed(self, event: on.QueryFailed, now_us: int) -> list[do.Effect]:
        partition = self._running(event.token, event.query_id)
        if partition is None:
            return []
        if not event.error.retriable:
            return [do.Stop(event.error)]
        self.tally.counts["query_retry"] += 1
        partition.fail_query(now_us)
        return []

    def _on_drain(self) -> list[do.Effect]:
        self._draining = True
        return self._on_revoked(tuple(self.slots))

    def _on_committed(self, now_us: int) -> list[do.Effect]:
        effects, started = self._cycle.commit(now_us)
        return effects if started is None else effects + self._on_stream_start(started)

    def _on_unknown_outcome(self) -> list[do.Effect]:
        self._cycle.forget()
        effects: list[do.Effect] = []
        revoking = tuple(n for n, s in self.slots.items() if s.phase is SlotPhase.REVOKING)
        kept = tuple(number for number in self.slots if number not in revoking)
        for number in list(self.slots):
            effects += self._forget(number)
        effects.append(do.RestartProducer())
        if revoking:
            effects.append(do.LetGoSlots(revoking))
        return effects + self._on_assigned(kept)

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
        if root.state is not PartitionState.FINISHED or not self._cycle.is_due(now_us):
            return []
        finish = root.publication().finish
        invariant(finish, "the initial query finished without children")
        children = () if finish is None else finish[1]
        started = self._identity.started(
            start_ns=root.child.start_ns, end_ns=self._end_ns, children=children
        )
        return self._cycle.begin_stream(root_slot, started, self._writer)

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
        if self._cycle.open is None:
            effects += self._next_transaction(now_us)
        if self._draining and not self.slots and self._cycle.open is None:
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
            return self._cycle.begin(unsaved, self._writer) if unsaved else self._let_go(revoking)
        concerned = self._cycle.concerned(now_us)
        return self._cycle.begin(concerned, self._writer) if concerned else []

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

    def snapshot(self) -> dict[str, Any]:
        """Return all that is known here, as a value that nothing changes any more.

        It is for whoever must find out what happened, or go on from it elsewhere.  What survives a
        process is another thing: the slots' snapshots in the log.
        """
        return deepcopy({name: getattr(self, name) for name in _KNOWN})

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what a worker of the same settings was when it gave the snapshot."""
        for name, value in deepcopy(dict(snapshot)).items():
            setattr(self, name, value)

    @property
    def transaction(self) -> OpenTransaction | None:
        """The open transaction, if there is one."""
        return self._cycle.open

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
        self._cycle.check_invariants()
