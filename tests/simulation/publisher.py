"""The transactional client as the worker's core sees it, on the broker in memory.

It stands for `producer.adapters.kafka_publisher`: records wait in the client's queue until they are
flushed, by a wait for their delivery or by the commit; the group's metadata is that of the moment
when the transaction began; a refusal becomes the event that the adapter makes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from zlib import crc32

from tests.simulation.group import GroupRefusal, Metadata
from tests.simulation.kafka import Broker, Fenced, Handle, Place, Transaction
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.schemas.progress import PartitionFinished, SlotProgress, TopicOffset
from tidegate.schemas.progress_codec import encode_key
from tidegate.schemas.topics import TopicNames

__all__ = ["Publisher", "PublisherFaults"]

Failure = on.TransactionAborted | on.CommitOutcomeUnknown | on.ProducerFenced


@dataclass(frozen=True, slots=True)
class PublisherFaults:
    """Chances of one call to fail."""

    refused: float = 0.0
    """A request is answered with an error that aborts the transaction."""
    reply_lost: float = 0.0
    """A commit's answer does not come, whether it took place or not."""


@dataclass(slots=True)
class _Waiting:
    place: Place
    key: bytes
    value: object
    author_slot: int | None
    snapshot_of: int | None


@dataclass(eq=False)
class Publisher:
    """See the module."""

    name: str
    broker: Broker
    names: TopicNames
    topic_partitions: int
    random: Random
    metadata: Callable[[], Metadata]
    on_commit: Callable[[Transaction, frozenset[int], tuple[str, ...]], None]
    """Told of a commit that took place: the slots it speaks for, the tokens it finishes."""
    faults: Callable[[], PublisherFaults] = PublisherFaults

    def start(self) -> None:
        """Take the transactional id over."""
        self.handle: Handle = self.broker.init(self.name)
        self._queue: list[_Waiting] = []
        self._written: dict[int, dict[Place, int]] = {}
        self._snapshots: dict[int, int] = {}
        self._speaks_for: set[int] = set()
        self._finished: list[str] = []
        self._metadata: Metadata | None = None
        self.is_open = self._has_reached_broker = self._is_told = False

    def carry_out(self, effect: do.TransactionEffect) -> on.Event | None:
        """Do what is asked; return what came of it, or None when the next may follow."""
        try:
            if self.random.random() < self.faults().refused and not isinstance(
                effect, do.AbortTransaction
            ):
                return self._abort("refused")
            return self._carry_out(effect)
        except Fenced:
            self.is_open = False
            return on.ProducerFenced()
        except GroupRefusal:
            return self._abort("the group refuses")

    def _carry_out(self, effect: do.TransactionEffect) -> on.Event | None:
        match effect:
            case do.BeginTransaction():
                return self._begin()
            case do.PublishRecords():
                for record in effect.records:
                    for message in record.messages:
                        number = crc32(message.key) % self.topic_partitions
                        self._send((message.topic, number), message.key, message, effect.slot, None)
            case do.PublishProgress():
                body = effect.record.body
                if isinstance(body, PartitionFinished) and body.chunk == 0:
                    self._finished.append(body.token)
                is_first = isinstance(body, SlotProgress) and body.chunk == 0
                snapshot_of = effect.slot if effect.author_slot is None and is_first else None
                place = (self.names.progress, effect.slot)
                key = encode_key(body)
                self._send(place, key, effect.record, effect.author_slot, snapshot_of)
            case do.AwaitDelivery():
                self._flush()
                written = {
                    slot: tuple(TopicOffset(*place, offset) for place, offset in sorted(of.items()))
                    for slot, of in self._written.items()
                }
                return on.Delivered(written, dict(self._snapshots))
            case do.SendOffsets():
                self._has_reached_broker = True
                self.broker.send_offsets(self.handle, effect.offsets, self._fence_metadata())
            case do.CommitTransaction():
                return self._commit()
            case do.AbortTransaction():
                # Void when the transaction has its outcome already, which is on its way.
                return self._abort("asked for") if self.is_open else None
        return None

    # ------------------------------------------------------------ inside

    def _begin(self) -> on.Event | None:
        self._metadata = self.metadata()
        self._queue.clear()
        self._written.clear()
        self._snapshots.clear()
        self._speaks_for.clear()
        self._finished.clear()
        self.is_open, self._has_reached_broker, self._is_told = True, False, False
        if self._metadata.generation < 0 or not self._metadata.member_id:
            return self._abort("no member of the group")
        return None

    def _fence_metadata(self) -> Metadata:
        """Return the group's metadata as they were when the transaction began."""
        assert self._metadata is not None, "a fence outside a transaction"
        return self._metadata

    def _send(
        self, place: Place, key: bytes, value: object, author: int | None, snapshot: int | None
    ) -> None:
        speaker = snapshot if author is None else author
        if speaker is not None:
            self._speaks_for.add(speaker)
        self._queue.append(_Waiting(place, key, value, author, snapshot))
        if self.random.random() < 0.1:
            self._flush()

    def _flush(self) -> None:
        for waiting in self._queue:
            self._has_reached_broker = True
            offset = self.broker.produce(self.handle, waiting.place, waiting.key, waiting.value)
            if waiting.author_slot is not None:
                self._written.setdefault(waiting.author_slot, {})[waiting.place] = offset
            elif waiting.snapshot_of is not None:
                self._snapshots[waiting.snapshot_of] = offset
        self._queue.clear()

    def _commit(self) -> on.Event:
        """Commit; request or reply may be lost, and some losses allow no further question."""
        self._flush()
        is_lost = self.random.random() < self.faults().reply_lost
        if not is_lost or self.random.random() < 0.5:
            self._end()
        if not is_lost:
            self.is_open = False
            return on.TransactionCommitted()
        if self.random.random() < 0.5:
            return on.CommitUnanswered("no answer")
        self.is_open = False
        return on.CommitOutcomeUnknown("no answer, and no way to ask")

    def _end(self) -> None:
        transaction = self.broker.end(self.handle, commit=True)
        if transaction is not None and not self._is_told:
            self._is_told = True
            self.on_commit(transaction, frozenset(self._speaks_for), tuple(self._finished))

    def _abort(self, reason: str) -> on.Event:
        self.is_open = False
        self._queue.clear()
        if not self._has_reached_broker:
            return on.TransactionAborted(reason)  # the broker has never heard of it
        try:
            self.broker.end(self.handle, commit=False)
        except Fenced:
            return on.ProducerFenced()
        return on.TransactionAborted(reason)
