"""The messages of one transaction that client or broker refused, and which of them matters.

Classifies them, and decides nothing: what follows is the core's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError

from tidegate.producer.core.events import DeliveryFailure, DeliveryFault
from tidegate.producer.messages import ChangeMessage, ParkedChange, PublishableRecord, batch_bytes

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
    """Return whether a message that was refused with this error may pass later."""
    return _FAULTS.get(error.code(), DeliveryFault.TRANSIENT)


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """A message that failed; `records` are those that it was produced with."""

    error: KafkaError
    slot: int
    topic: str
    key: bytes
    value: bytes
    records: Sequence[PublishableRecord] = ()

    @property
    def weight(self) -> tuple[bool, int]:
        """What a lasting fault, and then its size, makes of its importance."""
        lasts = fault_of(self.error) is not DeliveryFault.TRANSIENT
        return lasts, len(self.key) + len(self.value)

    def failure(self) -> DeliveryFailure:
        """Return what the core gets; a report lacks headers, so the record is looked up."""
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
    """For each topic the message that matters most: with a lasting fault, then the largest.

    A batch is refused as a whole, and its largest message is the likely cause.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._by_topic: dict[str, RefusedMessage] = {}

    def add(self, refused: RefusedMessage) -> None:
        """Note a message that failed."""
        known = self._by_topic.get(refused.topic)
        if known is None or refused.weight > known.weight:
            self._by_topic[refused.topic] = refused

    def failure(self) -> DeliveryFailure | None:
        """Return the message that matters most over all topics; None if none failed."""
        if not self._by_topic:
            return None
        return max(self._by_topic.values(), key=lambda refused: refused.weight).failure()

    def failures(self) -> dict[str, DeliveryFailure]:
        """Return the message that matters most, by topic."""
        return {topic: refused.failure() for topic, refused in self._by_topic.items()}
