"""The translation of data change records, in steps; all but the first two may be missing.

    translator       makes messages under the known schemas; never blocks
    refresher        registers the new schema of a table that changed (`table_refresh`)
    record filter    leaves out records and columns before they are translated or parked
    size limits      refuse a message that is too large for its topic
    parking          keeps single changes that cannot be published

A message that the broker refuses aborts the transactions of all the worker's slots, so sizes are
compared here, before anything of the record has been produced.

A record with a change that cannot be published is taken apart.  The other changes stay messages;
that one becomes a `ParkedChange`, which holds Spanner's record of it.  A change can be parked only
if its topic, key and order key are known: otherwise later changes of its key could not be
recognised, and would overtake it.  Its error is raised, as without parking.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    TableChanged,
    TopicRefused,
)
from tidegate.producer.messages import FORM_RECORD, ChangeMessage, ParkedChange, PublishableRecord
from tidegate.producer.ports import MessageLimits
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.parked_record import write_parked_record
from tidegate.producer.translation.table_refresh import FreshAnswers, TableRefresher, monotonic_us
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US

POISON = (SchemaError, IncompatibleChange, MessageTooLarge, TopicRefused)
"""Errors about a change that repetition cannot fix."""
_Poison: TypeAlias = SchemaError | IncompatibleChange | MessageTooLarge | TopicRefused

ERROR_CHARACTERS_MAX = 1_000
"""The longest text of an error in a parked change."""

_KEY_SHOWN_MAX = 100
_OVERHEAD_BYTES_MAX = 200
"""Upper bound of a message's bytes in addition to its key, value and order key."""


class SizeLimits:
    """Compares messages with the limits of their topics; thread-safe.

    A limit may have been raised, so it is read again before a change counts as too large: once
    every few seconds, however many such changes there are, because all others wait for each read.
    """

    def __init__(
        self,
        limits: MessageLimits,
        *,
        lock: AbstractContextManager[object] | None = None,
        clock_us: Callable[[], int] = monotonic_us,
    ) -> None:
        """`lock` is held while the limits are read again; `clock_us` is a monotonic clock."""
        self._limits = limits
        self._lock = lock or threading.Lock()
        self._fresh: FreshAnswers[str] = FreshAnswers(clock_us)

    def first_too_large(self, translated: PublishableRecord) -> int | None:
        """Return the place of the first message beyond the known limits; None if all fit."""
        for number, message in enumerate(translated.messages):
            bytes_max = self._limits.bytes_max(message.topic)
            # Few messages are close to their limit, so most are not counted exactly.
            content = len(message.key) + len(message.value) + len(message.order_key)
            if content + _OVERHEAD_BYTES_MAX > bytes_max and message.size_bytes > bytes_max:
                return number
        return None

    def require(self, translated: PublishableRecord, record: DataChangeRecord) -> None:
        """Raise MessageTooLarge for a message beyond its topic's limit.

        The limits were read in the last few seconds, or are read again now; raises UnreachableError
        if that fails.
        """
        if self.first_too_large(translated) is None:
            return
        self._refresh()
        number = self.first_too_large(translated)
        if number is None:
            return
        message = translated.messages[number]
        raise MessageTooLarge.of(
            message.topic,
            table=record.table_name,
            key=_key_text(record.mods[number]),
            commit_timestamp_us=translated.commit_timestamp_us,
            size_bytes=message.size_bytes,
            limit_bytes=self._limits.bytes_max(message.topic),
        )

    def _refresh(self) -> None:
        """Read the limits of all topics again, unless that was done in the last few seconds."""
        with self._lock:  # another thread has just read them
            if self._fresh.get("limits") is None:
                self._limits.refresh()
                self._fresh.add("limits", "read")


