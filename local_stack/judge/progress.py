"""Counts the finished stream partitions, with a plain Kafka client.

Reads the committed records of the progress topic with confluent-kafka's consumer and Avro
deserializer, without Tidegate's code.  A stream partition counts once it has a completion marker.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import DeserializingConsumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

_POLL_S = 0.2
_QUIET_MAX_S = 30.0
_METADATA_S = 15.0


def read_topic(
    topic: str, *, bootstrap_servers: str, registry_url: str, group: str = "tidegate-judge"
) -> list[Any]:
    """Return all committed messages of a topic up to its present end, deserialized.

    Raises TimeoutError if the end is not reached.
    """
    registry = SchemaRegistryClient({"url": registry_url})
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "key.deserializer": AvroDeserializer(registry),
            "value.deserializer": AvroDeserializer(registry),
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=_METADATA_S).topics[topic].partitions
        ends = {}
        for number in known:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=_METADATA_S
            )
            if high > low:
                ends[number] = high
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        return _read_until(consumer, topic=topic, ends=ends)
    finally:
        consumer.close()


def _read_until(consumer: DeserializingConsumer, *, topic: str, ends: dict[int, int]) -> list[Any]:
    messages = []
    quiet_since = time.monotonic()
    while not _reached(consumer, topic=topic, ends=ends):
        message = consumer.poll(_POLL_S)
        if message is not None:
            messages.append(message)
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > _QUIET_MAX_S:
            raise TimeoutError(
                f"no record of {topic} for {_QUIET_MAX_S:.0f} s before the end {ends}"
            )
    return messages


def _reached(consumer: DeserializingConsumer, *, topic: str, ends: dict[int, int]) -> bool:
    """Return whether the position has passed every end; it passes transaction markers too."""
    positions = consumer.position([TopicPartition(topic, number) for number in ends])
    return all(position.offset >= ends[position.partition] for position in positions)


def finished_stream_partitions(
    prefix: str, *, bootstrap_servers: str, registry_url: str
) -> dict[str, int]:
    """Return the tokens of all stream partitions that have a completion marker.

    With each, when its marker was written, in milliseconds since 1970.
    """
    messages = read_topic(
        f"{prefix}-progress", bootstrap_servers=bootstrap_servers, registry_url=registry_url
    )
    return {
        message.key()["id"]: int(message.timestamp()[1])
        for message in messages
        if message.key()["kind"] == "PARTITION_FINISHED" and message.value() is not None
    }
