"""A translator that refuses a record with a change that is too large for its topic.

A message that the broker refuses aborts the transactions of all the worker's slots, so the size is
compared here, where the record is known and nothing of it has been produced.

A limit may have been raised, so it is read again before a change counts as too large: once in some
seconds, however many such changes there are, since all others would wait for each reading.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from tidegate.producer.errors import MessageTooLarge
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.ports import MessageLimits, RecordTranslator
from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.fresh_answers import FreshAnswers, monotonic_us

_OVERHEAD_BYTES_MAX = 200
"""What a message takes beside its key, value and order key, rather too many than too few."""


class LimitedTranslator:
    """Translates records and compares their messages with `limits`; port: `RecordTranslator`."""

    def __init__(
        self,
        translator: RecordTranslator,
        limits: MessageLimits,
        *,
        lock: AbstractContextManager[object] | None = None,
        clock_us: Callable[[], int] = monotonic_us,
    ) -> None:
        """Share the parts with all readers; `lock` is held while the limits are read again.

        `clock_us` is a monotonic clock in microseconds.
        """
        self._translator = translator
        self._limits = limits
        self._lock = lock or threading.Lock()
        self._fresh: FreshAnswers[str] = FreshAnswers(clock_us)

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        """Return as `translate` does; None if it would block, or if a change seems too large."""
        translated = self._translator.translate_now(record, token=token)
        if translated is None or self._first_too_large(translated) is not None:
            return None
        return translated

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages, each within its topic's limit.

        Raises MessageTooLarge for one beyond it, if the limits were read in the last seconds or
        are read again now, and UnreachableError if they cannot be; else what the translator raises.
        """
        translated = self._translator.translate(record, token=token)
        if self._first_too_large(translated) is None:
            return translated
        self._refresh()  # somebody may have raised it
        number = self._first_too_large(translated)
        if number is None:
            return translated
        message = translated.messages[number]
        raise MessageTooLarge.of(
            message.topic,
            table=record.table_name,
            key=key_text(record.mods[number]),
            commit_timestamp_us=translated.commit_timestamp_us,
            size_bytes=message.size_bytes,
            limit_bytes=self._limits.bytes_max(message.topic),
        )

    def _refresh(self) -> None:
        """Read the limits again, unless that was done in the last seconds."""
        with self._lock:  # who waited for another thread has its answer
            if self._fresh.get("limits") is None:
                self._limits.refresh()  # those of all topics
                self._fresh.add("limits", "read")

    def _first_too_large(self, record: PublishableRecord) -> int | None:
        for number, message in enumerate(record.messages):
            if _exceeds(message, self._limits.bytes_max(message.topic)):
                return number
        return None


def key_text(mod: Mod) -> str:
    """Return the primary key of a change, for a person to read."""
    return ", ".join(f"{name}={value}" for name, value in mod.keys.items())


def _exceeds(message: ChangeMessage, bytes_max: int) -> bool:
    # Few messages are anywhere near their limit, so most are not counted exactly.
    content = len(message.key) + len(message.value) + len(message.order_key)
    return content + _OVERHEAD_BYTES_MAX > bytes_max and message.size_bytes > bytes_max
