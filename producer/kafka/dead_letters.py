"""Reads the dead-letter topic of one stream: parked changes, and markers of changes put back.

Only committed records, from the topic's beginning to its end at the first look.  A transaction that
is still open below that end is awaited: it ends by its time-out at the latest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    IsolationLevel,
    KafkaError,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S, RetryingAdmin
from tidegate.producer.messages import (
    FORM_EVENT,
    FORM_MESSAGE,
    FORM_RECORD,
    FORM_REDRIVEN,
    DeadLetter,
    ParkedChange,
)
from tidegate.program.kafka_clients import admin_config, consume_from_beginning, listed_offset
from tidegate.program.kafka_errors import (
    AT_END,
    GROUP_DENIED,
    is_denied,
    kafka_failure,
    not_read_to_end,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import US_PER_MS
from tidegate.schemas.topics import HEADERS_PARKED

_BATCH_MAX = 100
_POLL_S = 0.5
_LARGE_RECORDS = {"fetch.max.bytes": 50 << 20, "receive.message.max.bytes": 1_000_000_000}
_FORMS = (FORM_EVENT, FORM_MESSAGE, FORM_RECORD, FORM_REDRIVEN)


class KafkaDeadLetters:
    """One dead-letter topic; each `read` starts from the beginning.  For one thread."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        topic: str,
        topic_partitions: int,
        patience_s: float,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; `group` only names the client.

        `patience_s` is how long a read may make no progress; it exceeds the life of an abandoned
        transaction.
        """
        self._topic = topic
        self._numbers = range(topic_partitions)
        self._patience_s = patience_s
        self._admin = RetryingAdmin(admin_config(bootstrap_servers, options))
        self._bootstrap_servers = bootstrap_servers
        self._client_group = f"{group}-dead-letters"
        self._options = options

    def read(self) -> Iterator[DeadLetter | None]:
        """Yield every committed record in the order of its topic partition.

        Yields None if nothing came for a moment, so that the caller is not blocked for longer.
        Raises ConfigError if Kafka denies access, UnreachableError if reading makes no progress,
        and SchemaError for a record that is not a dead letter.
        """
        ends = self._ends()
        left = {number for number, end in ends.items() if end > 0}
        consumer = consume_from_beginning(
            self._topic,
            sorted(left),
            bootstrap_servers=self._bootstrap_servers,
            client_group=self._client_group,
            options=self._options,
            sizes=_LARGE_RECORDS,
        )
        try:
            moved_at, reported = time.monotonic(), None
            while left:
                messages = consumer.consume(_BATCH_MAX, _POLL_S)
                for message in messages:
                    number, offset = message.partition(), message.offset()
                    error = message.error()
                    if error is None:
                        change, at_us = parked_change(message), _written_us(message)
                        yield DeadLetter(number or 0, offset or 0, change, at_us)
                        moved_at, reported = time.monotonic(), None
                    elif error.code() != AT_END:
                        self._raise_denied(error)
                        reported = error
                    elif number in left and (offset or 0) >= ends[number]:
                        left.discard(number)
                if not messages:
                    yield None
                if time.monotonic() - moved_at > self._patience_s:
                    subject = "the dead-letter topic"
                    raise not_read_to_end(subject, topic=self._topic, reported=reported)
        finally:
            consumer.close()

    def _ends(self) -> dict[int, int]:
        """Return the end of each topic partition, including records of open transactions."""
        places = {
            TopicPartition(self._topic, number): OffsetSpec.latest() for number in self._numbers
        }

        def ask(admin: AdminClient) -> dict[int, int]:
            answers = admin.list_offsets(
                places,
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=CALL_TIMEOUT_S,
            )
            return {
                place.partition: listed_offset(answer.result()) for place, answer in answers.items()
            }

        return self._admin.call(ask, "cannot find the dead-letter topic's end", topic=self._topic)

    def _raise_denied(self, error: KafkaError) -> None:
        """Raise ConfigError for a missing right; the client retries any other error.

        The client looks for the coordinator of a group that it does not need.
        """
        if is_denied(error) and error.code() != GROUP_DENIED:
            raise kafka_failure(error, attempt="cannot read the dead-letter topic")


def _written_us(message: Message) -> int | None:
    """Return when a record was written; None if its timestamp is missing."""
    kind, at_ms = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms * US_PER_MS


def parked_change(message: Message) -> ParkedChange:
    """Parse a dead-letter record; raises SchemaError for any other record."""
    headers: list[tuple[str, Any]] = list(message.headers() or ())  # type: ignore[arg-type]  # no dict is received
    contents = [content or b"" for _, content in headers]
    if tuple(name for name, _ in headers) != HEADERS_PARKED:
        raise SchemaError(
            "a record in the dead-letter topic has other headers",
            hint="Only tidegate-producer may write to this topic",
            topic=message.topic(),
            offset=message.offset(),
            headers=[name for name, _ in headers],
        )
    order_key, mod, topic, form, reason, error, token = contents
    if form not in _FORMS:
        raise SchemaError(
            "a record in the dead-letter topic has an unknown form",
            hint="Was it written by a newer version of tidegate-producer?",
            offset=message.offset(),
            form=form[:20],
        )
    texts = (text.decode(errors="backslashreplace") for text in (topic, reason, error, token))
    topic_name, reason_text, error_text, token_text = texts
    return ParkedChange(
        topic=topic_name,
        key=message.key() or b"",
        order_key=order_key,
        mod=mod,
        content=message.value() or b"",
        form=form,
        reason=reason_text,
        error=error_text,
        token=token_text,
    )
