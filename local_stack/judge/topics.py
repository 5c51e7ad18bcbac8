"""Reads a stream's topics with public libraries only.

The framing of messages and the name of the progress topic are defined here a second time, from
`docs/protocol.md`.
"""

from __future__ import annotations

import io
import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import fastavro
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.schema_registry import SchemaRegistryClient

Schemas = Callable[[int], Any]
"""Returns the parsed Avro schema of an id in the registry."""
Where = tuple[str, int]
"""A topic and the number of a topic partition."""

_FRAME = struct.Struct(">BI")
_POLL_S = 0.2
_QUIET_MAX_S = 60.0
_ADMIN_S = 15.0
_REGISTRY_TRIES = {"max.retries": 90, "retries.wait.ms": 250, "retries.max.wait.ms": 2_000}
"""For about a minute and a half, with waits of random lengths: a registry that starts again."""


def registry_schemas(url: str) -> Schemas:
    """Return the schemas of a registry, each fetched once; waits while it is being restarted."""
    client = SchemaRegistryClient({"url": url, **_REGISTRY_TRIES})
    schemas: dict[int, Any] = {}

    def schema(schema_id: int) -> Any:
        if schema_id not in schemas:
            text = client.get_schema(schema_id).schema_str or ""
            schemas[schema_id] = fastavro.parse_schema(json.loads(text))
        return schemas[schema_id]

    return schema


def as_bytes(value: str | bytes | None) -> bytes:
    """Return a key or value of a message as bytes."""
    return value.encode() if isinstance(value, str) else value or b""


def read_framed(framed: str | bytes | None, schemas: Schemas) -> Any:
    """Return the Avro record of a framed key or value; raises ValueError without a frame."""
    data = as_bytes(framed)
    zero, schema_id = _FRAME.unpack_from(data)
    if zero:
        raise ValueError("it is not framed")
    return fastavro.schemaless_reader(io.BytesIO(data[_FRAME.size :]), schemas(schema_id), None)


def finished_stream_partitions(
    prefix: str, *, bootstrap_servers: str, registry_url: str
) -> dict[str, int]:
    """Return when each completion marker was written, by the token of its stream partition.

    Times are milliseconds since 1970.
    """
    schemas = registry_schemas(registry_url)
    return {
        read_framed(message.value(), schemas)["body"]["token"]: message.timestamp()[1]
        for message in committed_messages(bootstrap_servers, [f"{prefix}-progress"])
        if message.value() is not None
        and read_framed(message.key(), schemas)["kind"] == "PARTITION_FINISHED"
    }


def committed_messages(bootstrap_servers: str, topics: Sequence[str]) -> Iterator[Message]:
    """Yield all committed messages; waits until no transaction is open before an end.

    Raises TimeoutError if the ends are not reached.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tidegate-judge",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        ends = _ends(bootstrap_servers, consumer, topics)
        consumer.assign([TopicPartition(*place, 0) for place in ends])
        yield from _messages_until(consumer, ends)
    finally:
        consumer.close()


def _messages_until(consumer: Consumer, ends: Mapping[Where, int]) -> Iterator[Message]:
    """Yield messages until the position, which passes transaction markers, has passed all ends."""
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
            elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - it is public
                raise RuntimeError(error.str())
        if time.monotonic() - quiet_since > _QUIET_MAX_S:
            raise TimeoutError(f"no record for {_QUIET_MAX_S:.0f} s before the ends {ends}")


def _ends(
    bootstrap_servers: str, consumer: Consumer, topics: Sequence[str]
) -> dict[tuple[str, int], int]:
    """Return the ends with open transactions included, of topic partitions that have records."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    places = [
        TopicPartition(topic, number)
        for topic in topics
        for number in consumer.list_topics(topic, timeout=_ADMIN_S).topics[topic].partitions
    ]
    if not places:
        return {}
    answers = admin.list_offsets(
        {place: OffsetSpec.latest() for place in places},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=_ADMIN_S,
    )
    ends = {(p.topic, p.partition): int(answer.result().offset) for p, answer in answers.items()}
    return {place: end for place, end in ends.items() if end}
