"""Workers that are alone in their group: they commit one transaction and read nothing.

Such a worker joins the group as any other worker and takes over all slots, so that its transaction
passes the fence only if there is no other worker.  The transaction is atomic: after any other
outcome the command is repeated from the beginning.

Parked changes and gaps come from outside, as events: parked changes do not fit into a core, and
only Spanner knows what can be read.
"""

from __future__ import annotations

from abc import abstractmethod

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.transaction_cycle import TransactionPhase
from tidegate.producer.core.worker import Worker
from tidegate.producer.errors import GapNotAccepted, RedriveFailed
from tidegate.schemas.errors import ConfigError, TidegateError
from tidegate.schemas.progress import PartitionGap
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


class SoleWorker(Worker):
    """The common part of such workers.

    It never starts a query, opens no stream, and publishes nothing by itself.  Its last effect is
    `Stop`: without an error once the transaction is committed, or after a drain before it began;
    otherwise with the error of `_failure`, or a `ConfigError` if there is no stream.
    """

    @property
    def is_ready(self) -> bool:
        """Whether every slot is owned and the recorded tables were read.

        Then no transaction of another worker is open, and everything that workers have committed is
        in Kafka.
        """
        return (
            self.stream is not None
            and self._tables.is_at_end
            and len(self.slots) == self._identity.slots
            and all(slot.phase is SlotPhase.OWNED for slot in self.slots.values())
        )

    @abstractmethod
    def _failure(self, reason: str, **fields: object) -> TidegateError:
        """Return the error for a run that did nothing, or whose outcome is unknown."""

    def _handle(self, event: on.Event, now: on.Now) -> list[do.Effect]:
        match event:
            case on.TransactionCommitted():
                effects, _ = self._cycle.commit(now.monotonic_us)
                return [*effects, do.Stop(None)]
            case on.TransactionAborted():
                return [self._failed(event.reason, event.failure)]
            case on.CommitOutcomeUnknown():
                reason = f"its commit has no known outcome: {event.reason}"
                return [self._failed(reason, event.failure)]
            case on.CommitUnanswered():
                retry = self._cycle.retry_commit(now.monotonic_us)
                return retry or [self._failed(f"its commit was not answered: {event.reason}")]
            case on.ProducerFenced():
                return [self._failed("the broker rejects the producer")]
            case on.SlotsRevoked() | on.SlotsLost():
                aborts = self._cycle.abort_open("slots were taken away: a worker has joined")
                return aborts + super()._handle(event, now)
            case on.DrainRequested():
                return self._cycle.abort_open("it was asked to stop") + super()._handle(event, now)
            case _:
                return super()._handle(event, now)

    def _failed(self, reason: str, failure: on.DeliveryFailure | None = None) -> do.Stop:
        fields = {} if failure is None else {"topic": failure.topic, "key": failure.key}
        return do.Stop(self._failure(reason, **fields))

    # ------------------------------------------------------------ steps of a reading worker

    def _schedule_queries(self, _now: on.Now) -> list[do.Effect]:
        return []

    def _due_transaction(self, _now: on.Now) -> list[do.Effect]:
        return []

    def _open_stream(self, _root_slot: Slot, _now: on.Now) -> list[do.Effect]:
        message = "the progress topic holds no stream: no worker has published anything"
        return [do.Stop(ConfigError(message, hint="Check the prefix"))]


class RedrivingWorker(SoleWorker):
    """The decisions of the only worker, which puts parked changes back, from `RedriveBegan` on.

    Its transaction holds the changes, a marker for each key, and the heartbeats of all slots with
    tokens that held one of the keys, now without it; and the record of a later table that has had
    only parked changes so far, so that no worker has met its topic.
    """

    def _failure(self, reason: str, **fields: object) -> RedriveFailed:
        return RedriveFailed(reason, **fields)

    def _handle(self, event: on.Event, now: on.Now) -> list[do.Effect]:
        match event:
            case on.RedriveBegan():
                return self._begin(event.keys)
            case on.RedriveRead() | on.RedriveEnded():
                return self._put_back(event)
            case _:
                return super()._handle(event, now)

    def _begin(self, keys: frozenset[int]) -> list[do.Effect]:
        """Begin the transaction, over the root's slot and every slot that holds one of the keys.

        The tokens forget the keys at once, because the process ends after any outcome.
        """
        if not self.is_ready or self._cycle.open is not None:
            return [self._failed("a slot is not owned")]
        holding = [slot for slot in self.slots.values() if slot.put_back(keys)]
        return self._cycle.begin_empty({*holding, self.slots[self._root_slot]})

    def _put_back(self, event: on.RedriveRead | on.RedriveEnded) -> list[do.Effect]:
        """Publish changes for the root's slot, or wait until all of them are delivered."""
        transaction = self._cycle.open
        if transaction is None or transaction.phase is not TransactionPhase.PUBLISHING:
            return []  # the transaction was aborted while they were read
        if isinstance(event, on.RedriveEnded):
            return [do.AwaitDelivery()]
        due = self._tables.due(self._tables.waited_for(event.records))
        tables = [table for table in due if table not in transaction.tables]
        transaction.tables += tables
        return [
            *(
                effect
                for table in tables
                for effect in self._writer.table(table, author_slot=self._root_slot)
            ),
            do.PublishRecords(self._root_slot, ROOT_TOKEN, event.records),
        ]


class GapAcceptingWorker(SoleWorker):
    """The decisions of the only worker, which moves stream partitions past expired changes.

    Its transaction holds a `PartitionGap` for each of them and the heartbeats of their slots, with
    their positions after the gap.
    """

    def _failure(self, reason: str, **fields: object) -> GapNotAccepted:
        return GapNotAccepted(reason, **fields)

    def _handle(self, event: on.Event, now: on.Now) -> list[do.Effect]:
        if isinstance(event, on.GapsAccepted):
            return self._accept(event.gaps)
        return super()._handle(event, now)

    def _accept(self, gaps: tuple[PartitionGap, ...]) -> list[do.Effect]:
        """Begin the transaction, over the slots of the gaps.

        A position that differs from the start of its gap has moved since the gap was found: another
        run has accepted it, or the stream partition was read.
        """
        if not self.is_ready or self._cycle.open is not None:
            return [self._failed("a slot is not owned")]
        for gap in gaps:
            partition = self.slots[slot_of(gap.token, self._identity.slots)].tokens.get(gap.token)
            position_us = None if partition is None else partition.published.watermark_us
            if position_us != gap.from_us - 1:
                reason = "the position of a stream partition has moved"
                position = {"expected_us": gap.from_us - 1, "found_us": position_us}
                return [do.Stop(self._failure(reason, token=gap.token, **position))]
        for gap in gaps:
            self.slots[slot_of(gap.token, self._identity.slots)].pass_gap(gap)
        return self._cycle.begin_past_gaps(gaps, self._writer)
