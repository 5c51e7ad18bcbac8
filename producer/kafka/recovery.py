"""Where reading a slot starts after an assignment, and where its recovery ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidegate.producer.kafka.admin import RetryingAdmin

__all__ = ["SlotRecovery"]


class SlotRecovery:
    """Looks up offsets of the slots of one progress topic; both calls raise UnreachableError."""

    def __init__(self, admin: RetryingAdmin, *, group: str, topic: str) -> None:
        self._admin = admin
        self._group = group
        self._topic = topic

    def fence_offset(self, slot: int) -> int | None:
        """Return the offset that the slot's last fence committed; None if there was no fence.

        Waits while a transaction that would move it is open.
        """
        # Not by the group's own consumer: this may be called inside its rebalance callback, and if
        # the group then fences that consumer, it never answers.
        place = TopicPartition(self._topic, slot)
        request = ConsumerGroupTopicPartitions(self._group, [place])

        def ask(admin: AdminClient) -> int | None:
            answers = admin.list_consumer_group_offsets(
                [request], require_stable=True, request_timeout=CALL_TIMEOUT_S
            )
            (committed,) = answers[self._group].result().topic_partitions
            if committed.error is not None:
                raise KafkaException(committed.error)
            return int(committed.offset) if committed.offset >= 0 else None

        return self._admin.call(ask, "cannot read the group's offsets", slot=slot)

    def uncommitted_end(self, slot: int) -> int:
        """Return the slot's end, records of open transactions included.

        A `read_committed` consumer's own end would stop before the former owner's transaction.
        """
        place = TopicPartition(self._topic, slot)

        def ask(admin: AdminClient) -> int:
            answers = admin.list_offsets(
                {place: OffsetSpec.latest()},
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=CALL_TIMEOUT_S,
            )
            return int(answers[place].result().offset)

        return self._admin.call(ask, "cannot find the slot's end", slot=slot)
