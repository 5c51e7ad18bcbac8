"""Data topics in memory, on the broker's model."""

from __future__ import annotations

from collections.abc import Callable

from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.ports import MessageLimits
from tidegate.schemas.progress import DataTopic


class MemoryDataTopics:
    """Makes missing topics with so many topic partitions; port: `ports.DataTopics`."""

    def __init__(
        self,
        broker: MemoryBroker,
        limits: MessageLimits,
        *,
        topic_partitions: int,
        on_found: Callable[[DataTopic], None],
    ) -> None:
        """Take the broker; `limits` gets each topic's, `on_found` the topic as it is."""
        self._broker = broker
        self._limits = limits
        self._topic_partitions = topic_partitions
        self._on_found = on_found

    def ensure(self, topic: str, *, key_schema_id: int) -> None:
        """Create the topic if it is missing."""
        if not self._broker.topic_partitions(topic):
            self._broker.create_topic(topic, self._topic_partitions)
        self._limits.add(topic)
        found = self._broker.describe_topic(topic)
        topic_id = str(found.topic_id)
        self._on_found(DataTopic(topic, topic_id, found.topic_partitions, key_schema_id))
