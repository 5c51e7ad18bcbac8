"""Where reading a slot starts after an assignment, and where its recovery ends."""

from __future__ import annotations

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S, RetryingAdmin
from tidegate.producer.kafka.committed_offsets import CommittedOffsets
from tidegate.program.kafka_clients import listed_offset


class SlotRecovery:
    """Looks up offsets of the slots of one progress topic; both calls raise UnreachableError."""

    def __init__(self, admin: RetryingAdmin, committed: CommittedOffsets, *, topic: str) -> None:
        """Take what reads the offsets of the fleet's group."""
        self._admin = admin
        self._committed = committed
        self._topic = topic

    def fence_offset(self, slot: int) -> int | None:
        """Return the offset that the slot's last fence committed; None if there was no fence.

        Waits while a transaction that would move it is open.
        """
        message = "cannot read the group's offsets"
        offset = self._committed.find(self._topic, slot, message, slot=slot).offset
        return int(offset) if offset >= 0 else None

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
            return listed_offset(answers[place].result())

        return self._admin.call(ask, "cannot find the slot's end", slot=slot)