class Parking:
    """Parks single changes that cannot be published; thread-safe."""

    def __init__(
        self,
        places: Translator,
        limits: MessageLimits,
        *,
        dead_letter: str,
        report: Callable[[ParkedChange, str, int], None],
    ) -> None:
        """`places` finds the topic, key and order key of a change.

        `report` gets each parked change with its readable key and its commit time in microseconds,
        on any thread; a change that is read again is reported again.
        """
        self._places = places
        self._limits = limits
        self._dead_letter = dead_letter
        self._report = report

    def park(self, record: DataChangeRecord, error: _Poison, token: str) -> ParkedChange:
        """Return the only change of a record, parked; raises the error if it cannot be parked."""
        try:
            place = self._places.place(record)
            content = write_parked_record(record)
        except (SchemaError, TableChanged) as obstacle:
            raise _unparkable(error, str(obstacle)) from error
        change = ParkedChange(
            topic=place.topic,
            key=place.key,
            order_key=place.order_key,
            mod=place.mod,
            content=content,
            form=FORM_RECORD,
            reason=type(error).__name__,
            error=str(error)[:ERROR_CHARACTERS_MAX],
            token=token,
        )
        bytes_max = self._limits.bytes_max(self._dead_letter)
        if change.size_bytes > bytes_max:
            raise _unparkable(
                error, f"{self._dead_letter} takes {bytes_max} bytes, it needs {change.size_bytes}"
            ) from error
        key = _key_text(record.mods[0])[:_KEY_SHOWN_MAX]
        self._report(change, key, record.commit_timestamp_ns // NS_PER_US)
        return change


@dataclass(frozen=True, slots=True)
class TranslationPipeline:
    """Translates records step by step; port: `ports.RecordTranslator`."""

    translator: Translator
    refresher: TableRefresher
    limits: SizeLimits | None = None
    record_filter: RecordFilter | None = None
    parking: Parking | None = None

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        """Return as `translate` does; None if that would block, or if a change has to be parked."""
        if self.record_filter is not None:
            if self.record_filter.leaves_out(record):
                return _left_out(record)
            record = self.record_filter.narrowed(record)
        try:
            return self._published_now(record, token)
        except POISON:
            if self.parking is None:
                raise
            return None

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages and parked changes; none if it is left out.

        If nothing is parked, or the cause may pass, raises the errors of `TableRefresher.translate`
        and `SizeLimits.require`.  If a change can neither be published nor parked, the error gives
        the reason.
        """
        if self.record_filter is not None:
            if self.record_filter.leaves_out(record):
                return _left_out(record)
            record = self.record_filter.narrowed(record)
        parking = self.parking
        if parking is None:
            return self._published(record, token)
        try:
            return self._published(record, token)
        except POISON as error:
            if not record.mods:
                raise _unparkable(error, "the record holds no change") from error
        return self._by_change(record, token, parking)

    def _published_now(self, record: DataChangeRecord, token: str) -> PublishableRecord | None:
        """Return a record whose messages are all within their limits; None if that may block."""
        try:
            translated = self.translator.translate(record, token=token)
        except TableChanged:
            return None
        if self.limits is not None and self.limits.first_too_large(translated) is not None:
            return None
        return translated

    def _published(self, record: DataChangeRecord, token: str) -> PublishableRecord:
        translated = self.refresher.translate(record, token=token)
        if self.limits is not None:
            self.limits.require(translated, record)
        return translated

    def _by_change(
        self, record: DataChangeRecord, token: str, parking: Parking
    ) -> PublishableRecord:
        """Return the record with each change that cannot be published parked."""
        messages: list[ChangeMessage] = []
        parked: list[ParkedChange] = []
        refused: _Poison | None = None
        for position in range(len(record.mods)):
            part = record.part(position)
            try:
                translated = self._published_now(part, token)
                if translated is None:
                    if refused is not None:
                        # Catalogue and registry have just answered for another change of the
                        # record.
                        raise refused
                    translated = self._published(part, token)
            except POISON as error:
                refused = error if self._concerns_table(error, part, token) else refused
                parked.append(parking.park(part, error, token))
            else:
                messages.extend(translated.messages)
        return PublishableRecord(
            commit_timestamp_us=record.commit_timestamp_ns // NS_PER_US,
            server_transaction_id=record.server_transaction_id,
            record_sequence=record.record_sequence,
            messages=tuple(messages),
            parked=tuple(parked),
        )

    def _concerns_table(self, error: _Poison, record: DataChangeRecord, token: str) -> bool:
        """Whether the table could not be refreshed; then another attempt would change nothing."""
        if isinstance(error, MessageTooLarge):
            return False
        try:
            return self._published_now(record, token) is None
        except POISON:
            return False


def _left_out(record: DataChangeRecord) -> PublishableRecord:
    return PublishableRecord(
        commit_timestamp_us=record.commit_timestamp_ns // NS_PER_US,
        server_transaction_id=record.server_transaction_id,
        record_sequence=record.record_sequence,
        messages=(),
        filtered=len(record.mods),
    )


def _key_text(mod: Mod) -> str:
    """Return the primary key of a change as readable text."""
    return ", ".join(f"{name}={value}" for name, value in mod.keys.items())


def _unparkable(error: _Poison, reason: str) -> _Poison:
    """Return the error with the reason why its change cannot be parked."""
    message = f"{error.message}; the change cannot be parked either: {reason}"
    return type(error)(message, hint=error.hint, **error.fields)
