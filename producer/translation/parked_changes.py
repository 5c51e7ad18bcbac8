"""Parked changes: a survey of them by key, and the messages and batches that put keys back.

A key is put back as a whole or not at all, because its changes have an order.  The same holds for
keys with the same number (`schemas.checksums.parked_key`): a stream partition knows a parked key
only by its number, and would no longer hold back the later changes of a key that stays.  It also
holds for the keys of one row, which an earlier version may have parked under another key than
today's: its changes are put back under today's key, in their order, schemas and limits.

The survey remembers its keys, but no changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.producer.errors import MessageTooLarge, RedriveFailed
from tidegate.producer.messages import (
    FORM_EVENT,
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
from tidegate.producer.translation.pipeline import POISON
from tidegate.schemas.checksums import origin_of, parked_key
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.topics import HEADER_REDRIVEN

_BATCH_CHANGES = 500
_BATCH_BYTES = 4 << 20
SHARED_NUMBER = "SharedNumber"
"""The reason why a key stays that shares its number or its row with a key that stays."""


def same_key(_topic: str, key: bytes) -> bytes:
    """Return a parked key: that of its messages, unless an earlier version has parked it."""
    return key


class KeyName(NamedTuple):
    """A data topic and a framed key in it."""

    topic: str
    key: bytes


@dataclass(slots=True)
class ParkedKey:
    """A key with changes that have not been put back."""

    name: KeyName
    number: int
    """Its number in stream partitions."""
    changes: int = 0
    first: bytes = b""
    """The order key of its first change."""
    last: bytes = b""
    mod: bytes = b""
    """The `mod` of the last change."""
    is_sorted: bool = True
    """Whether its row's changes come in their order: not if topic partitions were added to the
    topic, or if the row has another parked key."""
    reason: str = ""
    """The class of the error that keeps one of its changes from being published; else empty."""
    error: str = ""
    """The text of that error."""


class Selection(NamedTuple):
    """The keys to put back."""

    chosen: dict[KeyName, ParkedKey]
    left: list[ParkedKey]
    """Requested keys that cannot be put back, each with its reason."""

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the chosen keys in stream partitions."""
        return frozenset(key.number for key in self.chosen.values())

    @property
    def changes(self) -> int:
        """How many changes are put back."""
        return sum(key.changes for key in self.chosen.values())


class RedrivenKeys:
    """The changes that were put back, by the topic's records of the form `redriven`."""

    def __init__(self) -> None:
        self._markers: dict[KeyName, list[DeadLetter]] = {}

    def note(self, letter: DeadLetter) -> None:
        """Note a `redriven` record; ignore other records."""
        change = letter.change
        if change.form == FORM_REDRIVEN:
            name = KeyName(change.topic, change.key)
            self._markers.setdefault(name, []).append(letter)

    def is_parked(self, letter: DeadLetter) -> bool:
        """Whether a record is a change of a key and was not put back."""
        change = letter.change
        if change.form in (FORM_EVENT, FORM_REDRIVEN):
            return False
        markers = self._markers.get(KeyName(change.topic, change.key), ())
        return not any(_covers(marker, letter) for marker in markers)


