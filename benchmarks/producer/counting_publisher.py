"""A publisher in memory that keeps no data message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.producer.memory.publisher import MemoryPublisher

if TYPE_CHECKING:
    from tidegate.producer.core import effects as do
    from tidegate.producer.memory.broker import MemoryBroker


class CountingPublisher(MemoryPublisher):
    """Counts data messages instead of keeping them; progress records are kept."""

    def __init__(self, broker: MemoryBroker, *, progress_topic: str) -> None:
        super().__init__(broker, transactional_id="w", progress_topic=progress_topic)
        self.committed = 0
        self._open_messages = 0

    def publish_records(self, effect: do.PublishRecords) -> None:
        """Count the messages of a transaction that may still be aborted."""
        self._open_messages += sum(len(record.messages) for record in effect.records)

    def commit(self) -> Any:
        """Commit, and count what was open."""
        outcome = super().commit()
        self.committed += self._open_messages
        self._open_messages = 0
        return outcome
