"""Which process owns a worker's name: a register that outlasts processes and sessions.

The broker cannot tell two processes of one name apart.  It fences static members whose join was
retried, and producers whose transaction took too long, just as it fences a process that has been
replaced; and its description of a member that was replaced still shows the former client.

So each process claims its name when it starts: in the metadata of an offset, which is otherwise
unused, of a group that has no members (`<group>-<worker>`).  The last claim is the successor's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from tidegate.producer.kafka.admin import RetryingAdmin
    from tidegate.producer.kafka.committed_offsets import CommittedOffsets

__all__ = ["NameClaim"]

_UNUSED_OFFSET = 0


class NameClaim:
    """One process's claim to a worker's name; `process` is unique to the process.

    The offset is that of topic partition 0 of `topic`, which must exist.
    """

    def __init__(
        self,
        admin: RetryingAdmin,
        claims: CommittedOffsets,
        *,
        topic: str,
        process: str,
    ) -> None:
        """Take what reads the offsets of the name's own group, which is the register."""
        self._admin = admin
        self._claims = claims
        self._register = claims.group
        self._topic = topic
        self._process = process

    def claim(self) -> None:
        """Write the claim, over that of any predecessor; raises UnreachableError."""
        place = TopicPartition(self._topic, 0, _UNUSED_OFFSET, self._process)
        request = ConsumerGroupTopicPartitions(self._register, [place])

        def ask(admin: AdminClient) -> None:
            answers = admin.alter_consumer_group_offsets([request], request_timeout=CALL_TIMEOUT_S)
            (written,) = answers[self._register].result().topic_partitions
            if written.error is not None:
                raise KafkaException(written.error)

        self._admin.call(ask, "cannot claim the worker's name", name=self._register)

    def has_successor(self) -> bool:
        """Whether another process claimed the name after this one; raises UnreachableError."""
        message = "cannot look up the worker's name"
        place = self._claims.find(self._topic, 0, message, name=self._register)
        return (place.metadata or "") not in {"", self._process}
