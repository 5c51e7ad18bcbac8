"""The loop of one worker: events to the core, effects to the ports, outcomes back as events.

One thread does all of it, so that the core sees one order of events; each running query has a
thread of its own that only fills the inbox.  Within a call of the core, effects are carried out in
order; as soon as one of a transaction fails, the rest of that transaction's effects are dropped and
the failure is the event.
"""

from __future__ import annotations

import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, assert_never

import structlog

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.schemas.errors import InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.core.worker import Worker
    from tidegate.schemas.errors import TidegateError
    from tidegate.schemas.progress import ProgressRecord

__all__ = ["FleetWorker", "Publisher", "Reader", "Slots", "StreamStart"]

_IDLE_S = 0.02
_REVOKE_PATIENCE_S = 60.0
_Failure = on.TransactionAborted | on.CommitOutcomeUnknown | on.ProducerFenced
_log = structlog.get_logger()


class Publisher(Protocol):
    """The transactional producer (`adapters.kafka_publisher`)."""

    def start(self) -> None: ...  # noqa: D102 - the adapter says what each does
    def begin(self, metadata: bytes | None) -> _Failure | None: ...  # noqa: D102
    def publish_records(self, effect: do.PublishRecords) -> _Failure | None: ...  # noqa: D102
    def publish_progress(self, effect: do.PublishProgress) -> _Failure | None: ...  # noqa: D102
    def await_delivery(self) -> on.Delivered | _Failure: ...  # noqa: D102
    def send_offsets(self, offsets: tuple[tuple[int, int], ...]) -> _Failure | None: ...  # noqa: D102
    def commit(self) -> on.TransactionCommitted | on.CommitUnanswered | _Failure: ...  # noqa: D102
    def abort(self, reason: str) -> _Failure: ...  # noqa: D102


