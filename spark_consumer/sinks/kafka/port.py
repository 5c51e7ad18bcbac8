"""The port between the ordered topic and Kafka: two topics, the producer that writes them, records.

The *output topic* has the changes.  The *releases topic*, which is compacted, has one record for
each release, in the same Kafka transaction as the release's changes: the newest record says up to
which release the output topic is written, even if retention has removed changes from it.  Its key
is the query's id, so compaction keeps the newest release.  Values are JSON, so a follower of
releases, or of transactions, needs no schema.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339

FORMAT = 1
"""The value's format; a program refuses other formats."""

CHANGES, TRANSACTIONS = "changes", "transactions"

_FOREIGN_RECORD = "the newest record of a releases topic is not one of Tidegate's"

_KINDS = {"str": str, "int": int}

__all__ = ["Headers", "OutputTopic", "TopicFacts"]

Headers = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """A release that the output topic has; `rows` are its changes there."""

    query_id: str
    release: int
    after_us: int
    through_us: int
    rows: int
    topic_id: str
    """Kafka's id of the output topic: one that is re-created has another."""
    topic_partitions: int
    """The number of the output topic's partitions: another number would move keys."""
    holds: str = CHANGES
    """Whether a record of the output topic is a change (`changes`) or a transaction."""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return self.query_id.encode()

    @property
    def value(self) -> bytes:
        """The record's value."""
        content = {"format": FORMAT, **asdict(self)}
        if self.holds == CHANGES:  # as in the records of older programs
            del content["holds"]
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, value: bytes | None, *, topic: str) -> ReleaseRecord:
        """Read a record's value; raises ConfigError for another program's or version's."""
        hint = "Use a topic of its own for each query, and let only tidegate-consumer write to it"
        try:
            record = json.loads(value or b"")
        except ValueError:
            raise ConfigError(_FOREIGN_RECORD, hint=hint, topic=topic) from None
        if not isinstance(record, dict) or "format" not in record:
            raise ConfigError(_FOREIGN_RECORD, hint=hint, topic=topic)
        if record["format"] != FORMAT:
            raise ConfigError(
                f"a releases topic has format {record['format']!r}, this version knows {FORMAT}",
                hint="Install a newer version of Tidegate",
                topic=topic,
            )
        record.setdefault("holds", CHANGES)
        content: dict[str, Any] = {name: record.get(name) for name, _ in _FIELDS}
        if any(type(content[name]) is not kind for name, kind in _FIELDS):
            raise ConfigError(_FOREIGN_RECORD, hint=hint, topic=topic)
        return cls(**content)


_FIELDS = tuple((column.name, _KINDS[str(column.type)]) for column in fields(ReleaseRecord))


class TransactionChange(Protocol):
    """A change of a transaction; `key` and the values are JSON text, None where there is none."""

    ordinal: int
    table: str
    record_sequence: str
    mod_number: int
    mod_type: str
    key: str
    new_values: str | None
    old_values: str | None
    new_columns: Sequence[str] | None
    old_columns: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transaction's key and value, and how many changes it has."""

    first_ordinal: int
    changes: int
    key: bytes
    value: bytes


def transaction_record(
    *, commit_us: int, transaction_id: str, changes: Sequence[TransactionChange]
) -> TransactionRecord:
    """Return the record of a transaction; `changes` are in commit order.

    Its key is the transaction's id, and the value the same text however often it is made.
    """
    head = {
        "commit_timestamp": format_rfc3339(commit_us * NS_PER_US),
        "server_transaction_id": transaction_id,
    }
    listed = ",".join(map(_change, changes))
    value = f'{_text(head)[:-1]},"changes":[{listed}]}}'
    first = changes[0].ordinal
    return TransactionRecord(first, len(changes), transaction_id.encode(), value.encode())


def _change(change: TransactionChange) -> str:
    head = {
        "ordinal": change.ordinal,
        "table": change.table,
        "record_sequence": change.record_sequence,
        "mod_number": change.mod_number,
        "mod_type": change.mod_type,
    }
    columns = {"new_columns": change.new_columns, "old_columns": change.old_columns}
    # They are JSON already: reading them here would cost digits of their numbers.
    values = (
        f'"{name}":{"null" if text is None else text}'
        for name, text in (
            ("key", change.key),
            ("new_values", change.new_values),
            ("old_values", change.old_values),
        )
    )
    return f"{_text(head)[:-1]},{','.join(values)},{_text(columns)[1:]}"


def _text(content: object) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The current state of one topic."""

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
        """Describe output and releases topic; create missing ones."""
        ...

    def start(self, transactional_id: str) -> None:
        """Take the transactional id over: no former producer of it can write after that.

        Its open transaction is ended, so that `last_release` returns the outcome.  A second call
        replaces this object's own producer likewise.
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
        """Abort an open transaction, if the broker answers; raises nothing."""
        ...

    def close(self) -> None:
        """Release the client; a transaction that is open stays open."""
        ...
