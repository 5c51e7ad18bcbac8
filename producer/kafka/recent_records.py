"""The committed records of a topic since a time, up to its end.

Records that are written meanwhile may be among them.  No group is joined and nothing is committed.
A limit of seconds and one of records end it early.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tidegate.program.kafka_clients import make_client
from tidegate.program.kafka_errors import (
    AT_END,
    GROUP_DENIED,
    is_denied,
    kafka_failure,
    not_read_to_end,
)
from tidegate.schemas.instants import US_PER_MS

_CALL_S = 10.0
_SECONDS_MAX = 20.0
_RECORDS_MAX = 2_000_000
_BATCH = 10_000
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as Kafka has it."""

    topic_partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    written_us: int
    """Its timestamp."""


class RecentRecords:
    """Iterates over the records once; for one thread.  `close` ends its client."""

    def __init__(
        self,
        topic: str,
        topic_partitions: Iterable[int],
        *,
        since_ms: int,
        bootstrap_servers: str,
        client_group: str,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Find where to begin; `client_group` only names the client.

        Raises ConfigError if Kafka denies access, UnreachableError if it does not answer.
        """
        self._topic = topic
        self.count = 0
        """Records that were read."""
        self.is_cut = False
        """Whether a limit ended it before the topic's end."""
        self._consumer = make_client(
            Consumer,
            {
                "bootstrap.servers": bootstrap_servers,
                **(options or {}),
                "group.id": client_group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
            },
        )
        wanted = [TopicPartition(topic, number, since_ms) for number in topic_partitions]
        try:
            places = self._consumer.offsets_for_times(wanted, timeout=_CALL_S)
        except KafkaException as error:
            self._consumer.close()
            raise kafka_failure(error.args[0], attempt=f"cannot read topic {topic}") from error
        for place in places:
            if place.error is not None:
                self._consumer.close()
                raise kafka_failure(place.error, attempt=f"cannot read topic {topic}")
        # A topic partition without a record since then has no offset for that time.
        begins = [place for place in places if place.offset >= 0]
        self._open = {place.partition for place in begins}
        self._consumer.assign(begins)

    def __iter__(self) -> Iterator[StoredRecord]:
        """Yield the records, those of each topic partition in its order.

        Raises ConfigError if Kafka denies access; the client retries after any other error, and
        UnreachableError is raised if one has kept it from reading anything.
        """
        reported: KafkaError | None = None
        give_up_at = time.monotonic() + _SECONDS_MAX
        while self._open:
            for message in self._consumer.consume(_BATCH, _POLL_S):
                error = message.error()
                if error is None:
                    self.count += 1
                    headers: Any = message.headers() or ()
                    yield StoredRecord(
                        topic_partition=message.partition() or 0,
                        offset=message.offset() or 0,
                        key=message.key(),
                        value=message.value(),
                        headers={name: content or b"" for name, content in headers},
                        written_us=message.timestamp()[1] * US_PER_MS,
                    )
                elif error.code() == AT_END:
                    self._open.discard(message.partition() or 0)
                elif is_denied(error) and error.code() != GROUP_DENIED:  # it joins no group
                    raise kafka_failure(error, attempt=f"cannot read topic {self._topic}")
                elif error.code() != GROUP_DENIED:
                    reported = error
            if self._open and (time.monotonic() > give_up_at or self.count >= _RECORDS_MAX):
                if reported is not None and not self.count:
                    subject = f"topic {self._topic}"
                    raise not_read_to_end(subject, topic=self._topic, reported=reported)
                self.is_cut = True
                return

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()
