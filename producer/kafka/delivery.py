"""The delivery reports of one transaction, and the rejected messages.

Classifies rejected messages; the core decides what follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from tidegate.producer.core.effects import PublishProgress
from tidegate.producer.core.events import DeliveryFailure, DeliveryFault
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord, batch_bytes
from tidegate.schemas.progress import SlotChanges, SlotProgress, TopicOffset

_FAULTS = {
    KafkaError.MSG_SIZE_TOO_LARGE: DeliveryFault.TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: DeliveryFault.TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: DeliveryFault.DENIED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: DeliveryFault.DENIED,
    KafkaError.INVALID_RECORD: DeliveryFault.INVALID,
    KafkaError.INVALID_TIMESTAMP: DeliveryFault.INVALID,
    KafkaError.POLICY_VIOLATION: DeliveryFault.INVALID,
    KafkaError.TOPIC_EXCEPTION: DeliveryFault.INVALID,
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: DeliveryFault.INVALID,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: DeliveryFault.INVALID,
}
_KEY_BYTES_SHOWN = 80


def fault_of(error: KafkaError) -> DeliveryFault:
    """Return whether a message that was rejected with this error may pass later."""
    return _FAULTS.get(error.code(), DeliveryFault.TRANSIENT)


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A failed message; `records` are the records that it was produced with."""

    error: KafkaError
    slot: int
    topic: str
    key: bytes
    value: bytes
    records: Sequence[PublishableRecord] = ()

    @property
    def weight(self) -> tuple[bool, int]:
        """Importance of the failure: a permanent fault first, then the size."""
        lasts = fault_of(self.error) is not DeliveryFault.TRANSIENT
        return lasts, len(self.key) + len(self.value)

    def failure(self) -> DeliveryFailure:
        """Return the failure for the core; a report lacks headers, so the record is looked up."""
        size_bytes, commit_timestamp_us = batch_bytes(self.key, self.value), None
        for record in self.records:
            changes: list[ChangeMessage | ParkedChange] = [*record.messages, *record.parked]
            for message in changes:
                if message.key != self.key:
                    continue
                if message.value == self.value:
                    size_bytes = message.size_bytes
                if not self.value or message.value == self.value:  # a tombstone has its change's
                    commit_timestamp_us = record.commit_timestamp_us
        return DeliveryFailure(
            fault=fault_of(self.error),
            reason=self.error.name(),
            slot=self.slot,
            topic=self.topic,
            key=repr(self.key[:_KEY_BYTES_SHOWN])[2:-1],
            size_bytes=size_bytes,
            commit_timestamp_us=commit_timestamp_us,
        )


class Refusals:
    """The most important failed message of each topic: a permanent fault first, then the largest.

    A batch is rejected as a whole, and its largest message is the likely cause.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._by_topic: dict[str, RefusedMessage] = {}

    def add(self, refused: RefusedMessage) -> None:
        """Add a failed message."""
        former = self._by_topic.get(refused.topic)
        if former is None or refused.weight > former.weight:
            self._by_topic[refused.topic] = refused

    def failure(self) -> DeliveryFailure | None:
        """Return the most important failed message of all topics; None if none failed."""
        if not self._by_topic:
            return None
        return max(self._by_topic.values(), key=lambda refused: refused.weight).failure()

    def failures(self) -> dict[str, DeliveryFailure]:
        """Return the most important failed message, by topic."""
        return {topic: refused.failure() for topic, refused in self._by_topic.items()}


Callback = Callable[[KafkaError | None, Message], None]


_FAILURES_MAX = 10


class DeliveryReports:
    """The offsets of a slot's messages and snapshots, and the failures."""

    def __init__(self) -> None:
        """Start with nothing reported."""
        self.failures: deque[str] = deque(maxlen=_FAILURES_MAX)
        self.refusals = Refusals()
        self.snapshots: dict[int, int] = {}
        """The offset of each slot's snapshot: the offset of its chunk 0."""
        self._last_offsets: dict[int, dict[tuple[str, int], int]] = {}

    @property
    def written(self) -> dict[int, tuple[TopicOffset, ...]]:
        """The last offset in each topic partition, by the slot that wrote it."""
        return {
            slot: tuple(TopicOffset(*place, offset) for place, offset in sorted(places.items()))
            for slot, places in self._last_offsets.items()
        }

    def of_changes(self, slot: int, records: Sequence[PublishableRecord] = ()) -> Callback:
        """Return the callback for messages of these records, which count in this slot's vector."""
        last_offsets = self._last_offsets.setdefault(slot, {})

        def on_report(error: KafkaError | None, report: Message) -> None:
            delivered = self._place_of(error, report, slot, records)
            if delivered is not None:
                place, offset = delivered
                if offset > last_offsets.get(place, -1):
                    last_offsets[place] = offset

        return on_report

    def of_parked(self, slot: int, records: Sequence[PublishableRecord]) -> Callback:
        """Return the callback for the parked changes of these records, which count in no vector."""

        def on_report(error: KafkaError | None, report: Message) -> None:
            self._place_of(error, report, slot, records)

        return on_report

    def of_progress(self, effect: PublishProgress) -> Callback:
        """Return the callback for one progress record."""
        if effect.author_slot is not None:
            return self.of_changes(effect.author_slot)
        body = effect.record.body
        is_snapshot = isinstance(body, SlotProgress | SlotChanges) and body.chunk == 0

        def on_report(error: KafkaError | None, report: Message) -> None:
            delivered = self._place_of(error, report, effect.slot)
            if delivered is not None and is_snapshot:
                self.snapshots[effect.slot] = delivered[1]

        return on_report

    def refuse(self, refused: RefusedMessage) -> None:
        """Add a failed message."""
        self.failures.append(f"{refused.topic}: {refused.error.str()}")
        self.refusals.add(refused)

    def _place_of(
        self,
        error: KafkaError | None,
        report: Message,
        slot: int,
        records: Sequence[PublishableRecord] = (),
    ) -> tuple[tuple[str, int], int] | None:
        """Return (topic, topic partition) and the offset; None for a report without them."""
        topic, number, offset = report.topic(), report.partition(), report.offset()
        if error is not None:
            key, value = bytes(report.key() or b""), bytes(report.value() or b"")
            self.refuse(RefusedMessage(error, slot, topic or "", key, value, records))
        elif topic is None or number is None or offset is None or offset < 0:
            self.failures.append(f"{topic}: a delivery report without an offset")
        else:
            return (topic, number), offset
        return None
