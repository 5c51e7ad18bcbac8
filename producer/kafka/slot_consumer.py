"""A client that reads slots from their beginning, beside the group and its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from tidegate.program.kafka_clients import make_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["consume_slots"]

_OFFSET_BEGINNING = 0
_QUEUED_KIB = 8 << 10


def consume_slots(
    topic: str,
    slots: Iterable[int],
    *,
    bootstrap_servers: str,
    client_group: str,
    options: Mapping[str, Any] | None = None,
) -> Consumer:
    """Return a consumer of the slots' committed records, which reports each end that it reaches.

    `client_group` only names the client: the group is neither joined nor committed to.
    """
    consumer = make_client(
        Consumer,
        {
            "bootstrap.servers": bootstrap_servers,
            **(options or {}),
            "group.id": client_group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": _QUEUED_KIB,
        },
    )
    consumer.assign([TopicPartition(topic, slot, _OFFSET_BEGINNING) for slot in slots])
    return consumer
