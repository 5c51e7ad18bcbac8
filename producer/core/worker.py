"""One worker's whole state machine: slots, stream partitions, and the transaction cycle over them.

Only `handle(event, now=…)` changes it.  It returns effects, which are carried out in order; their
outcomes return as events.

After an abort the next cycle publishes the same records again, unless a slot was lost meanwhile.
After an unknown outcome no state is kept: every slot is read again from the log.
"""

from __future__ import annotations

from typing import assert_never

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.fleet import FleetAlignment
from tidegate.producer.core.group_watch import GroupWatch
from tidegate.producer.core.inspection import InspectedWorker, Story
from tidegate.producer.core.lifecycle import LEAVING, SlotChange, SlotPhase
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.queries import Queries
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.stream_opening import StreamOpening, StreamStartSearch
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.stream_topics import StreamTopics
from tidegate.producer.core.transaction_cycle import TransactionCycle, WorkerLimits
from tidegate.producer.core.undeliverable import UndeliverableRecords
from tidegate.producer.errors import ProducerFencedError, ProgressLost, TopicsChangedError
from tidegate.schemas.errors import InvariantViolation, TidegateError, invariant
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


class Worker(InspectedWorker):
    """The decisions of one worker.

    `epoch`, `start_ns` (None: now) and `end_ns` are used only if this worker opens the stream.
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
        self.name = name
        self.slots: dict[int, Slot] = {}
        self.stream: StreamStarted | None = None
        self.epoch: str | None = None
        self._identity = identity
        self._new_epoch = epoch
        self._end_ns = end_ns
        self._limits = limits or WorkerLimits()
        self.counters = Counters()
        self._index = PartitionIndex(identity.slots, self._limits.queries.scheduler)
        has_moves = self._limits.queries.window_us is not None
        self._fleet = FleetAlignment(self.slots, self._index, with_moves=has_moves)
        self._commands = OperatorCommands(name)
        self._tables = StreamTopics(identity, version=self._limits.heartbeats.version)
        self._cycle = TransactionCycle(
            self.slots, self._index,
            tables=self._tables, commands=self._commands,
            limits=self._limits, counters=self.counters,
        )  # fmt: skip
        self._undeliverable = UndeliverableRecords()
        self._incarnations = 0
        self._queries = Queries(self.counters, limits=self._limits.queries)
        self._start_search = StreamStartSearch()
        self._draining = False
        self._leaves_group = False
        self._opening = StreamOpening(
            identity, self._queries, self._cycle, start_ns=start_ns, end_ns=end_ns
        )
        self._story = Story(identity.slots)
        self._group_watch = GroupWatch(
            worker=name, slots=identity.slots, limits=self._limits.group_watch
        )

    # ------------------------------------------------------------ events

    def handle(self, event: on.Event, *, now: on.Now) -> list[do.Effect]:
        """Return the effects of an event, in order.

        Raises only InvariantViolation, with the story of its subject; the worker cannot be used
        after that.
        """
        self._story.add(event, now_us=now.wall_us)
        try:
            effects = self._handle(event, now)
        except InvariantViolation as violation:
            violation.story = self._story.about(violation.fields)
            raise
        for effect in effects:
            self._story.add(effect, now_us=now.wall_us)
            if isinstance(effect, do.ReportStopped) and effect.token != ROOT_TOKEN:
                self.slots[slot_of(effect.token, self._identity.slots)].note_stop(effect.token)
        return effects

    def _handle(self, event: on.Event, now: on.Now) -> list[do.Effect]:
        effects: list[do.Effect] = []
        now_us = now.monotonic_us
        match event:
            case on.SlotsAssigned():
                effects += self._on_assigned(event.slots)
            case on.SlotsRevoked():
                effects += self._on_revoked(event.slots)
            case on.SlotsLost():
                effects += self._on_lost(event.slots)
            case on.SlotRecoveryStarted() | on.ProgressRead() | on.SlotOutOfRange():
                effects += self._on_slot_read(event)
            case on.SlotPositionAdvanced():
                effects += self._on_slot_read(event)
                slot = self.slots.get(event.slot)
                if not effects and slot is not None and slot.phase is SlotPhase.OWNED:
                    return effects  # the worker's own records: nothing waits for this position
            case on.StreamStartFound():
                effects += self._on_stream_start(event.record)
            case on.StreamStartAbsent():
                effects += self._on_stream_start_absent(event.search_id)
            case (
                on.RecordsRead()
                | on.QueryEnded()
                | on.QueryFailed()
                | on.QueryPaused()
                | on.QueryResumed()
            ):
                effects += self._on_reader_output(event, now_us)
            case on.Delivered():
                effects += self._on_delivered(event, now)
            case on.TransactionCommitted():
                effects += self._on_committed(now_us)
            case on.TransactionAborted():
                if self._cycle.is_commit_unanswered:
                    effects += self._on_unknown_outcome()
                else:
                    self._cycle.abort(now_us)
                    effects += self._on_refused(event.failure)
            case on.CommitOutcomeUnknown():
                stop = self._undeliverable.refused(event.failure).stops
                effects += stop or self._on_unknown_outcome()
            case on.CommitUnanswered():
                retry = self._cycle.retry_commit(now_us)
                effects += retry or self._on_unknown_outcome()
            case on.ProducerFenced():
                if event.has_successor:
                    effects.append(do.Stop(ProducerFencedError(self.name)))
                else:
                    effects += self._on_unknown_outcome()
            case on.GroupDescribed():
                effects += self._on_group_described(event, now_us)
            case on.TopicsObserved() | on.TableFound():
                effects += self._tables.handle(event, now_us=now_us)
            case on.RootSlotRead():
                effects += self._on_root_slot(event, now_us)
            case on.FleetRead():
                self._fleet.handle(event, now_us)
                self._queries.publish_sources(event.published, self._find)
            case on.AccessDenied() | on.ProgressReadLost():
                effects.append(do.Stop(event.error))
            case on.ReadInterrupted():
                pass
            case on.DrainRequested():
                effects += self._on_drain(leaves_group=event.leaves_group)
            case on.RedriveBegan() | on.RedriveRead() | on.RedriveEnded() | on.GapsAccepted():
                raise InvariantViolation(
                    "parked changes or gaps for a worker that does not take them", worker=self.name
                )
            case on.Ticked():
                if event.has_read_inbox:
                    effects += self._queries.repeat_stalled(now_us)
            case _:
                assert_never(event)
        return effects + self._advance(now)

    def _on_assigned(self, numbers: tuple[int, ...]) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in numbers:
            invariant(number not in self.slots, "slot assigned twice", slot=number)
            self._incarnations += 1
            self.slots[number] = Slot(
                number,
                self._incarnations,
                heartbeats=self._limits.heartbeats,
                changed=self._index.changed,
            )
            effects.append(do.RecoverSlot(number, self._incarnations))
        if numbers and self.stream is None:
            effects += self._start_search.begin()
        return effects

    def _on_slot_read(self, event: on.SlotReading) -> list[do.Effect]:
        slot = self._current(event.slot, event.incarnation)
        if slot is None:
            return []
        try:
            match event:
                case on.SlotRecoveryStarted():
                    begin, end = event.committed_offset, event.end_offset
                    slot.start_recovery(committed_offset=begin, end_offset=end)
                case on.ProgressRead():
                    slot.add_record(event.offset, event.record, epoch=self.epoch)
                case on.SlotPositionAdvanced():
                    slot.advance_to(event.position)
                case on.SlotOutOfRange():
                    slot.fail_reading(event.reason)
        except ProgressLost as error:
            return [do.Stop(error)]
        return []

    def _current(self, number: int, incarnation: int) -> Slot | None:
        """Return the slot, or None if the event belongs to an assignment that is over."""
        slot = self.slots.get(number)
        return slot if slot is not None and slot.incarnation == incarnation else None

    def _on_revoked(self, numbers: tuple[int, ...]) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in numbers:
            slot = self.slots[number]
            slot.move(SlotChange.REVOKED)
            effects += self._stop_queries(slot)
        return effects

    def _on_lost(self, numbers: tuple[int, ...]) -> list[do.Effect]:
        effects: list[do.Effect] = []
        for number in numbers:
            effects += self._drop_slot(number)
        return effects + self._cycle.abort_if_lost(numbers)

    def _on_stream_start(self, record: ProgressRecord) -> list[do.Effect]:
        if self.stream is not None or not isinstance(record.body, StreamStarted):
            return []
        try:
            self._identity.require(record.body)
        except TidegateError as error:
            return [do.Stop(error)]
        self.stream = record.body
        self.epoch = record.epoch
        self._commands.open(record.epoch)
        follow = self._fleet.follow(record.epoch)
        report = [do.ReportPause(is_paused=True)] if self.is_paused else []
        return [*self._tables.open(record), *self._opening.drop(), *follow, *report]

    def _on_stream_start_absent(self, search_id: int) -> list[do.Effect]:
        if self.stream is not None or not self._start_search.is_decided_by(search_id):
            return []
        message = "the root's slot holds no StreamStarted, although snapshots were committed"
        return [do.Stop(ProgressLost(message, slot=self._root_slot))]

    def _on_reader_output(self, event: on.ReaderOutput, now_us: int) -> list[do.Effect]:
        partition = self._running(event.token, event.query_id)
        if partition is None:
            if isinstance(event, on.RecordsRead):
                return [do.ReleaseBudget(((event.token, event.size_bytes),))]
            return []
        match event:
            case on.RecordsRead():
                end_ns = self._end_ns if self.stream is None else self.stream.end_ns
                return self._queries.add_records(partition, event, end_ns=end_ns, now_us=now_us)
            case on.QueryEnded():
                self._queries.end(partition, now_us)
            case on.QueryFailed():
                return self._queries.fail(partition, event.error, now_us)
            case on.QueryPaused():
                self._queries.pause(event)
            case on.QueryResumed():
                self._queries.resume(partition, event)
        return []

    def _on_group_described(self, event: on.GroupDescribed, now_us: int) -> list[do.Effect]:
        if self._draining:
            return []  # leaving starts a rebalance anyway
        effect = self._group_watch.handle(event, now_us=now_us)
        if effect is None:
            return []
        is_rejoin = isinstance(effect, do.RejoinGroup)
        self.counters.counts["rejoin" if is_rejoin else "client_replaced"] += 1
        return [effect]

    def _on_drain(self, *, leaves_group: bool) -> list[do.Effect]:
        self._draining = True
        self._leaves_group = self._leaves_group or leaves_group
        return self._on_revoked(tuple(self.slots))

    def _on_root_slot(self, event: on.RootSlotRead, now_us: int) -> list[do.Effect]:
        try:
            self._commands.advance(event)
        except ProgressLost as error:
            return [do.Stop(error)]
        return [*self._tables.handle(event, now_us=now_us), *self._on_commands(event)]

    def _on_commands(self, event: on.RootSlotRead) -> list[do.Effect]:
        was_paused = self.is_paused
        self._commands.handle(event)
        if self._commands.is_drained and not self._leaves_group:
            return self._on_drain(leaves_group=True)
        report = [] if self.is_paused is was_paused else [do.ReportPause(self.is_paused)]
        return [*self._obey_pause(), *report]

    def _obey_pause(self) -> list[do.Effect]:
        """Stop all queries if the stream is paused; their read records are published."""
        if self._commands.paused_by is None:
            return []
        return [effect for slot in self.slots.values() for effect in self._stop_queries(slot)]

    def _on_delivered(self, event: on.Delivered, now: on.Now) -> list[do.Effect]:
        try:
            return self._cycle.deliver(event, self._writer, now)
        except (ProgressLost, TopicsChangedError) as error:
            return [do.AbortTransaction(error.message), do.Stop(error)]

    def _on_committed(self, now_us: int) -> list[do.Effect]:
        if self._cycle.open is not None and self._undeliverable.is_counting:
            self._undeliverable.delivered(self._cycle.open.data_topics)
        effects, started = self._cycle.commit(now_us)
        return effects if started is None else effects + self._on_stream_start(started)

    def _on_refused(self, failure: on.DeliveryFailure | None) -> list[do.Effect]:
        verdict = self._undeliverable.refused(failure)
        effects: list[do.Effect] = [*verdict.stops]
        for number in verdict.slots_to_read_again:
            slot = self.slots.get(number)
            if slot is not None and slot.phase is SlotPhase.OWNED:
                effects += self._drop_slot(number) + self._on_assigned((number,))
        return effects

    def _on_unknown_outcome(self) -> list[do.Effect]:
        self._cycle.drop()
        effects: list[do.Effect] = []
        revoking = tuple(number for number, slot in self.slots.items() if slot.is_leaving)
        kept = tuple(number for number in self.slots if number not in revoking)
        for number in list(self.slots):
            effects += self._drop_slot(number)
        effects.append(do.RestartProducer())
        if revoking:
            effects.append(do.ReleaseSlots(revoking))
        return effects + self._on_assigned(kept)

    @property
    def _writer(self) -> ProgressWriter:
        return ProgressWriter(
            self.epoch or self._new_epoch,
            self.name,
            self._identity.slots,
            self._limits.chunk_items_max,
            self._limits.chunk_bytes_max,
        )

    # ------------------------------------------------------------ what is due after an event

    def _advance(self, now: on.Now) -> list[do.Effect]:
        effects: list[do.Effect] = []
        if self.stream is None:
            effects += self._start_search.poll(self.slots.values(), now_us=now.monotonic_us)
        for slot in list(self.slots.values()):
            if slot.phase is SlotPhase.RECOVERING and slot.has_caught_up:
                effects += self._after_recovery(slot, now)
        effects += self._schedule_queries(now)
        if self._cycle.open is None:
            effects += self._next_transaction(now)
        if self._draining and not self.slots and self._cycle.open is None:
            effects.append(do.Stop(None, leaves_group=self._leaves_group))
        return effects

    def _after_recovery(self, slot: Slot, now: on.Now) -> list[do.Effect]:
        effects: list[do.Effect] = []
        if self.stream is None and slot.stream_start is not None:
            effects += self._on_stream_start(slot.stream_start)
        if self.epoch is not None:
            try:
                slot.own(self.epoch)
                self._commands.await_control(slot.paused_by or 0)
                effects.append(do.ReadAnnouncements(slot.number, slot.incarnation))
            except ProgressLost as error:
                effects.append(do.Stop(error))
            self._queries.delay(slot.tokens.values())
            return effects
        if slot.number == self._root_slot and slot.lacks_stream_start and not self._draining:
            return self._open_stream(slot, now)
        return effects

    def _open_stream(self, root_slot: Slot, now: on.Now) -> list[do.Effect]:
        return self._opening.go_on(root_slot, self._writer, now)

    def _schedule_queries(self, now: on.Now) -> list[do.Effect]:
        self._fleet.look(now.monotonic_us)
        if not self._commands.may_read:
            return self._queries.report(self._index.states, now.monotonic_us)
        return self._queries.schedule(self._index, self._owned, now.monotonic_us)

    def _next_transaction(self, now: on.Now) -> list[do.Effect]:
        leaving = [slot for slot in self.slots.values() if slot.phase in LEAVING]
        if leaving:
            revoking = [slot for slot in leaving if slot.phase is SlotPhase.REVOKING]
            unsaved = [slot for slot in revoking if self._cycle.has_news(slot.number)]
            return self._cycle.begin(unsaved, self._writer) if unsaved else self._release(leaving)
        return self._due_transaction(now)

    def _due_transaction(self, now: on.Now) -> list[do.Effect]:
        due = self._cycle.due_slots(now)
        return self._cycle.begin(due, self._writer) if due else []

    def _release(self, slots: list[Slot]) -> list[do.Effect]:
        numbers = tuple(slot.number for slot in slots)
        effects: list[do.Effect] = []
        for number in numbers:
            effects += self._drop_slot(number)
        effects.append(do.ReleaseSlots(numbers))
        return effects

    # ------------------------------------------------------------ queries

    def _stop_queries(self, slot: Slot) -> list[do.Effect]:
        return [
            effect for partition in slot.tokens.values() for effect in self._queries.stop(partition)
        ]

    def _drop_slot(self, number: int) -> list[do.Effect]:
        slot = self.slots.pop(number)
        slot.move(SlotChange.DROPPED)
        effects = self._stop_queries(slot)
        sizes = self._index.remove(slot.tokens.values())
        if sizes:
            effects.append(do.ReleaseBudget(sizes))
        return effects + self._opening.drop() if number == self._root_slot else effects

    @property
    def _root_slot(self) -> int:
        return slot_of(ROOT_TOKEN, self._identity.slots)

    def _owned(self, token: str) -> StreamPartition | None:
        slot = self.slots[slot_of(token, self._identity.slots)]
        return slot.tokens[token] if slot.phase is SlotPhase.OWNED else None

    def _find(self, token: str) -> StreamPartition | None:
        slot = self.slots.get(slot_of(token, self._identity.slots))
        return None if slot is None else slot.tokens.get(token)

    def _running(self, token: str, query_id: int) -> StreamPartition | None:
        """Return the stream partition of a running query; None if the query was stopped."""
        partition = self._opening.root if token == ROOT_TOKEN else self._find(token)
        return partition if partition is not None and partition.query_id == query_id else None
