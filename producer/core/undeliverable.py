"""The consequences of a message that Kafka rejected, which has aborted its transaction.

The worker ends with an error that names the record.  Nothing of the record's stream partition is
published past it, so that nothing is lost: once the cause is removed, the next owner of the slot
continues with the record.  A record that is too large gets another attempt first: its slot is read
again, so that translation, which by now knows the topic's limit, stops at or parks exactly this
record.

A record that cannot be translated is an error of its query (`core.queries`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from tidegate.producer.core import effects as do
from tidegate.producer.core.events import DeliveryFailure, DeliveryFault
from tidegate.producer.errors import DeliveryDenied, DeliveryRefused, MessageTooLarge

ATTEMPTS_MAX = 3
"""Transactions that may fail for one permanent cause.

More than one, because a permission or a limit that was just changed may not have reached every
broker, and because a batch may be too large although each of its messages fits: then the next
attempt makes smaller batches.
"""

_READ_AGAIN_MAX = 1_000
_RECORDS_MAX = 1_000
"""Number of records whose attempts are counted; the least recent failure is dropped."""
_Record: TypeAlias = tuple[str, str, int | None]
"""Topic, key and commit time."""

_ERRORS: dict[DeliveryFault, type[DeliveryRefused]] = {
    DeliveryFault.TOO_LARGE: MessageTooLarge,
    DeliveryFault.DENIED: DeliveryDenied,
    DeliveryFault.INVALID: DeliveryRefused,
}


class Verdict(NamedTuple):
    """The consequences of an uncommitted transaction; if empty, it is published again."""

    stops: tuple[do.Stop, ...] = ()
    slots_to_read_again: tuple[int, ...] = ()


class _Cause(NamedTuple):
    """The cause of failed attempts, which are counted together."""

    fault: DeliveryFault
    topic: str
    slot: int | None
    """None for a fault of the topic, which affects records of any slot."""
    is_progress: bool
    """Whether the topic is the progress topic, to which every transaction writes."""


class UndeliverableRecords:
    """Counts failed attempts by cause.

    A missing right and a topic's refusal concern the topic, so they are counted over all slots.  A
    size concerns a slot's batch, and one record.  A count by topic ends when the topic has accepted
    a message; a count by record does not, since other records prove nothing about it.
    """

    def __init__(self) -> None:
        self._failed: dict[_Cause, int] = {}
        self._too_large: dict[_Record, int] = {}
        """Attempts at each record that was too large, also over commits of its slot."""
        self._read_again: set[_Record] = set()
        """Records that were read again; never removed: a commit of other records proves nothing
        about them."""

    def refused(self, failure: DeliveryFailure | None) -> Verdict:
        """Return the verdict on a transaction that ended uncommitted, because of `failure` if any.

        Without a permanent failure the verdict is empty.
        """
        if failure is None or failure.fault is DeliveryFault.TRANSIENT:
            return Verdict()
        attempts = self._count(failure)
        if attempts >= ATTEMPTS_MAX:
            return Verdict(stops=(do.Stop(_error(failure)),))
        if attempts > 1 and self._helps_to_read_again(failure):
            self._read_again.add(_record_of(failure))
            return Verdict(slots_to_read_again=(failure.slot,))
        return Verdict()

    def _count(self, failure: DeliveryFailure) -> int:
        """Count an attempt; return the number of failed attempts with its cause."""
        is_progress = failure.commit_timestamp_us is None
        is_too_large = failure.fault is DeliveryFault.TOO_LARGE
        slot = failure.slot if is_too_large else None
        cause = _Cause(failure.fault, failure.topic, slot, is_progress)
        attempts = self._failed[cause] = self._failed.get(cause, 0) + 1
        if not is_too_large or is_progress:
            return attempts
        record = _record_of(failure)
        record_attempts = self._too_large.pop(record, 0) + 1
        self._too_large[record] = record_attempts  # at the end: it has failed most recently
        if len(self._too_large) > _RECORDS_MAX:
            del self._too_large[next(iter(self._too_large))]
        return max(attempts, record_attempts)

    def _helps_to_read_again(self, failure: DeliveryFailure) -> bool:
        """Whether translation may find the record too large; tried once for each record."""
        return (
            failure.fault is DeliveryFault.TOO_LARGE
            and failure.commit_timestamp_us is not None
            and _record_of(failure) not in self._read_again
            and len(self._read_again) < _READ_AGAIN_MAX
        )

    @property
    def is_counting(self) -> bool:
        """Whether `delivered` has anything to remove."""
        return bool(self._failed)

    def delivered(self, topics: Mapping[int, Collection[str]]) -> None:
        """Remove the failures of topics that have accepted a message.

        `topics` are the topics of the committed changes, by slot, for all slots of the transaction.
        The dead-letter topic is not among them: its failures count as long as the worker runs.
        """
        topics_delivered = {topic for slot_topics in topics.values() for topic in slot_topics}

        def was_taken(cause: _Cause) -> bool:
            if cause.slot is None:
                return cause.is_progress or cause.topic in topics_delivered
            if cause.slot not in topics:
                return False
            return cause.is_progress or cause.topic in topics[cause.slot]

        self._failed = {
            cause: count for cause, count in self._failed.items() if not was_taken(cause)
        }


def _record_of(failure: DeliveryFailure) -> _Record:
    return failure.topic, failure.key, failure.commit_timestamp_us


def _error(failure: DeliveryFailure) -> DeliveryRefused:
    return _ERRORS[failure.fault].of(
        failure.topic,
        reason=failure.reason,
        key=failure.key,
        commit_timestamp_us=failure.commit_timestamp_us,
        size_bytes=failure.size_bytes,
        limit_bytes=failure.limit_bytes,
    )
