"""The output topic on a real Kafka: a transactional producer of confluent-kafka's.

Delivery reports come for failures only, since one call of Python's for each record would take as
long as sending it; a commit without a failure confirms every record.  A failed record ends the
transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidegate.program.calls import CallHangs, call_bounded
from tidegate.program.kafka_clients import KafkaClientLog, make_client
from tidegate.program.kafka_errors import is_denied, is_unsupported, kafka_failure
from tidegate.schemas.errors import ConfigError, InvariantViolation, TidegateError, UnreachableError
from tidegate.spark_consumer.errors import RecordTooLarge, ReleaseUnconfirmed, TopicWriterReplaced
from tidegate.spark_consumer.sinks.kafka.port import Headers, ReleaseRecord, TopicFacts
from tidegate.spark_consumer.sinks.kafka.topics import TopicReader, TopicSetup

TRANSACTION_TIMEOUT_MS = 300_000
"""Longer than a release of `release_rows_max` takes; one that has all rows of a backfill may take
longer.  Brokers allow 15 minutes unless they are set otherwise."""

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)  # noqa: SLF001 - its public constant
_FOLLOWS = (KafkaError._FATAL, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001 - likewise
"""Errors of calls and records that follow an earlier failure."""
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_CALL_TIMEOUT_S = 30.0
_HANGS_AFTER_S = 10.0
_REPORT_POLL_S = 0.1
_PAUSE_S = 0.1
_INIT_PATIENCE_S = 60.0
_POLL_EVERY = 1_000
_BATCH_BYTES = 1_000_000
_QUEUE_KBYTES = 64 << 10
_MESSAGE_BYTES_RANGE = (1_000, 1_000_000_000)
"""The bounds of librdkafka's `message.max.bytes`."""

_SLOW = (
    "Look at the brokers' load, or raise ordered_topic_timeout_ms: a release has all changes of a "
    "commit time, such as all rows of a backfill. A smaller release_rows_max makes others smaller; "
    "a restart goes on with this one"
)


