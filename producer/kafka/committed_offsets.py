"""What a group has committed for a topic partition, asked by a consumer that never joins it.

Not by an admin client: where the group's coordinator has moved, librdkafka 2.16 follows a pointer
that only a consumer has, and the process ends with a segmentation fault (reported for the same call
as issue 374 of confluent-kafka-javascript).  Not by the member itself either: this may be called
inside its rebalance callback, and if the group then fences it, it never answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S, RetryingClient
from tidegate.program.kafka_clients import make_client

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CommittedOffsets"]


class CommittedOffsets:
    """The committed offsets of one group; for one thread."""

    def __init__(self, config: Mapping[str, Any], *, group: str) -> None:
        """Take the options that all clients share; nothing is sent yet."""
        self.group = group
        options = {
            **config,
            "group.id": group,
            "enable.auto.commit": False,
            # Then the answer waits for open transactions that would move the offset.
            "isolation.level": "read_committed",
        }
        self._client = RetryingClient(lambda: make_client(Consumer, options))

    def find(self, topic: str, topic_partition: int, message: str, **fields: Any) -> TopicPartition:
        """Return the place with its `offset`, negative if none is committed, and its `metadata`.

        Waits for a minute while a transaction that would move it is open, or nobody answers; then
        raises UnreachableError with the message and the fields.  Raises ConfigError if an ACL is
        missing.
        """
        place = TopicPartition(topic, topic_partition)

        def ask(client: Consumer) -> TopicPartition:
            (found,) = client.committed([place], timeout=CALL_TIMEOUT_S)
            if found.error is not None:
                raise KafkaException(found.error)
            return found

        return self._client.call(ask, message, **fields)

    def close(self) -> None:
        """Drop the client; the next call makes another one."""
        self._client.close()
