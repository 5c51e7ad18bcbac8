"""The port between the ordered topic and Kafka: two topics, and the one producer that writes them.

The *output topic* has the changes.  The *releases topic* beside it, compacted, has one record for
each release, in the same Kafka transaction as the release's changes: the newest one says up to
which release the output topic is written, whatever retention has removed from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.spark_consumer.sinks.kafka.release_record import ReleaseRecord

__all__ = ["Headers", "OutputTopic", "TopicFacts"]

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What one topic is now."""

    topic_id: str
    topic_partitions: int
    policies: frozenset[str]
    """The entries of `cleanup.policy`."""


class OutputTopic(Protocol):
    """The output topic and its releases topic, written by one transactional producer.

    Every call blocks, and raises UnreachableError if no broker answers, and ConfigError for a login
    or a right that is missing.  For one thread.
    """

    @property
    def topic(self) -> str:
        """Name of the output topic."""
        ...

    @property
    def releases_topic(self) -> str:
        """Name of the releases topic."""
        ...

    def ensure(self) -> tuple[TopicFacts, TopicFacts]:
        """Return what output and releases topic are; create those that are missing."""
        ...

    def start(self, transactional_id: str) -> None:
        """Take the transactional id over: no former producer of it can write after that.

        What it left open is ended, so that `last_release` returns its outcome.  May be called
        again, which replaces this object's own producer likewise.
        """
        ...

    def last_release(self) -> ReleaseRecord | None:
        """Return the newest committed record of the releases topic, None if it has none.

        Waits for transactions that are open in it.  Raises ConfigError for a record of another
        program.
        """
        ...

    def has_records(self) -> bool:
        """Whether the output topic holds a committed record."""
        ...

    def begin(self) -> None:
        """Begin a transaction.

        This and the calls below raise ReleaseUnconfirmed if Kafka ends the transaction or does not
        answer, and TopicWriterReplaced if a younger producer has taken the transactional id.
        """
        ...

    def produce(self, number: int, key: bytes, value: bytes, headers: Headers) -> None:
        """Send a record to a topic partition of the output topic; blocks while the queue is full.

        Raises ConfigError for a record that is larger than the topic takes.
        """
        ...

    def produce_release(self, record: ReleaseRecord) -> None:
        """Send the record of a release to the releases topic."""
        ...

    def flush(self) -> None:
        """Wait until everything that was sent is in the log; raises ConfigError as `produce`."""
        ...

    def commit(self) -> None:
        """Commit; returns when the broker has confirmed it."""
        ...

    def abort(self) -> None:
        """Abort what is open, if the broker answers; raises nothing."""
        ...

    def close(self) -> None:
        """Release the client; a transaction that is open stays open."""
        ...
