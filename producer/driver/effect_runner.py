"""Carries out the effects of a worker's core, one at a time.

The effects of one call of the core are carried out in order.  The result of an effect is the next
event for the core, after the effects of the same call.  As soon as one effect of a transaction
fails, the remaining effects of that transaction are dropped, and the failure is the event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import assert_never

import structlog

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.log_lines import LineRate
from tidegate.producer.driver.runtime import now_on
from tidegate.producer.ports import (
    Clock,
    Membership,
    OpenReader,
    Publisher,
    Reader,
    StreamStartFinder,
)
from tidegate.schemas.errors import InvariantViolation, TidegateError, invariant

_log = structlog.get_logger()


class EffectRunner:
    """One core and the ports that its effects need; `attach` sets the membership.

    For one thread.  `is_stopped` turns true with the core's `Stop`, or when the core contradicts
    itself; `error` is the reason, None after a drain.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        publisher: Publisher,
        open_reader: OpenReader,
        open_stream_start: Callable[[], StreamStartFinder],
        deliver: Callable[[on.ReaderOutput], None],
        release_budget: Callable[[Iterable[tuple[str, int]]], None],
        clock: Clock,
        observe: Callable[[on.Event, Worker], None] = lambda _event, _worker: None,
    ) -> None:
        self.worker = worker
        self.held: set[int] = set()
        """Assigned slots that are not yet released, revoked or lost."""
        self.stream_start: StreamStartFinder | None = None
        """The running search for the epoch's first record."""
        self.search_id = 0
        """The number of that search."""
        self.is_stopped = False
        self.error: TidegateError | None = None
        self.leaves_group = False
        """Whether the worker gives up its place in the group when it stops."""
        self._publisher = publisher
        self._membership: Membership | None = None
        self._open_reader = open_reader
        self._open_stream_start = open_stream_start
        self._deliver = deliver
        self._release_budget = release_budget
        self._clock = clock
        self._observe = observe
        self._readers: dict[int, Reader] = {}
        self._effects: deque[do.Effect] = deque()
        self._events: deque[on.Event] = deque()
        self._step = ""
        self._failure_lines = LineRate()

    def attach(self, membership: Membership) -> None:
        """Set the worker's group membership."""
        self._membership = membership

    @property
    def membership(self) -> Membership:
        """The membership; raises InvariantViolation before `attach`."""
        if self._membership is None:
            raise InvariantViolation("a worker runs without a group")
        return self._membership

    def close(self) -> None:
        """Stop every reader and the search for the stream's start."""
        for reader in self._readers.values():
            reader.stop()
        self._readers.clear()
        if self.stream_start is not None:
            self.stream_start.close()

    # ------------------------------------------------------------ events

    def process(self, event: on.Event) -> None:
        """Pass an event to the core, and carry out all effects that follow."""
        self._events.append(event)
        while self.run_next():
            pass

    def pass_on(self, event: on.Event) -> None:
        """Pass an event to the core and queue its effects; all earlier effects must be done."""
        invariant(not self._effects, "an event before the effects of the last one", event=event)
        if isinstance(event, on.QueryEnded | on.QueryFailed):
            self._readers.pop(event.query_id, None)
        try:
            effects = self.worker.handle(event, now=now_on(self._clock))
        except InvariantViolation as violation:
            self._stop(violation)
            return
        self._observe(event, self.worker)
        self._effects.extend(effects)

    def run_next(self) -> bool:
        """Carry out the next effect or pass on the next event; return whether there was one."""
        if self.is_stopped:
            return False
        if self._effects:
            self._run(self._effects.popleft())
        elif self._events:
            self.pass_on(self._events.popleft())
        else:
            return False
        return True

    # ------------------------------------------------------------ effects

    def _run(self, effect: do.Effect) -> None:
        if isinstance(effect, do.TransactionEffect):
            outcome = self._publish(effect)
            if isinstance(outcome, on.TransactionFailure):
                self._drop_transaction()
        else:
            outcome = self._run_local(effect)
        if outcome is not None:
            self._events.append(outcome)

    def _drop_transaction(self) -> None:
        effects = [
            effect for effect in self._effects if not isinstance(effect, do.TransactionEffect)
        ]
        self._effects = deque(effects)

    def _publish(self, effect: do.TransactionEffect) -> on.Event | None:
        match effect:
            case do.BeginTransaction():
                self._note_step("begin")
                outcome: on.Event | None = self._publisher.begin(self.membership.metadata())
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
                outcome = self._publisher.abort(effect.reason)
            case _:
                assert_never(effect)
        return self._explain(outcome)

    def _explain(self, outcome: on.Event | None) -> on.Event | None:
        """Add to `ProducerFenced` whether another process took the worker's name."""
        if isinstance(outcome, on.TransactionAborted | on.CommitOutcomeUnknown):
            self._note_failure(outcome)
        if not isinstance(outcome, on.ProducerFenced):
            return outcome
        has_successor = self.membership.has_successor()
        if not has_successor:
            _log.warning("transaction ended by its time-out")
        return on.ProducerFenced(has_successor=has_successor)

    def _run_local(self, effect: do.LocalEffect) -> on.Event | None:
        match effect:
            case do.RecoverSlot():
                return self.membership.recover(effect.slot, effect.incarnation)
            case do.ReadAnnouncements():
                self.membership.read_announcements(effect.slot, effect.incarnation)
            case do.FindStreamStart():
                if self.stream_start is not None:
                    self.stream_start.close()
                self.search_id = effect.search_id
                self.stream_start = self._open_stream_start()
            case do.StartQuery():
                _log.debug("query started", token=effect.token, start_ns=effect.start_ns)
                return self._start_query(effect)
            case do.StopQuery():
                self._stop_reader(effect.query_id)
            case do.ReleaseBudget():
                self._release_budget(effect.sizes)
            case do.RestartProducer():
                _log.warning("producer restarted after a commit of unknown outcome")
                self._publisher.start()
            case do.ReleaseSlots():
                self.held.difference_update(effect.slots)
            case do.RejoinGroup():
                _log.warning("slots are unassigned; rejoining the group", slots=effect.unassigned)
                self.membership.rejoin()
            case do.WatchTopic():
                self.membership.watch(effect.topic)
            case do.FollowFleet():
                self.membership.follow(effect.epoch, with_moves=effect.with_moves)
            case do.AwaitSources():
                self.membership.await_sources(effect.sources)
            case do.ReplaceGroupClient():
                _log.warning("not a member of the group; joining with a new client")
                self.membership.replace_client()
            case do.ReportPause():
                if effect.is_paused:
                    _log.info("the stream is paused")
                else:
                    _log.info("the stream is resumed")
            case do.ReportStopped():
                _log.error(
                    "stream partition stopped",
                    token=effect.token,
                    error=str(effect.error),
                    watermark_us=effect.watermark_us,
                )
            case do.ReportWaiting():
                _log.info(
                    "stream partitions wait for a query",
                    queued=effect.queued,
                    paused=effect.paused,
                    running=effect.running,
                    held=effect.held,
                )
            case do.Stop():
                self.leaves_group = effect.leaves_group
                if effect.leaves_group:
                    _log.info("drained; leaving the group")
                self._stop(effect.error)
            case _:
                assert_never(effect)
        return None

    def _start_query(self, effect: do.StartQuery) -> on.QueryFailed | None:
        """Start a reader; a query that cannot be opened has failed like one that was running."""
        try:
            reader = self._open_reader(effect, self._deliver)
        except InvariantViolation:
            raise
        except TidegateError as error:
            _log.warning("query failed", token=effect.token, error=str(error))
            return on.QueryFailed(effect.token, effect.query_id, error)
        self._readers[effect.query_id] = reader
        reader.start()
        return None

    def _stop_reader(self, query_id: int) -> None:
        reader = self._readers.pop(query_id, None)
        if reader is not None:  # it may have ended by itself, with its report still in the inbox
            reader.stop()

    def _stop(self, error: TidegateError | None) -> None:
        self.is_stopped, self.error = True, error
        self._effects.clear()
        self._events.clear()

    def _note_failure(self, outcome: on.TransactionAborted | on.CommitOutcomeUnknown) -> None:
        left_out = self._failure_lines.admit(self._clock.monotonic_us())
        if left_out is None:
            return
        failure = outcome.failure
        cause = {} if failure is None else {"failure": failure.reason, "topic": failure.topic}
        _log.warning("transaction not committed", reason=outcome.reason, **cause, left_out=left_out)

    def _note_step(self, step: str) -> None:
        if step != self._step:
            self._step = step
            _log.debug("step", step=step)
