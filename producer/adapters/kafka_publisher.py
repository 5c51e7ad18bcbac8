"""The transactional producer: publishes, counts offsets, fences, commits, and tells outcomes apart.

Every method that talks to the broker returns the event that says what came of it, or None when the
next effect may follow.  Delivery reports, not the queue, decide: a report that failed or lacks an
offset aborts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from tidegate.producer.core.events import (
    CommitOutcomeUnknown,
    CommitUnanswered,
    Delivered,
    ProducerFenced,
    TransactionAborted,
    TransactionCommitted,
)
from tidegate.schemas.errors import UnreachableError
from tidegate.schemas.progress import SlotProgress, TopicOffset
from tidegate.schemas.progress_codec import encode_key, encode_record
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER
from tidegate.schemas.wire_format import frame

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidegate.producer.core.effects import PublishProgress, PublishRecords

__all__ = ["KafkaPublisher", "Outcome"]

Outcome = CommitOutcomeUnknown | ProducerFenced | TransactionAborted
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)  # noqa: SLF001 - its public constant
_OF_THE_GROUP = (
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.UNKNOWN_MEMBER_ID,
)
"""What the fence may be refused with when slots move: no fault of the producer's."""

_CALL_TIMEOUT_S = 30.0
_REPORT_POLL_S = 0.1
_HANGS_AFTER_S = 10.0
_INIT_PATIENCE_S = 60.0


