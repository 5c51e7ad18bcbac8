"""A worker that is alone in its group, commits one transaction, and reads nothing.

It joins the group as any other worker and takes over all slots, so that its one transaction passes
the fence only if no other worker is there.  Either all of it is committed or nothing: after every
other end the same is done again from the beginning.
"""

from __future__ import annotations

from abc import abstractmethod

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.now import Now
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.worker import Worker
from tidegate.schemas.errors import ConfigError, TidegateError


class SoleWorker(Worker):
    """What such workers share.

    It never starts a query, opens no stream, and publishes nothing by itself.  Its last effect is
    `Stop`: without an error once the transaction is committed, or after a drain before it began;
    with the error of `_failure` otherwise, or a `ConfigError` if there is no stream.
    """

    @property
    def is_ready(self) -> bool:
        """Whether every slot is owned, so that no transaction of another worker is open any more.

        Everything that workers have committed is then in Kafka.  The recorded tables were read too.
        """
        return (
            self.stream is not None
            and self._tables.is_at_end
            and len(self.slots) == self._identity.slots
            and all(slot.phase is SlotPhase.OWNED for slot in self.slots.values())
        )

    @abstractmethod
    def _failure(self, reason: str, **fields: object) -> TidegateError:
        """Return the error that says that nothing was done, or that the outcome is not known."""

    def _handle(self, event: on.Event, now: Now) -> list[do.Effect]:
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

    # ------------------------------------------------------------ what a reading worker does

    def _schedule_queries(self, _now: Now) -> list[do.Effect]:
        return []

    def _due_transaction(self, _now: Now) -> list[do.Effect]:
        return []

    def _open_stream(self, _root_slot: Slot, _now: Now) -> list[do.Effect]:
        message = "the progress topic holds no stream: no worker has published anything"
        return [do.Stop(ConfigError(message, hint="Check the prefix"))]
