"""A worker that puts parked changes back, and reads nothing.

It joins the group as any other worker and takes over all slots, so that its one transaction passes
the fence only if no other worker is there.  That transaction holds the changes, a marker for each
key, and the heartbeats of all slots with tokens that held one of the keys, now without it; and the
record of a later table whose every change so far is parked, so that no worker has found its topic.
Either all of it is committed or nothing: after every other end the same is done again from the
beginning.

The changes come from outside, as events: what is parked does not fit into a core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.transaction import TransactionPhase
from tidegate.producer.core.worker import Worker
from tidegate.producer.errors import RedriveFailed
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import ROOT_TOKEN

if TYPE_CHECKING:
    from tidegate.producer.core.now import Now
    from tidegate.producer.core.slot import Slot

__all__ = ["RedrivingWorker"]


class RedrivingWorker(Worker):
    """The decisions of the one worker that puts parked changes back.

    It never starts a query, opens no stream, and publishes nothing before `RedriveBegan`.  Its last
    effect is `Stop`: without an error once the transaction is committed, or after a drain before it
    began; with a `RedriveFailed` otherwise, or a `ConfigError` if there is no stream.
    """

    @property
    def is_ready_to_redrive(self) -> bool:
        """Whether every slot is owned, so that no transaction of another worker is open any more.

        What was parked up to now is in the dead-letter topic before its uncommitted end.  The
        recorded tables were read too.
        """
        return (
            self.stream is not None
            and self._tables.is_at_end
            and len(self.slots) == self._identity.slots
            and all(slot.phase is SlotPhase.OWNED for slot in self.slots.values())
        )

    # ------------------------------------------------------------ events

    def _handle(self, event: on.Event, now: Now) -> list[do.Effect]:
        match event:
            case on.RedriveBegan():
                return self._begin(event.keys)
            case on.RedriveRead() | on.RedriveEnded():
                return self._put_back(event)
            case on.TransactionCommitted():
                effects, _ = self._cycle.commit(now.monotonic_us)
                return [*effects, do.Stop(None)]
            case on.TransactionAborted():
                return [_failed(event.reason, event.failure)]
            case on.CommitOutcomeUnknown():
                return [_failed(f"its commit has no known outcome: {event.reason}", event.failure)]
            case on.CommitUnanswered():
                retry = self._cycle.retry_commit(now.monotonic_us)
                return retry or [_failed(f"its commit was not answered: {event.reason}")]
            case on.ProducerFenced():
                return [_failed("the broker rejects the producer")]
            case on.SlotsRevoked() | on.SlotsLost():
                aborts = self._cycle.abort_open("slots were taken away: a worker has joined")
                return aborts + super()._handle(event, now)
            case on.DrainRequested():
                return self._cycle.abort_open("it was asked to stop") + super()._handle(event, now)
            case _:
                return super()._handle(event, now)

    def _begin(self, keys: frozenset[int]) -> list[do.Effect]:
        """Begin the transaction, over the root's slot and every slot that holds one of the keys.

        The tokens forget the keys at once: whatever happens, the process ends after it.
        """
        if not self.is_ready_to_redrive or self._cycle.open is not None:
            return [_failed("a slot is not owned")]
        holding = [slot for slot in self.slots.values() if slot.put_back(keys)]
        return self._cycle.begin_empty({*holding, self.slots[self._root_slot]})

    def _put_back(self, event: on.RedriveRead | on.RedriveEnded) -> list[do.Effect]:
        """Publish changes for the root's slot, or wait until all of them are delivered."""
        one = self._cycle.open
        if one is None or one.phase is not TransactionPhase.PUBLISHING:
            return []  # it was aborted while they were read
        if isinstance(event, on.RedriveEnded):
            return [do.AwaitDelivery()]
        due = self._tables.due(self._tables.waited_for(event.records))
        tables = [table for table in due if table not in one.tables]
        one.tables += tables
        return [
            *(
                effect
                for table in tables
                for effect in self._writer.table(table, author_slot=self._root_slot)
            ),
            do.PublishRecords(self._root_slot, ROOT_TOKEN, event.records),
        ]

    # ------------------------------------------------------------ what a reading worker does

    def _schedule_queries(self, _now: Now) -> list[do.Effect]:
        return []

    def _due_transaction(self, _now: Now) -> list[do.Effect]:
        return []

    def _open_stream(self, _root_slot: Slot, _now: Now) -> list[do.Effect]:
        message = "the progress topic holds no stream: no worker has published anything"
        return [do.Stop(ConfigError(message, hint="Check the prefix"))]


def _failed(reason: str, failure: on.DeliveryFailure | None = None) -> do.Stop:
    if failure is None:
        return do.Stop(RedriveFailed(reason))
    return do.Stop(RedriveFailed(reason, topic=failure.topic, key=failure.key))
