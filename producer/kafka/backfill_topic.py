"""The topic with the requests for backfills: read by every worker, written by a command.

It has one topic partition and is compacted.  It exists once somebody has asked for a backfill.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Producer, TopicPartition

from tidegate.producer.backfill.requests import TableRequest, TableRequests
from tidegate.program.from_beginning import consume_from_beginning
from tidegate.program.kafka_clients import list_topics, make_client
from tidegate.program.kafka_errors import AT_END, kafka_failure
from tidegate.schemas.errors import SchemaError, TidegateError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer, Message

__all__ = ["RequestFollower", "read_requests", "write_request"]

_log = structlog.get_logger()

_BATCH_MAX = 100
_POLL_S = 0.5
_METADATA_S = 10.0
_LOOK_EVERY_S = 2.0
"""How often a worker looks whether the topic has come about."""
_PATIENCE_S = 30.0
_CLOSE_S = 5.0


class RequestFollower:
    """Keeps `requests` as the topic has them, in a thread of its own, until it is closed."""

    def __init__(
        self,
        topic: str,
        requests: TableRequests,
        *,
        bootstrap_servers: str,
        group: str,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; `start` begins.  `group` only names the client."""
        self._topic = topic
        self._requests = requests
        self._servers = bootstrap_servers
        self._group = group
        self._options = options
        self._is_closed = threading.Event()
        self._is_read = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backfill-requests", daemon=True)

    def start(self) -> None:
        """Read the topic; returns once it was read to its end, or is known not to exist.

        Raises UnreachableError if that does not come about.
        """
        self._thread.start()
        if not self._is_read.wait(_PATIENCE_S):
            message = "the requests for backfills cannot be read"
            hint = "Check the broker, and the right to read the topic"
            raise UnreachableError(message, hint=hint, topic=self._topic)

    def close(self) -> None:
        """Stop reading; returns when the client is closed, after seconds at most."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        while not self._is_closed.is_set():
            try:
                self._follow()
            except (KafkaException, TidegateError) as error:
                _log.warning("requests for backfills not read", cause=str(error))
            self._is_closed.wait(_LOOK_EVERY_S)

    def _follow(self) -> None:
        """Follow the topic, once it exists, until the end of this follower."""
        consumer = _consumer(self._topic, [], self._servers, self._group, self._options)
        try:
            while self._topic not in consumer.list_topics(timeout=_METADATA_S).topics:
                self._is_read.set()
                consumer.poll(0)  # hands over what the client has to say
                if self._is_closed.wait(_LOOK_EVERY_S):
                    return
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            while not self._is_closed.is_set():
                if _take(consumer.consume(_BATCH_MAX, _POLL_S), self._requests):
                    self._is_read.set()
        finally:
            consumer.close()


def read_requests(
    topic: str, *, bootstrap_servers: str, group: str, options: Mapping[str, Any] | None = None
) -> TableRequests:
    """Return what the topic says now; nothing if it does not exist.  `group` names the client.

    Raises ConfigError or UnreachableError.
    """
    requests = TableRequests()
    if topic not in list_topics(bootstrap_servers, options):
        return requests
    consumer = _consumer(topic, [0], bootstrap_servers, group, options)
    give_up_at = time.monotonic() + _PATIENCE_S
    try:
        while not _take(consumer.consume(_BATCH_MAX, _POLL_S), requests):
            if time.monotonic() > give_up_at:
                message = "the requests for backfills cannot be read to their end"
                raise UnreachableError(message, hint="Check the broker", topic=topic)
    finally:
        consumer.close()
    return requests


def write_request(
    topic: str,
    request: TableRequest,
    *,
    bootstrap_servers: str,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Write a request; returns when the broker has it.

    Raises ConfigError or UnreachableError.
    """
    failed: list[Any] = []
    producer = make_client(
        Producer,
        {
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": int(_PATIENCE_S * 1_000),
        },
    )
    producer.produce(
        topic,
        request.encode(),
        request.table.encode(),
        partition=0,
        on_delivery=lambda error, _: None if error is None else failed.append(error),
    )
    left = producer.flush(_PATIENCE_S)
    if failed:
        attempt = f"cannot write to topic {topic}"
        raise kafka_failure(failed[0], bootstrap_servers=bootstrap_servers, attempt=attempt)
    if left:
        message = "a request for a backfill was not written in time"
        raise UnreachableError(message, hint="Check the broker", topic=topic)


def _consumer(
    topic: str, numbers: list[int], servers: str, group: str, options: Mapping[str, Any] | None
) -> Consumer:
    return consume_from_beginning(
        topic,
        numbers,
        bootstrap_servers=servers,
        client_group=f"{group}-backfills",
        options=options,
    )


def _take(messages: list[Message], requests: TableRequests) -> bool:
    """Take records; return whether the topic's end was reached."""
    is_at_end = False
    for message in messages:
        error, value = message.error(), message.value()
        if error is not None:
            is_at_end = is_at_end or error.code() == AT_END
        elif value is not None:
            try:
                requests.add(TableRequest.decode(value))
            except SchemaError as wrong:
                _log.warning("request for a backfill not understood", cause=str(wrong))
    return is_at_end
