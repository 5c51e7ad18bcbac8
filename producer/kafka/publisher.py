"""The transactional producer: publishes, fences, commits, reports outcomes.

Delivery reports, not the queue, decide whether something is published: a failed report or one
without an offset aborts the transaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from tidegate.producer.core.effects import PublishProgress, PublishRecords
from tidegate.producer.core.events import (
    CommitOutcomeUnknown,
    CommitUnanswered,
    Delivered,
    DeliveryFailure,
    DeliveryFault,
    ProducerFenced,
    TransactionAborted,
    TransactionCommitted,
    TransactionFailure,
)
from tidegate.producer.kafka.admin import retry
from tidegate.producer.kafka.delivery import Callback, DeliveryReports, RefusedMessage, fault_of
from tidegate.producer.kafka.murmur2 import topic_partition_of
from tidegate.producer.kafka.service_check import denied_topics
from tidegate.producer.messages import MOD_DELETE, PublishableRecord
from tidegate.program.calls import CallHangs, call_bounded
from tidegate.program.kafka_clients import make_client
from tidegate.program.kafka_errors import FENCED, is_denied, is_unsupported, kafka_failure
from tidegate.schemas.errors import ConfigError, TidegateError, UnreachableError
from tidegate.schemas.progress_codec import encode_key, encode_record
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN, HEADER_REDRIVEN
from tidegate.schemas.wire_format import frame

if TYPE_CHECKING:
    from tidegate.producer.kafka.message_limits import KafkaMessageLimits


Headers = list[tuple[str, str | bytes | None]]


_GROUP_ERRORS = (
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
)
"""Errors that reject a fence while slots move; the producer itself is not at fault."""

_CALL_TIMEOUT_S = 30.0
_REPORT_POLL_S = 0.1
_HANGS_AFTER_S = 10.0
_BATCH_BYTES = 1_000_000
_MESSAGE_BYTES_RANGE = (1_000, 1_000_000_000)
"""The range of `message.max.bytes` that librdkafka accepts."""


class KafkaPublisher:
    """One worker's producer; port: `ports.Publisher`.

    `transactional_id` is stable: a restart under the same id ends the predecessor's transaction.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        transactional_id: str,
        transaction_timeout_ms: int,
        progress_topic: str,
        topic_partitions: Mapping[str, int],
        progress_schema_ids: Mapping[int, tuple[int, int]],
        options: Mapping[str, Any] | None = None,
        limits: KafkaMessageLimits | None = None,
        dead_letter: str = "",
        redrives: bool = False,
        tombstones: bool = False,
    ) -> None:
        """Prepare; `start` connects.  Without `limits` the client's defaults apply.

        `topic_partitions` holds, for each data topic, the number that the epoch recorded: records
        are placed by it, whatever number the topic has now.  Topics of later tables may be added to
        it from outside, before their first record.  `progress_schema_ids` holds the ids of key and
        value for each version of the progress records.  `dead_letter` is the topic of parked
        changes, also one of `topic_partitions`; without it no change may be parked.  With
        `redrives` every change gets the header of a redriven one.  With `tombstones` each DELETE in
        a data topic is followed by a record with its key and no value.
        """
        self._config = {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            "message.timeout.ms": transaction_timeout_ms,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            **(options or {}),
            "error_cb": self._on_error,
        }
        # After its time-out the broker has ended the transaction.  A redrive may hold so many
        # changes that half a minute is not enough.
        timeout_s = transaction_timeout_ms / 1_000
        self._patience_s = timeout_s if redrives else min(_CALL_TIMEOUT_S, timeout_s)
        self._progress_topic = progress_topic
        self._topic_partitions = topic_partitions
        self._dead_letter = dead_letter
        self._more_headers: Headers = [(HEADER_REDRIVEN, b"1")] if redrives else []
        self._tombstones = tombstones
        self._progress_schema_ids = dict(progress_schema_ids)
        self._producer: Producer | None = None
        self._must_replace = False
        self._metadata: bytes | None = None
        self._reports = DeliveryReports()
        self._limits = limits
        self._options = dict(options or {})
        self._sizes: dict[str, int] = {}

    def start(self) -> None:
        """Create a producer of the transactional id, which ends its predecessor's transaction.

        Raises UnreachableError if the broker does not answer within a minute, and ConfigError if it
        denies access, or supports no transactions or not this time-out.
        """
        self._sizes = self._size_options()
        config = {**self._config, **self._sizes}
        former, self._producer = [self._producer], make_client(Producer, config)
        _discard(former)
        self._must_replace = False
        try:
            retry(self._initialise, is_retriable=_is_retriable)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                message = "transaction_timeout_ms: longer than the brokers allow"
                hint = "Lower it, or raise transaction.max.timeout.ms of the brokers"
                timeout_ms = self._config["transaction.timeout.ms"]
                raise ConfigError(message, hint=hint, timeout_ms=timeout_ms) from error
            if is_denied(reason) or is_unsupported(reason):
                raise kafka_failure(reason, attempt="init_transactions failed") from error
            raise UnreachableError(
                f"init_transactions failed: {reason.str()}", hint="Check the broker and its log"
            ) from error

    # ------------------------------------------------------------ one transaction

    def begin(self, metadata: bytes | None) -> TransactionFailure | None:
        """Begin a transaction; `metadata` is the group's, None without a membership.

        A producer that lost all brokers, or had an error, is replaced first: the client caches the
        group's coordinator, and after that broker was down it waits, in every fence, for a
        connection that never comes.  A producer whose limits on sizes have changed is replaced as
        well.
        """
        if metadata is None:
            return TransactionAborted("the worker is not a member of the group")
        if self._must_replace or self._sizes != self._size_options():
            self.start()
        self._metadata = metadata
        self._reports = DeliveryReports()
        try:
            self._open.begin_transaction()
        except KafkaException as error:
            return self._abort_after(error)
        return None

    def publish_records(self, effect: PublishRecords) -> TransactionFailure | None:
        """Produce every message of the records, and their parked changes."""
        on_report = self._reports.of_changes(effect.slot, effect.records)
        produce, counts = self._open.produce, self._topic_partitions
        more_headers, tombstones = self._more_headers, self._tombstones
        for record in effect.records:
            for topic, key, value, order_key, mod, origin, _ in record.messages:
                number = topic_partition_of(key, counts[topic])
                headers: Headers = [
                    (HEADER_ORDER, order_key),
                    (HEADER_MOD, mod),
                    (HEADER_ORIGIN, origin),
                    *more_headers,
                ]
                try:
                    produce(topic, value, key, number, on_report, headers=headers)
                except (BufferError, KafkaException) as error:
                    outcome = self._produce(
                        topic,
                        key=key,
                        value=value,
                        on_delivery=on_report,
                        slot=effect.slot,
                        records=(record,),
                        failed=error,
                        partition=number,
                        headers=headers,
                    )
                    if outcome is not None:
                        return outcome
                if tombstones and mod == MOD_DELETE:
                    outcome = self._produce(
                        topic,
                        key=key,
                        value=None,
                        on_delivery=on_report,
                        slot=effect.slot,
                        records=(record,),
                        partition=number,
                    )
                    if outcome is not None:
                        return outcome
            if record.parked and (outcome := self._publish_parked(effect.slot, record)) is not None:
                return outcome
        return None

    def publish_progress(self, effect: PublishProgress) -> TransactionFailure | None:
        """Produce one progress record into its slot."""
        record = effect.record
        key_id, value_id = self._progress_schema_ids[record.version]
        value = encode_record(record)
        return self._produce(
            self._progress_topic,
            key=frame(key_id, encode_key(record.body, record.version)),
            value=None if value is None else frame(value_id, value),
            on_delivery=self._reports.of_progress(effect),
            slot=effect.slot if effect.author_slot is None else effect.author_slot,
            partition=effect.slot,
        )

    def await_delivery(self) -> Delivered | TransactionFailure:
        """Wait for all delivery reports and return their offsets; a failed one ends the wait.

        Does not use `flush`: after a fatal error the client raises it in the middle of a flush and
        still calls report callbacks while the exception is pending, which ends in a SystemError or
        worse.  `poll` returns at once.
        """
        give_up_at = time.monotonic() + self._patience_s
        failures = self._reports.failures
        while (left := len(self._open)) and not failures and time.monotonic() < give_up_at:
            try:
                self._open.poll(_REPORT_POLL_S)
            except KafkaException as error:
                return self._abort_after(error)
        if left or failures:
            reason = f"{left} messages without a report, failures: {list(failures)}"
            return self._abort_undelivered(reason)
        return Delivered(self._reports.written, dict(self._reports.snapshots))

    def send_offsets(self, offsets: tuple[tuple[int, int], ...]) -> TransactionFailure | None:
        """Send the fence, with the metadata from `begin`."""
        places = [TopicPartition(self._progress_topic, slot, offset) for slot, offset in offsets]
        try:
            self._bounded(
                self._open.send_offsets_to_transaction,
                places,
                self._metadata,
                within_s=self._patience_s,
            )
        except KafkaException as error:
            return self._abort_after(error)
        return None

    def commit(self) -> TransactionCommitted | CommitUnanswered | TransactionFailure:
        """Commit; a repeated commit is harmless."""
        try:
            self._bounded(self._open.commit_transaction, within_s=_CALL_TIMEOUT_S)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() in FENCED:
                return ProducerFenced()
            if reason.txn_requires_abort():
                return self._abort_after(error)
            if reason.fatal() or not reason.retriable():
                return CommitOutcomeUnknown(reason.str())
            return CommitUnanswered(reason.str())
        return TransactionCommitted()

    def abort(self, reason: str) -> TransactionAborted | CommitOutcomeUnknown | ProducerFenced:
        """Abort the transaction and drop undelivered messages."""
        try:
            self._open.purge()
            self._bounded(self._open.abort_transaction, within_s=_CALL_TIMEOUT_S)
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if failure.code() in FENCED:
                return ProducerFenced()
            return CommitOutcomeUnknown(f"{reason}; the abort failed: {failure.str()}")
        return TransactionAborted(reason)

    def close(self) -> None:
        """Release the client, on its own thread."""
        former, self._producer = [self._producer], None
        _discard(former)

    # ------------------------------------------------------------ inside

    def _publish_parked(self, slot: int, record: PublishableRecord) -> TransactionFailure | None:
        """Produce a record's parked changes into the dead-letter topic."""
        on_report = self._reports.of_parked(slot, (record,))
        for change in record.parked:
            outcome = self._produce(
                self._dead_letter,
                key=change.key,
                value=change.value,
                on_delivery=on_report,
                slot=slot,
                records=(record,),
                partition=topic_partition_of(change.key, self._topic_partitions[self._dead_letter]),
                headers=change.headers,
            )
            if outcome is not None:
                return outcome
        return None

    def _initialise(self) -> None:
        self._bounded(self._open.init_transactions, within_s=_CALL_TIMEOUT_S)

    def _on_error(self, error: KafkaError) -> None:
        """Record an error that belongs to no call; called inside `poll`."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public constant
            self._must_replace = True

    def _bounded(self, call: Callable[..., object], *arguments: object, within_s: float) -> None:
        """Make a call whose last argument is its time-out; give up well after that time.

        After a broker was down, a fence has been seen never to return.  A call that hangs is
        abandoned on its thread; the next producer of the same id fences it.
        """
        try:
            call_bounded(lambda: call(*arguments, within_s), within_s=within_s + _HANGS_AFTER_S)
        except CallHangs:
            code = KafkaError._TIMED_OUT  # noqa: SLF001 - its public constant
            error = KafkaError(code, "the Kafka client does not return", fatal=True)
            raise KafkaException(error) from None

    @property
    def _open(self) -> Producer:
        if self._producer is None:
            raise UnreachableError("the producer was not started")
        return self._producer

    def _produce(
        self,
        topic: str,
        *,
        key: bytes,
        value: bytes | None,
        on_delivery: Callback,
        slot: int,
        records: Sequence[PublishableRecord] = (),
        failed: BufferError | KafkaException | None = None,
        **options: Any,
    ) -> TransactionFailure | None:
        """Produce one message, waiting for room; `failed` is the outcome of a first attempt."""
        while True:
            try:
                try:
                    if failed is not None:
                        error, failed = failed, None
                        raise error
                    self._open.produce(
                        topic, key=key, value=value, on_delivery=on_delivery, **options
                    )
                except BufferError:
                    self._open.poll(_REPORT_POLL_S)
                else:
                    return None
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if fault_of(reason) is not DeliveryFault.TRANSIENT:
                    refused = RefusedMessage(reason, slot, topic, key, value or b"", records)
                    self._reports.refuse(refused)
                elif not self._has_failed_report():
                    return self._abort_after(error)
                return self._abort_undelivered(reason.str())

    def _has_failed_report(self) -> bool:
        """Whether a message failed; a client that rejects messages does not say which.

        Purges first: a client whose transaction has failed rejects messages some time before it
        reports the failed ones.  The caller aborts in either case.
        """
        with suppress(KafkaException):
            self._open.purge()
            self._open.poll(0)
        return bool(self._reports.failures)

    def _abort_after(self, error: KafkaException) -> TransactionFailure:
        reason: KafkaError = error.args[0]
        if reason.code() in FENCED:
            return ProducerFenced()
        if reason.fatal():
            return CommitOutcomeUnknown(reason.str())
        self._must_replace = self._must_replace or reason.code() not in _GROUP_ERRORS
        return self.abort(reason.str())

    def _abort_undelivered(self, reason: str) -> TransactionFailure:
        """Abort because of failed messages, and return the most important one."""
        self._must_replace = True
        failure = self._delivery_failure()
        outcome = self.abort(reason)
        return outcome if isinstance(outcome, ProducerFenced) else replace(outcome, failure=failure)

    def _delivery_failure(self) -> DeliveryFailure | None:
        failure = self._reports.refusals.failure()
        if failure is not None and failure.fault is DeliveryFault.TRANSIENT:
            failure = self._failure_of_transaction() or failure
        if failure is None or self._limits is None:
            return failure
        if failure.fault is DeliveryFault.TOO_LARGE:
            # The limits may have become smaller; `begin` creates a client with the new ones.
            with suppress(TidegateError):
                self._limits.refresh()
        return replace(failure, limit_bytes=self._limits.bytes_max(failure.topic))

    def _failure_of_transaction(self) -> DeliveryFailure | None:
        """Return the error that purged the messages of a transaction, if it is permanent.

        A topic that cannot be added to the transaction purges all messages, and their reports
        contain only that.  In this state the client answers every call with the cause.
        """
        try:
            self._open.begin_transaction()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            fault = fault_of(reason)
            failures = self._reports.refusals.failures()
            if fault is DeliveryFault.TRANSIENT or not failures:
                return None
            topic = min(failures)
            if fault is DeliveryFault.DENIED:
                topic = min(self._denied(failures), default=topic)
            return replace(failures[topic], fault=fault, reason=reason.name())
        return None

    def _denied(self, topics: Iterable[str]) -> list[str]:
        """Return the topics without the right to write; none if that cannot be looked up."""
        with suppress(TidegateError):
            return denied_topics(
                topics,
                bootstrap_servers=self._config["bootstrap.servers"],
                options=self._options,
            )
        return []

    def _size_options(self) -> dict[str, int]:
        """Return the client's limits: per message the topics' largest, per batch their smallest.

        The client has one limit for all topics, and each batch goes to one of them.
        """
        if self._limits is None:
            return {}
        least, most = _MESSAGE_BYTES_RANGE
        batch_bytes = int(self._config.get("batch.size", _BATCH_BYTES))
        return {
            "message.max.bytes": min(max(self._limits.largest, least), most),
            "batch.size": min(batch_bytes, self._limits.smallest),
        }


def _is_retriable(reason: KafkaError) -> bool:
    return reason.retriable() and not (is_denied(reason) or is_unsupported(reason))


def _discard(producers: list[Producer | None]) -> None:
    """Drop the only references to producers on another thread, because ending one may hang."""
    threading.Thread(target=producers.clear, name="kafka-discard", daemon=True).start()