class KafkaOutputTopic:
    """Port: `port.OutputTopic`.  A release is in the client's queue by 64 MiB at most."""

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str,
        options: Mapping[str, Any] | None = None,
        topic_partitions: int = 1,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        """Prepare; nothing is sent yet.  `options` are librdkafka's, and may hold secrets.

        `topic_partitions` is how many the output topic is created with if it is missing.
        """
        self.topic = topic
        self.releases_topic = f"{topic}-releases"
        self._bootstrap_servers = bootstrap_servers
        self._options = {"logger": KafkaClientLog(), **(options or {})}
        self._wanted = topic_partitions
        self._timeout_ms = transaction_timeout_ms
        self._reader = TopicReader(
            bootstrap_servers, self._options, patience_s=transaction_timeout_ms / 1_000
        )
        self._bytes_max = 0
        self._numbers = 0
        self._client: Producer | None = None
        self._begun_at = 0.0
        self._sent = 0
        self._failure: tuple[KafkaError, int] | None = None

    def ensure(self) -> tuple[TopicFacts, TopicFacts]:
        """Describe output and releases topic; create missing ones."""
        setup = TopicSetup(self._bootstrap_servers, self._options)
        output, self._bytes_max = setup.ensure_output(self.topic, topic_partitions=self._wanted)
        releases = setup.ensure_releases(self.releases_topic)
        self._numbers = output.topic_partitions
        return output, releases

    def start(self, transactional_id: str) -> None:
        """Take the transactional id over, which ends an open transaction of a former producer.

        Raises UnreachableError if the broker does not answer within a minute.
        """
        self.close()
        self._client = make_client(Producer, self._config(transactional_id))
        give_up_at = time.monotonic() + _INIT_PATIENCE_S
        while True:
            try:
                self._bounded(self._open.init_transactions)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                is_final = is_denied(reason) or is_unsupported(reason)
                if reason.retriable() and not is_final and time.monotonic() < give_up_at:
                    time.sleep(_PAUSE_S)
                    continue
                raise self._start_failure(reason) from error
            return

    def last_release(self) -> ReleaseRecord | None:
        """Return the newest committed record of the releases topic, None if it has none."""
        value = self._reader.newest_value(self.releases_topic)
        return None if value is None else ReleaseRecord.parse(value, topic=self.releases_topic)

    def has_records(self) -> bool:
        """Whether the output topic holds a committed record."""
        return self._reader.has_records(self.topic, self._numbers)

    # ------------------------------------------------------------ one transaction

    def begin(self) -> None:
        """Begin a transaction."""
        self._begun_at = time.monotonic()
        self._sent = 0
        self._failure = None
        try:
            self._open.begin_transaction()
        except KafkaException as error:
            raise self._failed(error.args[0]) from error

    def produce(self, number: int, key: bytes, value: bytes, headers: Headers) -> None:
        """Send a record to a topic partition of the output topic."""
        self._send(self.topic, number, key=key, value=value, headers=headers)

    def produce_release(self, record: ReleaseRecord) -> None:
        """Send the record of a release to the releases topic."""
        self._send(self.releases_topic, 0, key=record.key, value=record.value, headers=[])

    def flush(self) -> None:
        """Wait until everything that was sent is in the log.

        Not by the client's `flush`, which after a fatal error raises it in the middle.
        """
        give_up_at = self._begun_at + self._timeout_ms / 1_000
        while left := len(self._open):
            self._poll(_REPORT_POLL_S)
            if time.monotonic() > give_up_at:
                raise ReleaseUnconfirmed(
                    f"{left} records were not delivered within the transaction's time-out",
                    hint=_SLOW,
                    topic=self.topic,
                )
        self._poll(0)

    def commit(self) -> None:
        """Commit; a commit without an answer is repeated, which is harmless."""
        give_up_at = self._begun_at + self._timeout_ms / 1_000
        while True:
            try:
                self._bounded(self._open.commit_transaction)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                is_silent = reason.retriable() and not reason.fatal()
                if is_silent and not reason.txn_requires_abort() and time.monotonic() < give_up_at:
                    continue
                raise self._failed(reason) from error
            return

    def abort(self) -> None:
        """Abort an open transaction, if the broker answers."""
        if self._client is None:
            return
        with suppress(KafkaException):
            self._client.purge()
            self._bounded(self._client.abort_transaction)

    def close(self) -> None:
        """Release the client, on another thread: ending one that hangs may hang too."""
        former, self._client = self._client, None
        if former is not None:
            held = [former]
            del former
            threading.Thread(target=held.clear, name="kafka-discard", daemon=True).start()

    # ------------------------------------------------------------ inside

    @property
    def _open(self) -> Producer:
        if self._client is None:
            raise InvariantViolation("the output topic's producer was not started")
        return self._client

    def _config(self, transactional_id: str) -> dict[str, Any]:
        least, most = _MESSAGE_BYTES_RANGE
        return {
            "compression.type": "lz4",
            "linger.ms": 5,
            **self._options,
            "bootstrap.servers": self._bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self._timeout_ms,
            "message.timeout.ms": self._timeout_ms,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": max(_QUEUE_KBYTES, 2 * self._bytes_max >> 10),
            "message.max.bytes": min(max(self._bytes_max, least), most),
            "batch.size": min(_BATCH_BYTES, self._bytes_max),
            "delivery.report.only.error": True,
            "on_delivery": self._on_failure,
        }

    def _on_failure(self, error: KafkaError | None, message: Message) -> None:
        """Keep the first failure that names a cause; the records after it are purged."""
        if error is None:
            return
        failure = self._failure
        if failure is None or failure[0].code() in _FOLLOWS:
            self._failure = error, len(message.key() or b"") + len(message.value() or b"")

    def _send(self, topic: str, number: int, *, key: bytes, value: bytes, headers: Headers) -> None:
        while True:
            try:
                self._open.produce(topic, value, key, number, headers=headers)
            except BufferError:
                self._poll(_REPORT_POLL_S)
                self._require_time()
                continue
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                with suppress(KafkaException):
                    self._open.poll(0)
                if self._failure is None:
                    self._failure = reason, len(key) + len(value)
                raise self._failed(self._failure[0]) from error
            break
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._poll(0)

    def _require_time(self) -> None:
        if time.monotonic() > self._begun_at + self._timeout_ms / 1_000:
            raise ReleaseUnconfirmed(
                "a release was not sent within the transaction's time-out",
                hint=_SLOW,
                topic=self.topic,
            )

    def _poll(self, timeout_s: float) -> None:
        """Serve delivery reports; raise the failure of one."""
        try:
            self._open.poll(timeout_s)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        if self._failure is not None:
            raise self._failed(self._failure[0])

    def _cause(self, reason: KafkaError) -> KafkaError:
        """Return the cause where an error only says that the transaction, or the client, has ended.

        In that state the client answers every call with the cause.
        """
        if reason.code() in _FOLLOWS:
            try:
                self._open.begin_transaction()
            except KafkaException as error:
                return cast("KafkaError", error.args[0])
        return reason

    def _failed(self, reason: KafkaError) -> TidegateError:
        """Return our error for one of the client's within a transaction."""
        reason = self._cause(reason)
        if reason.code() in _FENCED:
            if time.monotonic() < self._begun_at + self._timeout_ms / 1_000:
                message = "another run publishes to the output topic under this transactional id"
                hint = "A younger run has taken over: stop this one, or stop that one"
                return TopicWriterReplaced(message, hint=hint, topic=self.topic)
            message = "the transaction of a release outlived its time-out"
            return ReleaseUnconfirmed(message, hint=_SLOW, topic=self.topic)
        failure, size = self._failure or (reason, 0)
        if failure.code() in _FOLLOWS:
            failure = reason
        if failure.code() in _TOO_LARGE:
            message = "a record is larger than the output topic takes"
            hint = f"Raise max.message.bytes of topic {self.topic} and start again"
            return RecordTooLarge(
                message, hint=hint, topic=self.topic, bytes=size, bytes_max=self._bytes_max
            )
        if is_denied(failure):
            return kafka_failure(failure, attempt=f"cannot write to topic {self.topic}")
        message = f"Kafka has not confirmed a release: {failure.str()}"
        return ReleaseUnconfirmed(message, hint="A restart goes on with it", topic=self.topic)

    def _start_failure(self, reason: KafkaError) -> TidegateError:
        if reason.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            message = "ordered_topic_timeout_ms is longer than the brokers allow"
            hint = "Lower it, or raise transaction.max.timeout.ms of the brokers"
            return ConfigError(message, hint=hint, timeout_ms=self._timeout_ms)
        if is_denied(reason) or is_unsupported(reason):
            return kafka_failure(reason, attempt="init_transactions failed")
        message = f"init_transactions failed: {reason.str()}"
        return UnreachableError(message, hint="Check the broker and its log")

    def _bounded(self, call: Callable[[float], object]) -> None:
        """Make a call; give up well after its time-out, since one of the client's may never end."""
        within_s = _CALL_TIMEOUT_S + _HANGS_AFTER_S
        try:
            call_bounded(lambda: call(_CALL_TIMEOUT_S), within_s=within_s)
        except CallHangs:
            code = KafkaError._TIMED_OUT  # noqa: SLF001 - its public constant
            error = KafkaError(code, "the Kafka client does not return", fatal=True)
            raise KafkaException(error) from None
