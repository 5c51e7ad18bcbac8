"""What the dead-letter topic holds, key by key, and which keys can be put back.

A key is put back as a whole or not at all, since its changes have an order.  So are the keys that
share a number (`schemas.checksums.parked_key`): a stream partition knows a parked key by it alone,
and would no longer hold back the later changes of a key that stays.  So are the keys of one row,
which an earlier version may have parked under another key than today's: its changes are put back
under today's, in their order.

It remembers something of each key, and nothing of a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.producer.messages import (
    FORM_EVENT,
    FORM_REDRIVEN,
    ChangeMessage,
    DeadLetter,
    ParkedChange,
)
from tidegate.producer.translation.parking import POISON
from tidegate.schemas.checksums import parked_key

SHARED_NUMBER = "SharedNumber"
"""The reason why a key stays that only shares its number or its row with one that stays."""


def same_key(_topic: str, key: bytes) -> bytes:
    """Return a parked key: the one of its messages, unless an earlier version has parked it."""
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
    """What stream partitions know it by."""
    changes: int = 0
    first: bytes = b""
    """The order key of its first change."""
    last: bytes = b""
    mod: bytes = b""
    """The last change's `mod`."""
    is_sorted: bool = True
    """Whether its row's changes come in their order: not if the topic was given topic partitions,
    and not if the row has another parked key."""
    reason: str = ""
    """The class of what keeps one of its changes from being published; empty without such."""
    error: str = ""
    """The text of it."""


class Selection(NamedTuple):
    """Which keys are put back."""

    chosen: dict[KeyName, ParkedKey]
    left: list[ParkedKey]
    """Keys that were to be put back and cannot be, each with its reason."""

    @property
    def numbers(self) -> frozenset[int]:
        """What stream partitions know the chosen keys by."""
        return frozenset(key.number for key in self.chosen.values())

    @property
    def changes(self) -> int:
        """How many changes are put back."""
        return sum(key.changes for key in self.chosen.values())


class RedrivenKeys:
    """Which changes were put back: the topic's records of the form `redriven`, of each key."""

    def __init__(self) -> None:
        self._markers: dict[KeyName, list[DeadLetter]] = {}

    def note(self, letter: DeadLetter) -> None:
        """Note a record that says so; others change nothing."""
        change = letter.change
        if change.form == FORM_REDRIVEN:
            name = KeyName(change.topic, change.key)
            self._markers.setdefault(name, []).append(letter)

    def is_parked(self, letter: DeadLetter) -> bool:
        """Whether it is a change of a key, and was not put back."""
        change = letter.change
        if change.form in (FORM_EVENT, FORM_REDRIVEN):
            return False
        markers = self._markers.get(KeyName(change.topic, change.key), ())
        return not any(_covers(marker, letter) for marker in markers)


class ParkedSurvey:
    """Needs the topic twice: `note_redriven` for every record, then `add` for every record."""

    def __init__(
        self,
        translate: Callable[[ParkedChange], ChangeMessage],
        todays_key: Callable[[str, bytes], bytes] = same_key,
    ) -> None:
        """Take what makes a message of a parked change, or raises one of `parking.POISON`.

        `todays_key` returns the message's key, of its topic and the parked key.
        """
        self._translate = translate
        self._todays_key = todays_key
        self._redriven = RedrivenKeys()
        self._keys: dict[KeyName, ParkedKey] = {}

    def note_redriven(self, letter: DeadLetter) -> None:
        """Note which changes were put back before."""
        self._redriven.note(letter)

    def is_parked(self, letter: DeadLetter) -> bool:
        """Whether it is a change of a key, and was not put back before."""
        return self._redriven.is_parked(letter)

    def add(self, letter: DeadLetter) -> None:
        """Count a change, and find out whether it can be published now; may block.

        Raises what may pass: UnreachableError, QueryError.
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
        """Return which keys are put back, of one data topic or of all."""
        wanted = {name for name in self._keys if topic in {None, name.topic}}
        groups = self._groups()
        chosen, left = {}, []
        for name in sorted(wanted):
            key = self._keys[name]
            others = [one for one in groups[name] if one.reason or one.name not in wanted]
            if not others:
                chosen[name] = key
                continue
            if not key.reason:
                key.reason = SHARED_NUMBER
                other = others[0].name.topic
                key.error = f"it shares its number or its row with a key of {other} that stays"
            left.append(key)
        return Selection(chosen, left)

    def _groups(self) -> dict[KeyName, list[ParkedKey]]:
        """Return for each key those that are put back with it, itself included.

        Asked for once all changes were translated: then every table is known that can be.
        """
        rows: dict[KeyName, list[ParkedKey]] = {}
        numbers: dict[int, list[ParkedKey]] = {}
        groups: dict[KeyName, list[ParkedKey]] = {}
        for name, key in self._keys.items():
            row = KeyName(name.topic, self._todays_key(*name))
            of_row, of_number = rows.setdefault(row, []), numbers.setdefault(key.number, [])
            members = {name: key}
            for one in (*of_row, *of_number):
                members |= {other.name: other for other in groups[one.name]}
            of_row.append(key)
            of_number.append(key)
            if len(of_row) > 1:
                for one in of_row:
                    one.is_sorted = False
            group = list(members.values())
            groups |= dict.fromkeys(members, group)
        return groups


def _covers(marker: DeadLetter, letter: DeadLetter) -> bool:
    """Whether a marker says that a change was put back: it stands before it, and in its order.

    Topic partitions have no order among them; a key is in several only if the topic was given some.
    """
    if letter.topic_partition == marker.topic_partition and letter.offset > marker.offset:
        return False
    return letter.change.order_key <= marker.change.order_key
