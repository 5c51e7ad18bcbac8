"""What a group has committed for a topic partition, by a consumer that never joins it.

Not by an admin client, whose requests to a coordinator end the process in librdkafka 2.16: with an
abort where the coordinator disconnects at the wrong moment (its issue 4605), and with a
segmentation fault where it has moved, because the answer's handler follows a pointer that only a
consumer has (reported as issue 374 of confluent-kafka-javascript).  Not by the member itself
either: this may be called inside its rebalance callback, and if the group then fences it, it never
answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S, RetryingClient
from tidegate.program.kafka_clients import make_client


class CommittedOffsets:
    """The committed offsets of one group; for one thread."""

    def __init__(self, config: Mapping[str, Any], *, group: str) -> None:
        """Take the options that all clients share; nothing is sent yet."""
        self.group = group
        options = {
            **config,
            "group.id": group,
            "enable.auto.commit": False,
            # This is how long a commit waits for a coordinator.
            "session.timeout.ms": int(CALL_TIMEOUT_S * 1_000),
            "heartbeat.interval.ms": 1_000,
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

    def write(self, place: TopicPartition, message: str, **fields: Any) -> None:
        """Commit the place's offset and metadata, for a group without members.

        Raises what `find` raises.
        """

        def ask(client: Consumer) -> None:
            (written,) = client.commit(offsets=[place], asynchronous=False)
            if written.error is not None:
                raise KafkaException(written.error)

        self._client.call(ask, message, **fields)

    def close(self) -> None:
        """Drop the client; the next call makes another one."""
        self._client.close()
