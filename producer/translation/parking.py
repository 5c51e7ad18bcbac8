"""A translator that takes a record apart if one of its changes cannot be published.

The changes that can be published stay messages.  Each of the others becomes a `ParkedChange` that
holds Spanner's record of it, and what is published goes on without it.  A record without such a
change costs nothing more than its translation.

A change can be parked only if its topic, key and order key are known: otherwise later changes of
its key could not be recognised, and would overtake it.  Its error is raised, as without parking.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    TableChanged,
    TopicRefused,
)
from tidegate.producer.messages import FORM_RECORD, ChangeMessage, ParkedChange, PublishableRecord
from tidegate.producer.ports import MessageLimits, RecordTranslator
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.limited import key_text
from tidegate.producer.translation.parked_record import write_parked_record
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US

if TYPE_CHECKING:
    from tidegate.producer.translation.translator import Translator


_Poison: TypeAlias = SchemaError | IncompatibleChange | MessageTooLarge | TopicRefused


POISON = (SchemaError, IncompatibleChange, MessageTooLarge, TopicRefused)
"""What is raised for a change that no repetition publishes."""

ERROR_CHARACTERS_MAX = 1_000
"""How much of an error's text a parked change has."""

_KEY_SHOWN_MAX = 100


class ParkingTranslator:
    """Translates records and parks single changes; port: `ports.RecordTranslator`."""

    def __init__(
        self,
        translator: RecordTranslator,
        places: Translator,
        limits: MessageLimits,
        *,
        dead_letter: str,
        report: Callable[[ParkedChange, str, int], None],
    ) -> None:
        """Take the translator that raises the errors, and what finds the place of a change.

        `report` gets each parked change with its key for a person to read and its commit time in
        microseconds, on any thread; a change that is read again is reported again.
        """
        self._translator = translator
        self._places = places
        self._limits = limits
        self._dead_letter = dead_letter
        self._report = report

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        """Return as `translate` does; None if it would block, or if a change has to be parked."""
        try:
            return self._translator.translate_now(record, token=token)
        except POISON:
            return None

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages, and as parked changes those that cannot be one.

        Raises what the translator raises if the reason may pass, or if a change can neither be
        published nor parked; then the error says why.
        """
        try:
            return self._translator.translate(record, token=token)
        except POISON as error:
            if not record.mods:
                raise unparkable(error, "the record holds no change") from error
        return self._by_change(record, token)

    def _by_change(self, record: DataChangeRecord, token: str) -> PublishableRecord:
        messages: list[ChangeMessage] = []
        parked: list[ParkedChange] = []
        refused: _Poison | None = None
        for position in range(len(record.mods)):
            part = record.part(position)
            try:
                translated = self._translator.translate_now(part, token=token)
                if translated is None:
                    if refused is not None:
                        # Catalogue and registry answered just now, for another change of it.
                        raise refused
                    translated = self._translator.translate(part, token=token)
            except POISON as error:
                refused = error if self._is_of_the_table(error, part, token) else refused
                parked.append(self._park(part, error, token))
            else:
                messages.extend(translated.messages)
        return PublishableRecord(
            commit_timestamp_us=record.commit_timestamp_ns // NS_PER_US,
            server_transaction_id=record.server_transaction_id,
            record_sequence=record.record_sequence,
            messages=tuple(messages),
            parked=tuple(parked),
        )

    def _is_of_the_table(self, error: _Poison, record: DataChangeRecord, token: str) -> bool:
        """Whether the table could not be refreshed, so that asking again would change nothing."""
        if isinstance(error, MessageTooLarge):
            return False
        try:
            return self._translator.translate_now(record, token=token) is None
        except POISON:
            return False

    def _park(self, record: DataChangeRecord, error: _Poison, token: str) -> ParkedChange:
        """Return the only change of a record, parked; raises the error if it cannot be."""
        try:
            place = self._places.place(record)
            content = write_parked_record(record)
        except (SchemaError, TableChanged) as obstacle:
            raise unparkable(error, str(obstacle)) from error
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
            raise unparkable(
                error, f"{self._dead_letter} takes {bytes_max} bytes, it needs {change.size_bytes}"
            ) from error
        key = key_text(record.mods[0])[:_KEY_SHOWN_MAX]
        self._report(change, key, record.commit_timestamp_ns // NS_PER_US)
        return change


def unparkable(error: _Poison, reason: str) -> _Poison:
    """Return the error with the reason why its change cannot be parked."""
    message = f"{error.message}; the change cannot be parked either: {reason}"
    return type(error)(message, hint=error.hint, **error.fields)