class KafkaPublisher:
    """One worker's producer; `transactional_id` is the worker's stable name within its prefix."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        transactional_id: str,
        transaction_timeout_ms: int,
        progress_topic: str,
        key_schema_id: int,
        record_schema_id: int,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; `start` connects."""
        self._config = {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            "message.timeout.ms": transaction_timeout_ms,
            "enable.idempotence": True,
            # As Java clients place keys, so that any other producer or reader agrees.
            "partitioner": "murmur2",
            "compression.type": "lz4",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            **(options or {}),
            "error_cb": self._on_error,
        }
        # What takes longer than this is lost: the broker has ended the transaction by then.
        self._patience_s = min(_CALL_TIMEOUT_S, transaction_timeout_ms / 1_000)
        self._progress_topic = progress_topic
        self._key_schema_id = key_schema_id
        self._record_schema_id = record_schema_id
        self._producer: Producer | None = None
        self._is_worn = False
        self._metadata: bytes | None = None
        self._written: dict[int, dict[tuple[str, int], int]] = {}
        self._snapshots: dict[int, int] = {}
        self._failures: deque[str] = deque(maxlen=10)

    def start(self) -> None:
        """Make a producer of the transactional id, ending whatever its predecessor left open.

        Raises UnreachableError if the broker does not answer within a minute.
        """
        former, self._producer = self._producer, Producer(self._config)
        if former is not None:
            _discard([former])
            del former
        self._is_worn = False
        give_up_at = time.monotonic() + _INIT_PATIENCE_S
        while True:
            try:
                self._bounded(self._producer.init_transactions, within_s=_CALL_TIMEOUT_S)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.retriable() and time.monotonic() < give_up_at:
                    continue
                message = f"no transactional producer could be had: {reason.str()}"
                raise UnreachableError(message, hint="Check the broker and its log") from error
            return

    # ------------------------------------------------------------ one transaction

    def begin(self, metadata: bytes | None) -> Outcome | None:
        """Begin, with the group's metadata of this moment; None: there is no membership.

        A producer that has seen the brokers gone, or an error of its own, is replaced first: the
        client keeps the group's coordinator in a cache, and when that broker was away, it waits for
        a connection that never comes, in every fence, for as long as the cache lives.
        """
        if metadata is None:
            return TransactionAborted("the worker is no member of the group at this moment")
        if self._is_worn:
            self.start()
        self._metadata = metadata
        self._written.clear()
        self._snapshots.clear()
        self._failures.clear()
        try:
            self._open.begin_transaction()
        except KafkaException as error:
            return self._abort_after(error)
        return None

    def publish_records(self, effect: PublishRecords) -> Outcome | None:
        """Produce every message of the records."""
        written = self._written.setdefault(effect.slot, {})

        def on_report(error: KafkaError | None, report: Message) -> None:
            self._note(error, report, written)

        for record in effect.records:
            for message in record.messages:
                headers = [(HEADER_ORDER, message.order_key), (HEADER_MOD, message.mod)]
                outcome = self._produce(
                    message.topic,
                    key=message.key,
                    value=message.value,
                    headers=headers,
                    on_delivery=on_report,
                )
                if outcome is not None:
                    return outcome
        return None

    def publish_progress(self, effect: PublishProgress) -> Outcome | None:
        """Produce one progress record into its slot."""
        body = effect.record.body
        if effect.author_slot is None:

            def on_report(error: KafkaError | None, report: Message) -> None:
                place: dict[tuple[str, int], int] = {}
                self._note(error, report, place)
                for offset in place.values():
                    if isinstance(body, SlotProgress) and body.chunk == 0:
                        self._snapshots[effect.slot] = offset
        else:
            written = self._written.setdefault(effect.author_slot, {})

            def on_report(error: KafkaError | None, report: Message) -> None:
                self._note(error, report, written)

        return self._produce(
            self._progress_topic,
            partition=effect.slot,
            key=frame(self._key_schema_id, encode_key(body)),
            value=frame(self._record_schema_id, encode_record(effect.record)),
            on_delivery=on_report,
        )

    def await_delivery(self) -> Delivered | Outcome:
        """Wait for every report; return what they say.

        Not by `flush`: when the producer fails for good, the client raises that in the middle of a
        flush and goes on to call report callbacks with the exception pending, which gives a
        SystemError or worse.  `poll` returns at once.
        """
        give_up_at = time.monotonic() + self._patience_s
        while (left := len(self._open)) and time.monotonic() < give_up_at:
            try:
                self._open.poll(_REPORT_POLL_S)
            except KafkaException as error:
                return self._abort_after(error)
        if left or self._failures:
            self._is_worn = True
            reason = f"{left} messages without a report, failures: {list(self._failures)}"
            return self.abort(reason)
        written = {
            slot: tuple(TopicOffset(*place, offset) for place, offset in sorted(places.items()))
            for slot, places in self._written.items()
        }
        return Delivered(written, dict(self._snapshots))

    def send_offsets(self, offsets: tuple[tuple[int, int], ...]) -> Outcome | None:
        """Send the fence, with the metadata kept at begin."""
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

    def commit(self) -> TransactionCommitted | CommitUnanswered | Outcome:
        """Commit; asking again is harmless, and whether to is the core's to say."""
        try:
            self._bounded(self._open.commit_transaction, within_s=_CALL_TIMEOUT_S)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() in _FENCED:
                return ProducerFenced()
            if reason.txn_requires_abort():
                return self._abort_after(error)
            if reason.fatal() or not reason.retriable():
                return CommitOutcomeUnknown(reason.str())
            return CommitUnanswered(reason.str())
        return TransactionCommitted()

    def abort(self, reason: str) -> TransactionAborted | CommitOutcomeUnknown | ProducerFenced:
        """Abort; nothing of the transaction stays."""
        try:
            self._open.purge()
            self._bounded(self._open.abort_transaction, within_s=_CALL_TIMEOUT_S)
        except KafkaException as error:
            failure: KafkaError = error.args[0]
            if failure.code() in _FENCED:
                return ProducerFenced()
            return CommitOutcomeUnknown(f"{reason}; and the abort failed: {failure.str()}")
        return TransactionAborted(reason)

    # ------------------------------------------------------------ inside

    def _on_error(self, error: KafkaError) -> None:
        """Told by the client, inside `poll`, of what no call has asked for."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - its public constant
            self._is_worn = True

    def _bounded(self, call: Callable[..., object], *arguments: object, within_s: float) -> None:
        """Make a call whose last argument is its time-out, and give it up well after that.

        After a broker was away the client has been seen not to return from a fence at all.  Who
        hangs is left behind with its producer; the next one of the same id fences it.
        """
        answers: SimpleQueue[BaseException | None] = SimpleQueue()

        def make() -> None:
            try:
                call(*arguments, within_s)
            except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                answers.put(error)
            else:
                answers.put(None)

        threading.Thread(target=make, name="kafka-call", daemon=True).start()
        try:
            error = answers.get(timeout=within_s + _HANGS_AFTER_S)
        except Empty:
            reason = "the client does not return"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason, fatal=True)) from None  # noqa: SLF001 - its public constant
        if error is not None:
            raise error

    @property
    def _open(self) -> Producer:
        if self._producer is None:
            message = "the producer was not started"
            raise UnreachableError(message)
        return self._producer

    def _produce(self, topic: str, **message: Any) -> Outcome | None:
        while True:
            try:
                try:
                    self._open.produce(topic, **message)
                except BufferError:
                    self._open.poll(_REPORT_POLL_S)
                else:
                    return None
            except KafkaException as error:
                return self._abort_after(error)

    def _note(
        self,
        error: KafkaError | None,
        report: Message,
        written: dict[tuple[str, int], int],
    ) -> None:
        topic, number, offset = report.topic(), report.partition(), report.offset()
        if error is not None:
            self._failures.append(f"{topic}: {error.str()}")
        elif topic is None or number is None or offset is None or offset < 0:
            self._failures.append(f"{topic}: a delivery report without an offset")
        else:
            written[topic, number] = max(offset, written.get((topic, number), -1))

    def _abort_after(self, error: KafkaException) -> Outcome:
        reason: KafkaError = error.args[0]
        if reason.code() in _FENCED:
            return ProducerFenced()
        if reason.fatal():
            return CommitOutcomeUnknown(reason.str())
        self._is_worn = self._is_worn or reason.code() not in _OF_THE_GROUP
        return self.abort(reason.str())


def _discard(producers: list[Producer]) -> None:
    """End producers on a thread of their own: ending one that hangs may hang too."""
    threading.Thread(target=producers.clear, name="kafka-discard", daemon=True).start()
