"""Reads data topics as anybody can: confluent-kafka's own consumer, none of our code in it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, DeserializingConsumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

if TYPE_CHECKING:
    from tests.integration.shared_stack import SharedStack
    from tidegate.local_stack.demo.pipeline import Pipeline
    from tidegate.local_stack.parts.stack import LocalStack

__all__ = ["read_bytes", "read_everything", "read_published"]

DEADLINE_S = 240


def read_published(
    stack: LocalStack | SharedStack, pipeline: Pipeline, topic: str, *, count: int
) -> list[Any]:
    """Wait for a topic while the programs run, then read it: see `read_everything`."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    pipeline.wait(
        lambda: topic in admin.list_topics(timeout=30).topics,
        what=f"topic {topic}",
        deadline_s=DEADLINE_S,
    )
    return read_everything(stack, topic, count=count)


def read_everything(stack: LocalStack | SharedStack, topic: str, *, count: int) -> list[Any]:
    """Read a topic from its beginning until `count` records are there, and what follows at once."""
    registry = SchemaRegistryClient({"url": stack.registry_url})
    decoding = {
        "key.deserializer": AvroDeserializer(registry),
        "value.deserializer": AvroDeserializer(registry),
    }
    return _read(DeserializingConsumer({**_settings(stack), **decoding}), topic, count)


def read_bytes(stack: LocalStack | SharedStack, topic: str, *, count: int) -> list[Any]:
    """Do the same, with keys and values as the bytes that they are."""
    return _read(Consumer(_settings(stack)), topic, count)


def _settings(stack: LocalStack | SharedStack) -> dict[str, Any]:
    return {
        "bootstrap.servers": stack.bootstrap_servers,
        "group.id": "somebody-else",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }


def _read(consumer: Any, topic: str, count: int) -> list[Any]:
    end = time.monotonic() + DEADLINE_S
    # A topic that no worker has made yet is known without topic partitions.
    while not (partitions := consumer.list_topics(topic, timeout=30).topics[topic].partitions):
        assert time.monotonic() < end, f"there is no topic {topic}"
        time.sleep(0.2)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    messages: list[Any] = []
    while time.monotonic() < end:
        message = consumer.poll(2.0)
        if message is not None:
            messages.append(message)
        elif len(messages) >= count:
            break
    consumer.close()
    assert len(messages) >= count, f"{topic} gave {len(messages)} of {count} records"
    return messages
