"""What follows from a message that Kafka refused, which has aborted its transaction.

A record that is found unpublishable while it is read and translated, before anything of it is
produced, is an error of its query (`core.queries`).

The policy is *stop*: the worker ends with an error that names the record.  Nothing of the record's
stream partition is published past it, so that nothing is lost: once somebody has removed the cause,
the next owner of the slot continues with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.core import effects as do
from tidegate.producer.core.events import DeliveryFault
from tidegate.producer.errors import DeliveryDenied, DeliveryRefused, MessageTooLarge

if TYPE_CHECKING:
    from collections.abc import Container

    from tidegate.producer.core.events import DeliveryFailure

__all__ = ["ATTEMPTS_MAX", "UndeliverableRecords"]

ATTEMPTS_MAX = 3
"""Transactions that may fail for one permanent cause.

More than one, because a permission or a limit that was just changed may not have reached every
broker, and because a batch may be too large although each of its messages fits: then the next
attempt makes smaller ones.
"""

_ERRORS: dict[DeliveryFault, type[DeliveryRefused]] = {
    DeliveryFault.TOO_LARGE: MessageTooLarge,
    DeliveryFault.DENIED: DeliveryDenied,
    DeliveryFault.INVALID: DeliveryRefused,
}


class UndeliverableRecords:
    """Counts failed attempts by cause: fault, topic, and the slot whose records it concerns."""

    def __init__(self) -> None:
        """Start without failures."""
        self._failed: dict[tuple[DeliveryFault, str, int], int] = {}

    def refused(self, failure: DeliveryFailure | None) -> list[do.Effect]:
        """Decide about a transaction that ended uncommitted, because of `failure` if there is one.

        Without effects the same is published again.
        """
        if failure is None or failure.fault is DeliveryFault.TRANSIENT:
            return []
        cause = (failure.fault, failure.topic, failure.slot)
        self._failed[cause] = self._failed.get(cause, 0) + 1
        if self._failed[cause] < ATTEMPTS_MAX:
            return []
        return [do.Stop(_error(failure))]

    def delivered(self, slots: Container[int]) -> None:
        """Forget the failures of slots whose records were committed."""
        self._failed = {
            cause: count for cause, count in self._failed.items() if cause[-1] not in slots
        }


def _error(failure: DeliveryFailure) -> DeliveryRefused:
    return _ERRORS[failure.fault].of(
        failure.topic,
        reason=failure.reason,
        key=failure.key,
        commit_timestamp_us=failure.commit_timestamp_us,
        size_bytes=failure.size_bytes,
        limit_bytes=failure.limit_bytes,
    )
