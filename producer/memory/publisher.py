"""A transactional producer over the broker in memory; implements `ports.Publisher`.

Records wait in the client's queue until they are flushed: by a wait for their delivery, or by the
commit.  Values are kept as the published objects: `ChangeMessage` and `TOMBSTONE` in data topics,
`ProgressRecord` in the progress topic, `ParkedChange` in the dead-letter topic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tidegate.producer.core.effects import PublishProgress, PublishRecords
from tidegate.producer.core.events import (
    CommitUnanswered,
    Delivered,
    DeliveryFailure,
    DeliveryFault,
    ProducerFenced,
    TransactionAborted,
    TransactionCommitted,
    TransactionFailure,
)
from tidegate.producer.memory import broker as kafka
from tidegate.producer.memory.broker import (
    TOMBSTONE,
    MemoryBroker,
    Place,
    ProducerHandle,
    Transaction,
)
from tidegate.producer.memory.group import GroupRefusal, MemberMetadata
from tidegate.producer.messages import MOD_DELETE, ChangeMessage, PublishableRecord, batch_bytes
from tidegate.schemas.partitioner import topic_partition_of
from tidegate.schemas.progress import SlotChanges, SlotProgress, TopicOffset
from tidegate.schemas.progress_codec import encode_key, encode_record


@dataclass(slots=True)
class _Queued:
    place: Place
    key: bytes
    value: object
    size_bytes: int
    commit_timestamp_us: int | None
    slot: int
    """The slot of its stream partitions."""
    author_slot: int | None
    snapshot_of: int | None
    """The slot whose snapshot begins with this record; None for every other record."""


class MemoryPublisher:
    """The producer of one worker; never blocks.

    `dead_letter` is the topic of parked changes; without it there are none.  With `tombstones`,
    `TOMBSTONE` follows each DELETE in a data topic.  Records are placed by the number of topic
    partitions that each topic has when the worker starts.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        *,
        transactional_id: str,
        progress_topic: str,
        dead_letter: str = "",
        tombstones: bool = False,
    ) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self._progress_topic = progress_topic
        self._dead_letter = dead_letter
        self._tombstones = tombstones
        self.topic_partitions = Counter(topic for topic, _ in broker.logs)
        """Number of topic partitions by topic; a topic that is created later is added before its
        first record."""
        self.handle: ProducerHandle | None = None
        self.is_open = False
        self._metadata: MemberMetadata | None = None
        self._queue: list[_Queued] = []
        self._sending: _Queued | None = None
        self._written: dict[int, dict[Place, int]] = {}
        self._snapshots: dict[int, int] = {}
        self._has_reached_broker = False

    def start(self) -> None:
        """Take over the transactional id, which aborts its former producer's transaction."""
        self.handle = self.broker.init_producer(self.transactional_id)
        self._reset()

    def close(self) -> None:
        """Drop queued records; a transaction that the broker knows stays open."""
        self._reset()
        self.handle = None

    # ------------------------------------------------------------ one transaction

    def begin(self, metadata: bytes | None) -> TransactionFailure | None:
        """Begin; the broker learns of the transaction with its first record."""
        self._reset()
        if metadata is None:
            return TransactionAborted("the worker is not a member of the group")
        self._metadata = MemberMetadata.decode(metadata) if metadata else None
        self.is_open = True
        return None

    def publish_records(self, effect: PublishRecords) -> TransactionFailure | None:
        """Queue every message of the records, and their parked changes, which no vector counts."""
        for record in effect.records:
            for message in record.messages:
                self._publish_change(message, record, effect.slot)
            for change in record.parked:
                self._enqueue(
                    _Queued(
                        self._place(self._dead_letter, change.key), change.key, change,
                        change.size_bytes, record.commit_timestamp_us, effect.slot, None, None,
                    )
                )  # fmt: skip
        return None

    def _publish_change(self, message: ChangeMessage, record: PublishableRecord, slot: int) -> None:
        """Queue a change, and after a DELETE its tombstone."""
        self._enqueue(self._queued(message, message.size_bytes, message, record, slot))
        if self._tombstones and message.mod == MOD_DELETE:
            size_bytes = batch_bytes(message.key, b"")
            self._enqueue(self._queued(TOMBSTONE, size_bytes, message, record, slot))

    def _queued(
        self,
        value: object,
        size_bytes: int,
        message: ChangeMessage,
        record: PublishableRecord,
        slot: int,
    ) -> _Queued:
        """Return a record in the topic partition of a change, which counts in the slot's vector."""
        return _Queued(
            self._place(message.topic, message.key), message.key, value,
            size_bytes, record.commit_timestamp_us, slot, slot, None,
        )  # fmt: skip

    def publish_progress(self, effect: PublishProgress) -> TransactionFailure | None:
        """Queue one progress record into its slot."""
        body = effect.record.body
        is_first = isinstance(body, SlotProgress | SlotChanges) and body.chunk == 0
        snapshot_of = effect.slot if effect.author_slot is None and is_first else None
        slot = effect.slot if effect.author_slot is None else effect.author_slot
        key = encode_key(body, effect.record.version)
        value = encode_record(effect.record)
        size_bytes = batch_bytes(key, value or b"")
        entry = TOMBSTONE if value is None else effect.record
        self._enqueue(
            _Queued(
                (self._progress_topic, effect.slot), key, entry, size_bytes,
                None, slot, effect.author_slot, snapshot_of,
            )
        )  # fmt: skip
        return None

    def await_delivery(self) -> Delivered | TransactionFailure:
        """Send queued records; return the offsets of the whole transaction so far."""
        try:
            self.flush()
        except kafka.ProducerFenced:
            return self._fenced()
        except kafka.MessageRefused:
            return self.abort_refused()
        except kafka.UnknownTopicPartition as error:
            return self.abort(f"unknown topic partition {error}")
        offsets_by_slot = {
            slot: tuple(TopicOffset(*place, offset) for place, offset in sorted(offsets.items()))
            for slot, offsets in self._written.items()
        }
        return Delivered(offsets_by_slot, dict(self._snapshots))

    def send_offsets(self, offsets: tuple[tuple[int, int], ...]) -> TransactionFailure | None:
        """Send the fence with the metadata of `begin`."""
        self._has_reached_broker = True
        try:
            self.broker.send_offsets(self._started, offsets, self._fence_metadata())
        except kafka.ProducerFenced:
            return self._fenced()
        except GroupRefusal:
            return self.abort("the group refused the offsets")
        return None

    def commit(self) -> TransactionCommitted | CommitUnanswered | TransactionFailure:
        """Commit."""
        try:
            self.flush()
            self.end_transaction()
        except kafka.ProducerFenced:
            return self._fenced()
        except kafka.MessageRefused:
            return self.abort_refused()
        self.is_open = False
        return TransactionCommitted()

    def abort(self, reason: str) -> TransactionFailure:
        """Abort; nothing of the transaction remains."""
        self.is_open = False
        self._queue.clear()
        if not self._has_reached_broker:
            return TransactionAborted(reason)  # the broker received nothing of it
        try:
            self.broker.end(self._started, commit=False)
        except kafka.ProducerFenced:
            return ProducerFenced()
        return TransactionAborted(reason)

    # ------------------------------------------------------------ parts, for models with faults

    def flush(self) -> None:
        """Send queued records.

        Raises the broker's ProducerFenced, MessageRefused and UnknownTopicPartition.
        """
        for queued in self._queue:
            self._has_reached_broker = True
            self._sending = queued
            offset = self.broker.produce(
                self._started, queued.place, queued.key, queued.value, size_bytes=queued.size_bytes
            )
            if queued.author_slot is not None:
                self._written.setdefault(queued.author_slot, {})[queued.place] = offset
            elif queued.snapshot_of is not None:
                self._snapshots[queued.snapshot_of] = offset
        self._queue.clear()

    def refusal(self) -> DeliveryFailure:
        """Return the message that `MessageRefused` was about."""
        refused = self._sending
        assert refused is not None, "nothing was sent"  # noqa: S101 - a misuse
        topic = refused.place[0]
        return DeliveryFailure(
            fault=DeliveryFault.TOO_LARGE,
            reason="MSG_SIZE_TOO_LARGE",
            slot=refused.slot,
            topic=topic,
            key=repr(refused.key)[2:-1],
            size_bytes=refused.size_bytes,
            commit_timestamp_us=refused.commit_timestamp_us,
            limit_bytes=self.broker.bytes_max(topic),
        )

    def abort_refused(self) -> TransactionFailure:
        """Abort after `MessageRefused`, and return the failure with its message."""
        failure = self.refusal()
        outcome = self.abort(f"{failure.topic}: a message is too large")
        return outcome if isinstance(outcome, ProducerFenced) else replace(outcome, failure=failure)

    def end_transaction(self) -> Transaction | None:
        """Commit at the broker, without reporting it.  Raises its `ProducerFenced`."""
        return self.broker.end(self._started, commit=True)

    def _place(self, topic: str, key: bytes) -> Place:
        if topic not in self.topic_partitions:  # created since the client started
            # The broker rejects a topic that was deleted since as unknown.
            self.topic_partitions[topic] = self.broker.topic_partitions(topic) or 1
        return topic, topic_partition_of(key, self.topic_partitions[topic])

    def _enqueue(self, queued: _Queued) -> None:
        self._queue.append(queued)

    def _fence_metadata(self) -> MemberMetadata:
        """Return the metadata as they were when the transaction began."""
        assert self._metadata is not None, "a fence outside a transaction"  # noqa: S101 - a misuse
        return self._metadata

    @property
    def _started(self) -> ProducerHandle:
        assert self.handle is not None, "the producer was not started"  # noqa: S101 - a misuse
        return self.handle

    def _fenced(self) -> ProducerFenced:
        self.is_open = False
        return ProducerFenced()

    def _reset(self) -> None:
        self.is_open = self._has_reached_broker = False
        self._metadata = None
        self._queue = []
        self._sending = None
        self._written = {}
        self._snapshots = {}
