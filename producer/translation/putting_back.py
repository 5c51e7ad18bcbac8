"""Parked changes as messages for their data topics, under today's schemas and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tidegate.producer.errors import MessageTooLarge, RedriveFailed
from tidegate.producer.messages import (
    FORM_MESSAGE,
    FORM_REDRIVEN,
    ChangeMessage,
    DeadLetter,
    ParkedChange,
    PublishableRecord,
    batch_bytes,
)
from tidegate.producer.ports import MessageLimits, RecordTranslator
from tidegate.producer.translation.parked_record import read_parked_record
from tidegate.producer.translation.parked_survey import (
    KeyName,
    ParkedKey,
    ParkedSurvey,
    Selection,
    same_key,
)
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.topics import HEADER_REDRIVEN

_BATCH_CHANGES = 500
_BATCH_BYTES = 4 << 20


class ParkedTranslator:
    """Makes messages of parked changes."""

    def __init__(
        self,
        translator: RecordTranslator,
        limits: MessageLimits,
        read_values: Callable[[str, str], Mapping[str, Any]],
        todays_key: Callable[[str, bytes], bytes] = same_key,
    ) -> None:
        """Take what translates a record; `read_values` reads values from their text.

        `todays_key` returns the key that a row has today, of its topic and a parked key.
        """
        self._translator = translator
        self._todays_key = todays_key
        self._limits = limits
        self._read_values = read_values

    def message(self, change: ParkedChange) -> ChangeMessage:
        """Return a change as the message that its data topic gets; may block.

        Raises one of `parking.POISON` if it still cannot be published, and what the translator
        raises for what may pass.
        """
        if change.form == FORM_MESSAGE:
            topic, key, order_key, mod, content = change[:5]
            key = self._todays_key(topic, key)
            message = ChangeMessage(topic, key, content, order_key, mod, origin_of(change.token))
        else:
            record = read_parked_record(change.content, self._read_values)
            translated = self._translator.translate(record, token=change.token)
            (message,) = translated.messages
            if (message.topic, message.key, message.order_key) != (
                change.topic,
                self._todays_key(change.topic, change.key),
                change.order_key,
            ):
                raise SchemaError(
                    "a parked change has another key now than when it was parked",
                    hint=(
                        "The table was re-created, or its key's subject registered again. The "
                        "change stays parked (tidegate-producer dead-letters shows it): backfill "
                        "the table, whose rows have the new key"
                    ),
                    topic=change.topic,
                )
        headers = [*message.headers, (HEADER_REDRIVEN, b"1")]
        size_bytes = batch_bytes(message.key, message.value, headers)
        limit_bytes = self._limits.bytes_max(message.topic)
        if size_bytes > limit_bytes:
            raise MessageTooLarge.of(
                message.topic,
                key=message.key.hex(),
                commit_timestamp_us=_commit_timestamp_us(message.order_key),
                size_bytes=size_bytes,
                limit_bytes=limit_bytes,
            )
        return message


def batches(
    letters: Iterable[DeadLetter | None],
    survey: ParkedSurvey,
    selection: Selection,
    translate: Callable[[ParkedChange], ChangeMessage],
) -> Iterator[tuple[PublishableRecord, ...]]:
    """Yield what puts the selected keys back: their changes, then a marker for each key.

    The changes of a key come in their order; those of a key that does not have them in order are
    held until all are read.  An empty batch stands for a moment without changes.  Raises
    RedriveFailed if the changes are not those of the survey, and what `translate` raises.
    """
    batch: list[PublishableRecord] = []
    size = 0
    held: list[ParkedChange] = []
    left = {name: key.changes for name, key in selection.chosen.items()}
    for letter in letters:
        if letter is None:
            yield tuple(batch)
            batch, size = [], 0
            continue
        change = letter.change
        name = KeyName(change.topic, change.key)
        key = selection.chosen.get(name)
        if key is None or not survey.is_parked(letter):
            continue
        left[name] -= 1
        if not key.is_sorted:
            held.append(change)
            continue
        batch.append(_record(translate(change)))
        size += len(change.content)
        if len(batch) >= _BATCH_CHANGES or size >= _BATCH_BYTES:
            yield tuple(batch)
            batch, size = [], 0
    if any(left.values()):
        raise RedriveFailed("the dead-letter topic changed while it was read")
    held.sort(key=lambda change: change.order_key)
    batch.extend(_record(translate(change)) for change in held)
    batch.extend(_marker(key) for key in selection.chosen.values())
    for start in range(0, len(batch), _BATCH_CHANGES):
        yield tuple(batch[start : start + _BATCH_CHANGES])


def _record(message: ChangeMessage) -> PublishableRecord:
    return PublishableRecord(_commit_timestamp_us(message.order_key), "", "", (message,))


def _marker(key: ParkedKey) -> PublishableRecord:
    """Return the dead-letter record that says up to where a key was put back."""
    marker = ParkedChange(
        topic=key.name.topic,
        key=key.name.key,
        order_key=key.last,
        mod=key.mod,
        content=b"",
        form=FORM_REDRIVEN,
        reason="",
        error="",
        token="",
    )
    return PublishableRecord(_commit_timestamp_us(key.last), "", "", (), (marker,))


def _commit_timestamp_us(order_key: bytes) -> int:
    return OrderKey.decode(order_key).commit_timestamp_us
