"""A client that reads topic partitions from their beginning, beside any group and its offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from tidegate.program.kafka_clients import make_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["consume_from_beginning"]

_OFFSET_BEGINNING = 0
_SMALL_RECORDS = {"queued.max.messages.kbytes": 8 << 10}


def consume_from_beginning(
    topic: str,
    numbers: Iterable[int],
    *,
    bootstrap_servers: str,
    client_group: str,
    options: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] = _SMALL_RECORDS,
) -> Consumer:
    """Return a consumer of committed records, which reports each end that it reaches.

    `client_group` only names the client: the group is neither joined nor committed to.  `sizes` are
    the client's options for how much it fetches and holds.
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
            **sizes,
        },
    )
    consumer.assign([TopicPartition(topic, number, _OFFSET_BEGINNING) for number in numbers])
    return consumer