class Slots(Protocol):
    """The consumer group (`adapters.kafka_slots`)."""

    def start(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def poll(self, timeout_s: float) -> list[on.Event]: ...  # noqa: D102
    def metadata(self) -> bytes | None: ...  # noqa: D102
    def recover(self, slot: int, incarnation: int) -> on.SlotRecoveryBegun: ...  # noqa: D102
    def has_successor(self) -> bool: ...  # noqa: D102


class Reader(Protocol):
    """One running query (`driver.partition_reader`)."""

    def start(self) -> None: ...  # noqa: D102
    def stop(self) -> None: ...  # noqa: D102


class StreamStart(Protocol):
    """The search for the epoch's first record."""

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord | None, bool]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class FleetWorker:
    """See the module.  `run` returns when the worker was drained, and raises what stopped it."""

    def __init__(
        self,
        worker: Worker,
        *,
        publisher: Publisher,
        open_reader: Callable[[do.StartQuery, Callable[[on.ReaderOutput], None]], Reader],
        open_stream_start: Callable[[], StreamStart],
        release_budget: Callable[[int], None],
        observe: Callable[[on.Event, Worker], None] = lambda _event, _worker: None,
    ) -> None:
        """Wire; `attach` gives the slots, whose listener this object is."""
        self._worker = worker
        self._publisher = publisher
        self._open_reader = open_reader
        self._open_stream_start = open_stream_start
        self._release_budget = release_budget
        self._observe = observe
        self._slots: Slots | None = None
        self._inbox: SimpleQueue[on.ReaderOutput] = SimpleQueue()
        self._readers: dict[int, Reader] = {}
        self._stream_start: StreamStart | None = None
        self._held: set[int] = set()
        self._is_stopped = False
        self._error: TidegateError | None = None
        self._drain_asked = False
        self._step = ""

    def attach(self, slots: Slots) -> None:
        """Give the worker its group membership."""
        self._slots = slots

    def request_drain(self) -> None:
        """Ask `run` to commit what was read and to return; safe in a signal handler."""
        self._drain_asked = True

    def run(self) -> None:
        """Work until drained or stopped; raises the error that stopped it."""
        slots = self._group
        self._publisher.start()
        slots.start()
        try:
            while not self._is_stopped:
                self._turn(slots)
        finally:
            for reader in self._readers.values():
                reader.stop()
            if self._stream_start is not None:
                self._stream_start.close()
            self._held.clear()
            slots.close()
        if self._error is not None:
            raise self._error

    def _turn(self, slots: Slots) -> None:
        if self._drain_asked:
            self._drain_asked = False
            self._pump(on.DrainRequested())
            return
        for event in slots.poll(0.0):
            self._pump(event)
        if self._stream_start is not None:
            record, _ = self._stream_start.poll()
            if record is not None:
                self._stream_start.close()
                self._stream_start = None
                self._pump(on.StreamStartFound(record))
        self._note_step("idle")
        self._read_inbox()
        self._pump(on.Ticked())

    def _read_inbox(self) -> None:
        """Take everything that waits; wait a moment if there is nothing."""
        timeout_s = _IDLE_S
        for _ in range(10_000):
            try:
                output = self._inbox.get(timeout=timeout_s) if timeout_s else self._inbox.get(False)
            except Empty:
                return
            timeout_s = 0.0
            if not isinstance(output, on.RecordsRead):
                self._readers.pop(output.query_id, None)
            if isinstance(output, on.QueryFailed):
                _log.warning("a query failed", token=output.token, error=str(output.error))
            self._pump(output)

    # ------------------------------------------------------------ the group's listener

    def slots_assigned(self, slots: tuple[int, ...]) -> None:
        """Take slots over."""
        _log.info("slots assigned", slots=slots)
        self._held.update(slots)
        self._pump(on.SlotsAssigned(slots))

    def slots_revoked(self, slots: tuple[int, ...]) -> None:
        """Commit and stop what belongs to the slots; return when they may go."""
        _log.info("slots revoked", slots=slots)
        held = tuple(slot for slot in slots if slot in self._held)
        if not held:
            return
        give_up_at = time.monotonic() + _REVOKE_PATIENCE_S
        self._pump(on.SlotsRevoked(held))
        while self._held.intersection(held) and not self._is_stopped:
            if time.monotonic() > give_up_at:
                self._held.difference_update(held)
                self._pump(on.SlotsLost(held))
                return
            time.sleep(_IDLE_S)
            self._pump(on.Ticked())

    def slots_lost(self, slots: tuple[int, ...]) -> None:
        """Drop what belongs to the slots."""
        held = tuple(slot for slot in slots if slot in self._held)
        self._held.difference_update(held)
        if held:
            _log.warning("slots lost", slots=held)
            self._pump(on.SlotsLost(held))

    # ------------------------------------------------------------ effects

    def _pump(self, event: on.Event) -> None:
        waiting = deque([event])
        while waiting:
            now_us = time.time_ns() // 1_000
            current = waiting.popleft()
            try:
                effects = self._worker.handle(current, now_us=now_us)
            except InvariantViolation as violation:
                self._is_stopped, self._error = True, violation
                return
            self._observe(current, self._worker)
            failed = False
            for effect in effects:
                if isinstance(effect, do.TransactionEffect):
                    outcome = None if failed else self._publish(effect)
                    failed = failed or isinstance(outcome, _Failure)
                else:
                    outcome = self._carry_out(effect)
                if outcome is not None:
                    waiting.append(outcome)
                if self._is_stopped:
                    return

    def _publish(self, effect: do.TransactionEffect) -> on.Event | None:
        match effect:
            case do.BeginTransaction():
                self._note_step("begin")
                outcome: on.Event | None = self._publisher.begin(self._group.metadata())
            case do.PublishRecords():
                self._note_step("publish")
                outcome = self._publisher.publish_records(effect)
            case do.PublishProgress():
                self._note_step("snapshot" if effect.author_slot is None else "publish")
                outcome = self._publisher.publish_progress(effect)
            case do.AwaitDelivery():
                outcome = self._publisher.await_delivery()
            case do.SendOffsets():
                self._note_step("fence")
                outcome = self._publisher.send_offsets(effect.offsets)
            case do.CommitTransaction():
                self._note_step("commit")
                outcome = self._publisher.commit()
            case do.AbortTransaction():
                outcome = self._publisher.abort("a slot of the transaction was lost")
            case _:
                assert_never(effect)
        return self._explained(outcome)

    def _explained(self, outcome: on.Event | None) -> on.Event | None:
        """Ask the group about a fence, for the core to judge it."""
        if isinstance(outcome, on.TransactionAborted | on.CommitOutcomeUnknown):
            _log.debug("no commit", reason=outcome.reason)
        if not isinstance(outcome, on.ProducerFenced):
            return outcome
        has_successor = self._group.has_successor()
        if not has_successor:
            _log.warning("a transaction was ended by its time-out")
        return on.ProducerFenced(has_successor=has_successor)

    def _carry_out(self, effect: do.LocalEffect) -> on.Event | None:
        match effect:
            case do.RecoverSlot():
                return self._group.recover(effect.slot, effect.incarnation)
            case do.FindStreamStart():
                self._stream_start = self._open_stream_start()
            case do.StartQuery():
                _log.debug("query", token=effect.token, start_ns=effect.start_ns)
                reader = self._open_reader(effect, self._inbox.put)
                self._readers[effect.query_id] = reader
                reader.start()
            case do.StopQuery():
                self._close_reader(effect.query_id)
            case do.ReleaseBudget():
                self._release_budget(effect.size_bytes)
            case do.RestartProducer():
                _log.warning("restarting the producer after an unknown outcome")
                self._publisher.start()
            case do.LetGoSlots():
                self._held.difference_update(effect.slots)
            case do.Stop():
                self._is_stopped, self._error = True, effect.error
            case _:
                assert_never(effect)
        return None

    def _close_reader(self, query_id: int) -> None:
        reader = self._readers.pop(query_id, None)
        if reader is not None:  # it may have ended by itself, with its report still in the inbox
            reader.stop()

    def _note_step(self, step: str) -> None:
        if step != self._step:
            self._step = step
            _log.debug("step", step=step)

    @property
    def _group(self) -> Slots:
        if self._slots is None:
            message = "a worker runs without a group"
            raise InvariantViolation(message)
        return self._slots
