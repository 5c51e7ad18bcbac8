"""What the two topics hold: the newest committed release, and whether there is any record.

The newest record of a compacted topic stands just before its end, so reading begins a little before
that, and further back where aborted transactions have left nothing else there.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.program.kafka_clients import (
    admin_config,
    consume_from_beginning,
    listed_offset,
    make_client,
)
from tidegate.program.kafka_errors import AT_END, is_denied, kafka_failure
from tidegate.schemas.errors import UnreachableError

_CALL_TIMEOUT_S = 15.0
_POLL_S = 0.5
_BATCH_MAX = 100
_TAIL_OFFSETS = 1_000
_WINDOW_FACTOR = 10


class TopicReader:
    """Reads committed records, each time from the broker; open transactions are waited for.

    Calls raise UnreachableError if no broker answers or reading stands still, and ConfigError for a
    login or a right that is missing.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, Any],
        *,
        patience_s: float,
        tail_offsets: int = _TAIL_OFFSETS,
    ) -> None:
        """Prepare; nothing is sent yet.

        `patience_s` is how long reading may stand still, which is longer than a transaction that
        was left open lasts.  `tail_offsets` is where the search for the newest record begins,
        before the end.
        """
        self._bootstrap_servers = bootstrap_servers
        self._options = options
        self._patience_s = patience_s
        self._tail_offsets = tail_offsets

    def newest_value(self, topic: str) -> bytes | None:
        """Return the value of the last record of topic partition 0; None without a record."""
        ((begin, end),) = self._ends(topic, 1)
        window = self._tail_offsets
        while True:
            start = max(begin, end - window)
            newest = None
            for message in self._records(topic, 0, start=start, end=end):
                newest = message
            if newest is not None:
                return newest.value()
            if start <= begin:
                return None
            window *= _WINDOW_FACTOR

    def has_records(self, topic: str, topic_partitions: int) -> bool:
        """Whether a topic holds a record."""
        for number, (begin, end) in enumerate(self._ends(topic, topic_partitions)):
            with closing(self._records(topic, number, start=begin, end=end)) as found:
                if next(found, None) is not None:
                    return True
        return False

    def _ends(self, topic: str, topic_partitions: int) -> list[tuple[int, int]]:
        """Return the first offset and the end of each topic partition, open transactions too."""
        admin = make_client(AdminClient, admin_config(self._bootstrap_servers, self._options))
        places = [TopicPartition(topic, number) for number in range(topic_partitions)]
        try:
            begins, ends = (
                admin.list_offsets(
                    dict.fromkeys(places, spec),
                    isolation_level=IsolationLevel.READ_UNCOMMITTED,
                    request_timeout=_CALL_TIMEOUT_S,
                )
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            )
            return [
                (listed_offset(begins[place].result()), listed_offset(ends[place].result()))
                for place in places
            ]
        except KafkaException as error:
            raise kafka_failure(
                error.args[0], attempt=f"cannot find the end of topic {topic}"
            ) from error

    def _records(
        self, topic: str, number: int, *, start: int, end: int
    ) -> Generator[Message, None, None]:
        """Yield the committed records of a topic partition from an offset to an end."""
        if start >= end:
            return
        consumer = consume_from_beginning(
            topic,
            (),
            bootstrap_servers=self._bootstrap_servers,
            client_group=f"{topic}-reader",
            options=self._options,
        )
        try:
            consumer.assign([TopicPartition(topic, number, start)])
            moved_at = time.monotonic()
            while True:
                for message in consumer.consume(_BATCH_MAX, _POLL_S):
                    error, offset = message.error(), message.offset() or 0
                    if error is None:
                        moved_at = time.monotonic()
                        if offset >= end:
                            return
                        yield message
                    elif error.code() == AT_END and offset >= end:
                        return
                    elif is_denied(error):
                        raise kafka_failure(error, attempt=f"cannot read topic {topic}")
                if time.monotonic() - moved_at > self._patience_s:
                    raise UnreachableError(
                        f"topic {topic} cannot be read to its end",
                        hint=(
                            "A transaction may be open in it; the broker ends it after its time-out"
                        ),
                        topic=topic,
                        end=end,
                    )
        finally:
            consumer.close()
