"""The topics of one stream that a reader reads: its data topics and its progress topic.

A data topic that the pattern does not match is an error, never skipped; so is a stream whose data
topics have other names than the reader's setting gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.lineage.errors import ProtocolError
from tidegate.schemas.progress import StreamStarted
from tidegate.schemas.topics import TopicNames, beside, table_of


class Subscribed(Protocol):
    """The topics that a reader of a progress topic reads."""

    @property
    def progress_topic(self) -> str:
        """The topic whose topic partitions are the slots."""
        ...

    def includes(self, topic: str) -> bool:
        """Whether the reader reads a topic that a slot's vector names."""
        ...

    def require_stream(self, started: StreamStarted) -> None:
        """Raise ConfigError for a stream whose topics the reader would not recognise."""
        ...


@dataclass(frozen=True, slots=True)
class ProgressOnly:
    """A reader that reads no data topics: it only follows the progress of the producers."""

    progress_topic: str

    def includes(self, topic: str) -> bool:
        """Whether the topic is the progress topic."""
        return topic == self.progress_topic

    def require_stream(self, started: StreamStarted) -> None:
        """Accept any stream: the names of its data topics do not matter."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that the gate reads."""

    names: TopicNames

    @property
    def data_pattern(self) -> str:
        """Regular expression, for Python and Java, for the complete name of every data topic."""
        return self.names.data_pattern

    @property
    def progress_topic(self) -> str:
        """The topic whose topic partitions are the slots."""
        return self.names.progress

    def includes(self, topic: str) -> bool:
        """Whether the gate reads a topic that a slot's vector names.

        Raises ProtocolError for a data topic of this prefix that the pattern does not match.
        """
        if self.names.has_schemas(topic):
            return True
        if self.names.is_unclear(topic):
            raise ProtocolError(
                "a data topic's name does not match the pattern of this stream's data topics",
                topic=topic,
                pattern=self.data_pattern,
            )
        return False

    def require_stream(self, started: StreamStarted) -> None:
        """Raise ConfigError for a stream whose data topics have other names than these."""
        self.names.require_recorded(started.filters)

    def table(self, topic: str) -> str:
        """Return the table of a data topic that the gate reads, or of the topic of its backfill."""
        return table_of(self.names.table(topic) or topic)

    def topics_of(self, topic: str) -> tuple[str, str] | None:
        """Return the data topics of a topic's table and its backfill; None for a foreign topic."""
        name = self.names.table(topic)
        if name is None:
            return None
        table = table_of(name)
        return self.names.data(table), self.names.data(beside(table))
