"""The topic with the requests for backfills: read by every worker, written by a command.

It has one topic partition and is compacted.  It exists from the first request for a backfill on.
All commands of a stream write with one transactional id, so only the last started one can commit,
and it has read all earlier requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)

from tidegate.producer.backfill.requests import TableRequest, TableRequests
from tidegate.producer.errors import CommandNotWritten
from tidegate.program.kafka_clients import (
    assign_beginnings,
    consume_from_beginning,
    list_topics,
    make_client,
)
from tidegate.program.kafka_errors import (
    AT_END,
    FENCED,
    OUT_OF_RANGE,
    is_denied,
    kafka_failure,
)
from tidegate.schemas.errors import SchemaError, TidegateError, UnreachableError

_log = structlog.get_logger()

_BATCH_MAX = 100
_POLL_S = 0.5
_METADATA_S = 10.0
_LOOK_EVERY_S = 2.0
"""How often a worker checks whether the topic exists."""
_PATIENCE_S = 30.0
_CLOSE_S = 5.0


class RequestFollower:
    """Keeps `requests` equal to the topic, in its own thread, until it is closed."""

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
        self._failure: TidegateError | None = None
        """The first denied right."""
        self._thread = threading.Thread(target=self._run, name="backfill-requests", daemon=True)

    def start(self) -> None:
        """Read the topic; return once it was read to its end, or is known not to exist.

        Raises ConfigError if the right to read it is missing, and UnreachableError if neither
        happens in time.
        """
        self._thread.start()
        read = self._is_read.wait(_PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        if not read:
            raise UnreachableError(
                "the requests for backfills cannot be read",
                hint="Check the broker, and the right to read the topic",
                topic=self._topic,
            )

    def close(self) -> None:
        """Stop reading; returns when the client is closed, after at most some seconds."""
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

    def _note_error(self, error: KafkaError) -> None:
        """Report the error that keeps this follower from reading; the client keeps trying."""
        failure = _failure(self._topic, error)
        if self._failure is None and is_denied(error) and not self._is_read.is_set():
            self._failure = failure
            self._is_read.set()
        _log.warning("requests for backfills not read", cause=str(failure))

    def _follow(self) -> None:
        """Follow the topic, once it exists, until this follower is closed."""
        consumer = _consumer(self._topic, [], self._servers, self._group, self._options)
        try:
            while self._topic not in consumer.list_topics(timeout=_METADATA_S).topics:
                self._is_read.set()
                consumer.poll(0)  # passes on the client's events
                if self._is_closed.wait(_LOOK_EVERY_S):
                    return
            assign_beginnings(consumer, self._topic, [0])
            while not self._is_closed.is_set():
                messages = consumer.consume(_BATCH_MAX, _POLL_S)
                if _take(messages, self._requests, self._note_error):
                    self._is_read.set()
        finally:
            consumer.close()


def read_requests(
    topic: str, *, bootstrap_servers: str, group: str, options: Mapping[str, Any] | None = None
) -> TableRequests:
    """Return the requests in the topic; none if it does not exist.

    `group` names the client.  Raises ConfigError or UnreachableError.
    """
    requests = TableRequests()
    if topic not in list_topics(bootstrap_servers, options):
        return requests
    consumer = _consumer(topic, [0], bootstrap_servers, group, options)
    errors: list[KafkaError] = []

    def note(error: KafkaError) -> None:
        if is_denied(error):
            raise _failure(topic, error)
        errors.append(error)

    give_up_at = time.monotonic() + _PATIENCE_S
    try:
        while not _take(consumer.consume(_BATCH_MAX, _POLL_S), requests, note):
            if time.monotonic() > give_up_at:
                message = "the requests for backfills cannot be read to their end"
                fields = {"cause": errors[-1].str()} if errors else {}
                raise UnreachableError(message, hint="Check the broker", topic=topic, **fields)
    finally:
        consumer.close()
    return requests


def write_request(
    topic: str,
    prepare: Callable[[TableRequests], TableRequest],
    *,
    transactional_id: str,
    bootstrap_servers: str,
    group: str,
    options: Mapping[str, Any] | None = None,
) -> TableRequest:
    """Write the request that `prepare` makes from all requests; return it once it is committed.

    `prepare` is called once no other command can commit any more; nothing is written if it raises.
    `group` names the client that reads.  Raises CommandNotWritten, ConfigError or UnreachableError.
    """
    producer = make_client(
        Producer,
        {
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "enable.idempotence": True,
            "message.timeout.ms": int(_PATIENCE_S * 1_000),
            "transaction.timeout.ms": int(_PATIENCE_S * 1_000),
        },
    )
    try:
        producer.init_transactions(_PATIENCE_S)
    except KafkaException as error:
        attempt = f"cannot begin with the transactional id {transactional_id}"
        cause = error.args[0]
        raise kafka_failure(cause, bootstrap_servers=bootstrap_servers, attempt=attempt) from error
    requests = read_requests(
        topic, bootstrap_servers=bootstrap_servers, group=group, options=options
    )
    request = prepare(requests)
    try:
        _commit(producer, topic, request)
    except KafkaException as error:
        cause = error.args[0]
        if is_denied(cause):
            raise kafka_failure(
                cause, bootstrap_servers=bootstrap_servers, attempt=f"cannot write to topic {topic}"
            ) from error
        fenced = cause.code() in FENCED
        reason = "another such command was started meanwhile" if fenced else cause.str()
        raise CommandNotWritten(reason, place=f"topic {topic}", look="--show") from error
    return request


def _commit(producer: Producer, topic: str, request: TableRequest) -> None:
    """Commit a record; raises KafkaException if it is not known to be committed."""
    failed: list[KafkaError] = []
    producer.begin_transaction()
    producer.produce(
        topic,
        request.encode(),
        request.table.encode(),
        partition=0,
        on_delivery=lambda error, _: None if error is None else failed.append(error),
    )
    producer.flush(_PATIENCE_S)
    if failed:
        raise KafkaException(failed[0])
    producer.commit_transaction(_PATIENCE_S)


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


def _failure(topic: str, error: KafkaError) -> TidegateError:
    return kafka_failure(error, attempt=f"cannot read topic {topic}")


def _take(
    messages: list[Message], requests: TableRequests, note: Callable[[KafkaError], None]
) -> bool:
    """Add records, and pass errors to `note`; return whether the topic's end was reached.

    Raises UnreachableError if the log lacks the next offset: reading has to begin again.
    """
    is_at_end = False
    for message in messages:
        error, value = message.error(), message.value()
        if error is not None and error.code() in OUT_OF_RANGE:
            raise UnreachableError(
                "the requests for backfills cannot be read on",
                hint="The topic must keep cleanup.policy=compact",
                topic=message.topic(),
                cause=error.str(),
            )
        if error is not None and error.code() == AT_END:
            is_at_end = True
        elif error is not None:
            note(error)
        elif value is not None:
            try:
                requests.add(TableRequest.decode(value))
            except SchemaError as wrong:
                _log.warning("request for a backfill not understood", cause=str(wrong))
    return is_at_end
