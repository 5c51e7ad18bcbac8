"""Data topics in memory, on the broker's model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.producer.memory.broker import MemoryBroker
    from tidegate.producer.ports import MessageLimits

__all__ = ["MemoryDataTopics"]


class MemoryDataTopics:
    """Makes missing topics with so many topic partitions; port: `ports.DataTopics`."""

    def __init__(
        self, broker: MemoryBroker, limits: MessageLimits, *, topic_partitions: int
    ) -> None:
        """Take the broker; `limits` gets each topic's."""
        self._broker = broker
        self._limits = limits
        self._topic_partitions = topic_partitions

    def ensure(self, topic: str) -> None:
        """Create the topic if it is missing."""
        if not self._broker.topic_partitions(topic):
            self._broker.create_topic(topic, self._topic_partitions)
        self._limits.add(topic)