class ParkedSurvey:
    """Surveys the topic in two passes: `note_redriven` for all records, then `add` for all."""

    def __init__(
        self,
        translate: Callable[[ParkedChange], ChangeMessage],
        todays_key: Callable[[str, bytes], bytes] = same_key,
    ) -> None:
        """`translate` makes the message of a parked change or raises an error of `pipeline.POISON`.

        `todays_key` returns the message's key for its topic and the parked key.
        """
        self._translate = translate
        self._todays_key = todays_key
        self._redriven = RedrivenKeys()
        self._keys: dict[KeyName, ParkedKey] = {}

    def note_redriven(self, letter: DeadLetter) -> None:
        """Note the changes that were put back before."""
        self._redriven.note(letter)

    def is_parked(self, letter: DeadLetter) -> bool:
        """Whether a record is a change of a key and was not put back before."""
        return self._redriven.is_parked(letter)

    def add(self, letter: DeadLetter) -> None:
        """Count a change, and check whether it can be published now; may block.

        Raises errors that may pass: UnreachableError, QueryError.
        """
        if not self.is_parked(letter):
            return
        change = letter.change
        name = KeyName(change.topic, change.key)
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = ParkedKey(name, parked_key(*name), first=change.order_key)
        key.changes += 1
        key.is_sorted = key.is_sorted and change.order_key > key.last
        key.first = min(key.first, change.order_key)
        if change.order_key > key.last:
            key.last, key.mod = change.order_key, change.mod
        if not key.reason:
            try:
                self._translate(change)
            except POISON as error:
                key.reason, key.error = type(error).__name__, str(error)

    def select(self, topic: str | None = None) -> Selection:
        """Return the selection of keys to put back, of one data topic or of all."""
        names = {name for name in self._keys if topic in {None, name.topic}}
        groups = self._groups()
        chosen, left = {}, []
        for name in sorted(names):
            key = self._keys[name]
            blocking = [
                candidate
                for candidate in groups[name]
                if candidate.reason or candidate.name not in names
            ]
            if not blocking:
                chosen[name] = key
                continue
            if not key.reason:
                key.reason = SHARED_NUMBER
                blocking_topic = blocking[0].name.topic
                key.error = (
                    f"it shares its number or its row with a key of {blocking_topic} that stays"
                )
            left.append(key)
        return Selection(chosen, left)

    def _groups(self) -> dict[KeyName, list[ParkedKey]]:
        """Return for each key the keys that are put back with it, including itself.

        Called once all changes were translated: then all known tables have their encodings.
        """
        rows: dict[KeyName, list[ParkedKey]] = {}
        numbers: dict[int, list[ParkedKey]] = {}
        groups: dict[KeyName, list[ParkedKey]] = {}
        for name, key in self._keys.items():
            row = KeyName(name.topic, self._todays_key(*name))
            row_keys, number_keys = rows.setdefault(row, []), numbers.setdefault(key.number, [])
            members = {name: key}
            for relative in (*row_keys, *number_keys):
                members |= {member.name: member for member in groups[relative.name]}
            row_keys.append(key)
            number_keys.append(key)
            if len(row_keys) > 1:
                for row_key in row_keys:
                    row_key.is_sorted = False
            group = list(members.values())
            groups |= dict.fromkeys(members, group)
        return groups


def _covers(marker: DeadLetter, letter: DeadLetter) -> bool:
    """Whether a marker covers a change: it comes after it, also in the order of the key.

    Topic partitions have no order among them; a key is in several only if topic partitions were
    added.
    """
    if letter.topic_partition == marker.topic_partition and letter.offset > marker.offset:
        return False
    return letter.change.order_key <= marker.change.order_key


class ParkedTranslator:
    """Makes messages of parked changes."""

    def __init__(
        self,
        translator: RecordTranslator,
        limits: MessageLimits,
        read_values: Callable[[str, str], Mapping[str, Any]],
        todays_key: Callable[[str, bytes], bytes] = same_key,
    ) -> None:
        """`translator` translates a record, `read_values` parses values from their text.

        `todays_key` returns the present key of a row, for its topic and a parked key.
        """
        self._translator = translator
        self._todays_key = todays_key
        self._limits = limits
        self._read_values = read_values

    def message(self, change: ParkedChange) -> ChangeMessage:
        """Return a change as the message for its data topic; may block.

        Raises an error of `pipeline.POISON` if it still cannot be published, and the translator's
        errors that may pass.
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
    """Yield the selected keys' changes, then a marker for each key.

    The changes of a key come in their order; if the topic has them in another order, they are held
    until all are read.  A batch may be empty.  Raises RedriveFailed if the changes differ from
    those of the survey, and the errors of `translate`.
    """
    batch: list[PublishableRecord] = []
    size = 0
    waiting: list[ParkedChange] = []
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
            waiting.append(change)
            continue
        batch.append(_record(translate(change)))
        size += len(change.content)
        if len(batch) >= _BATCH_CHANGES or size >= _BATCH_BYTES:
            yield tuple(batch)
            batch, size = [], 0
    if any(left.values()):
        raise RedriveFailed("the dead-letter topic changed while it was read")
    waiting.sort(key=lambda change: change.order_key)
    batch.extend(_record(translate(change)) for change in waiting)
    batch.extend(_marker(key) for key in selection.chosen.values())
    for start in range(0, len(batch), _BATCH_CHANGES):
        yield tuple(batch[start : start + _BATCH_CHANGES])


def _record(message: ChangeMessage) -> PublishableRecord:
    return PublishableRecord(_commit_timestamp_us(message.order_key), "", "", (message,))


def _marker(key: ParkedKey) -> PublishableRecord:
    """Return the dead-letter record with the last change up to which a key was put back."""
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
