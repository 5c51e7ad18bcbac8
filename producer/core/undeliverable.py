"""What follows from a message that Kafka refused, which has aborted its transaction.

A record that is found unpublishable while it is read and translated, before anything of it is
produced, is an error of its query (`core.queries`).

The worker ends with an error that names the record.  Nothing of the record's stream partition is
published past it, so that nothing is lost: once somebody has removed the cause, the next owner of
the slot continues with it.

A record that is too large gets another chance before that: its slot is read again, so that
translation, which knows the topic's limit by now, stops or parks exactly this record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidegate.producer.core import effects as do
from tidegate.producer.core.events import DeliveryFault
from tidegate.producer.errors import DeliveryDenied, DeliveryRefused, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Container

    from tidegate.producer.core.events import DeliveryFailure

__all__ = ["ATTEMPTS_MAX", "UndeliverableRecords", "Verdict"]

ATTEMPTS_MAX = 3
"""Transactions that may fail for one permanent cause.

More than one, because a permission or a limit that was just changed may not have reached every
broker, and because a batch may be too large although each of its messages fits: then the next
attempt makes smaller ones.
"""

_READ_AGAIN_MAX = 1_000
_Record: TypeAlias = tuple[str, str, int | None]
"""Topic, key and commit time."""

_ERRORS: dict[DeliveryFault, type[DeliveryRefused]] = {
    DeliveryFault.TOO_LARGE: MessageTooLarge,
    DeliveryFault.DENIED: DeliveryDenied,
    DeliveryFault.INVALID: DeliveryRefused,
}


class Verdict(NamedTuple):
    """What follows from a transaction that was not committed.

    Without either the same is published again.
    """

    stops: tuple[do.Stop, ...] = ()
    slots_to_read_again: tuple[int, ...] = ()


class UndeliverableRecords:
    """Counts failed attempts by cause: fault, topic, and the slot whose records it concerns."""

    def __init__(self) -> None:
        """Start without failures."""
        self._failed: dict[tuple[DeliveryFault, str, int], int] = {}
        self._read_again: set[_Record] = set()
        """Kept for good: a slot that commits something else has not shown that these pass."""

    def refused(self, failure: DeliveryFailure | None) -> Verdict:
        """Decide about a transaction that ended uncommitted, because of `failure` if there is one.

        Without a failure that lasts the verdict is empty.
        """
        if failure is None or failure.fault is DeliveryFault.TRANSIENT:
            return Verdict()
        cause = (failure.fault, failure.topic, failure.slot)
        self._failed[cause] = self._failed.get(cause, 0) + 1
        if self._failed[cause] >= ATTEMPTS_MAX:
            return Verdict(stops=(do.Stop(_error(failure)),))
        if self._failed[cause] > 1 and self._helps_to_read_again(failure):
            self._read_again.add(_record_of(failure))
            return Verdict(slots_to_read_again=(failure.slot,))
        return Verdict()

    def _helps_to_read_again(self, failure: DeliveryFailure) -> bool:
        """Whether translation may find out what Kafka has; of one record only once."""
        return (
            failure.fault is DeliveryFault.TOO_LARGE
            and failure.commit_timestamp_us is not None
            and _record_of(failure) not in self._read_again
            and len(self._read_again) < _READ_AGAIN_MAX
        )

    def delivered(self, slots: Container[int]) -> None:
        """Forget the failures of slots whose records were committed."""
        self._failed = {
            cause: count for cause, count in self._failed.items() if cause[-1] not in slots
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
