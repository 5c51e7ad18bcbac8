"""Reads topics of the run from their beginnings to their ends, committed messages only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_POLL_S = 0.2
_QUIET_MAX_S = 60.0
_ADMIN_S = 15.0


def topics_in(bootstrap_servers: str) -> list[str]:
    """Return the names of all topics of a broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    return sorted(admin.list_topics(timeout=_ADMIN_S).topics)


def committed_messages(bootstrap_servers: str, topics: Sequence[str]) -> Iterator[Message]:
    """Yield all committed messages; waits until no transaction is open before an end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tidegate-chaos",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        ends = ends_of(bootstrap_servers, consumer, topics)
        consumer.assign([TopicPartition(*place, 0) for place in ends])
        quiet_since = time.monotonic()
        while any(
            position.offset < ends[position.topic, position.partition]
            for position in consumer.position([TopicPartition(*place) for place in ends])
        ):
            for message in consumer.consume(1_000, _POLL_S):
                quiet_since = time.monotonic()
                error = message.error()
                if error is None:
                    yield message
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(error.str())
            if time.monotonic() - quiet_since > _QUIET_MAX_S:
                raise TimeoutError(f"Kafka does not give its records up to {ends}")
    finally:
        consumer.close()


def ends_of(
    bootstrap_servers: str, consumer: Consumer, topics: Sequence[str]
) -> dict[tuple[str, int], int]:
    """Return the ends with open transactions included, of those that hold anything."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    places = [
        TopicPartition(topic, number)
        for topic in topics
        for number in consumer.list_topics(topic, timeout=_ADMIN_S).topics[topic].partitions
    ]
    answers = admin.list_offsets(
        {place: OffsetSpec.latest() for place in places},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=_ADMIN_S,
    )
    ends = {(p.topic, p.partition): int(answer.result().offset) for p, answer in answers.items()}
    return {place: end for place, end in ends.items() if end}
