"""Data topics and their limits in memory, on the broker's model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.ports import MessageLimits
from tidegate.schemas.progress import DataTopic


class MemoryMessageLimits:
    """The limits of some topics; implements `ports.MessageLimits`."""

    def __init__(self, broker: MemoryBroker, topics: Iterable[str]) -> None:
        self._broker = broker
        self._topics = tuple(topics)
        self._limits: dict[str, int] = {}
        self.refresh()

    def bytes_max(self, topic: str) -> int:
        """Return a topic's limit as of the last reading."""
        return self._limits[topic]

    def add(self, topic: str) -> None:
        """Read the limit of one more topic, and all others again."""
        if topic not in self._topics:
            self._topics = (*self._topics, topic)
        self.refresh()

    def refresh(self) -> None:
        """Read the limits again."""
        self._limits = {topic: self._broker.bytes_max(topic) for topic in self._topics}


class MemoryDataTopics:
    """Creates missing topics with `topic_partitions` each; implements `ports.DataTopics`.

    `limits` gets each topic's limit, and `on_found` the broker's description of the topic.
    """

    def __init__(
        self,
        broker: MemoryBroker,
        limits: MessageLimits,
        *,
        topic_partitions: int,
        on_found: Callable[[DataTopic], None],
    ) -> None:
        self._broker = broker
        self._limits = limits
        self._topic_partitions = topic_partitions
        self._on_found = on_found

    def ensure(self, topic: str, *, key_schema_id: int) -> None:
        """Create the topic if it is missing."""
        if not self._broker.topic_partitions(topic):
            self._broker.create_topic(topic, self._topic_partitions)
        self._limits.add(topic)
        state = self._broker.describe_topic(topic)
        topic_id = str(state.topic_id)
        self._on_found(DataTopic(topic, topic_id, state.topic_partitions, key_schema_id))
