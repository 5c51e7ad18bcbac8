"""The largest message that each topic takes, as the broker in memory said last."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.producer.memory.broker import MemoryBroker


class MemoryMessageLimits:
    """The limits of some topics; implements `ports.MessageLimits`."""

    def __init__(self, broker: MemoryBroker, topics: Iterable[str]) -> None:
        """Read the limits as they are now."""
        self._broker = broker
        self._topics = tuple(topics)
        self._limits: dict[str, int] = {}
        self.refresh()

    def bytes_max(self, topic: str) -> int:
        """Return a topic's limit as it was when it was read."""
        return self._limits[topic]

    def add(self, topic: str) -> None:
        """Read the limit of one more topic, and all others again."""
        if topic not in self._topics:
            self._topics = (*self._topics, topic)
        self.refresh()

    def refresh(self) -> None:
        """Read the limits again."""
        self._limits = {topic: self._broker.bytes_max(topic) for topic in self._topics}
