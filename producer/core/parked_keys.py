"""The parked keys of one stream partition: those whose changes go to the dead-letter topic.

After the first change of a key that cannot be published, no later one of it is: its order would be
broken.  So every later change of the key is parked as well, by this stream partition and by those
that follow it, until all of them are put back (`core.redrive`).

A key is known by its hash (`schemas.checksums.parked_key`).  One that shares the hash of a parked
key is parked with it, which costs it time and no change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.producer.errors import TooManyParkedKeys
from tidegate.producer.messages import (
    FORM_EVENT,
    FORM_MESSAGE,
    KEY_PARKED,
    ChangeMessage,
    ParkedChange,
    PublishableRecord,
)
from tidegate.schemas.checksums import parked_key

PARKED_KEYS_MAX = 1_000
"""A stream partition with so many parks no further one: it stops.

One cause that concerns every row would otherwise empty a table into the dead-letter topic.
"""


@dataclass(frozen=True, slots=True)
class ParkedKeys:
    """What a stream partition has parked up to one moment; never changed, only replaced.

    While no key is added, `keys` stays the same object.
    """

    keys: frozenset[int] = frozenset()
    """Those that its parents had parked included."""
    changes: int = 0
    """Changes that this stream partition itself has parked, redriven ones included."""

    def divert(
        self, record: PublishableRecord, *, token: str
    ) -> tuple[PublishableRecord, ParkedKeys]:
        """Return the record with every change of a parked key parked, and what is parked after it.

        The changes before the first one of a key that cannot be published stay messages.  Raises
        TooManyParkedKeys for a record that would park one key too many.
        """
        messages: list[ChangeMessage] = []
        parked: list[ParkedChange] = []
        found: set[int] = set()
        changes: list[ChangeMessage | ParkedChange] = [*record.messages, *record.parked]
        changes.sort(key=lambda one: one.order_key)
        for change in changes:
            if isinstance(change, ParkedChange) and change.form == FORM_EVENT:
                parked.append(change)
                continue
            key = parked_key(change.topic, change.key)
            if isinstance(change, ParkedChange):
                found.add(key)
                parked.append(change)
            elif key in self.keys or key in found or self._holds(change):
                parked.append(_follower(change, token))
            else:
                messages.append(change)
        if not parked:
            return record, self
        added = found - self.keys
        if added and len(self.keys) + len(added) > PARKED_KEYS_MAX:
            raise TooManyParkedKeys(
                token,
                keys=len(self.keys),
                limit=PARKED_KEYS_MAX,
                commit_timestamp_us=record.commit_timestamp_us,
                reason=next(one.error for one in parked if one.error),
            )
        after = ParkedKeys(self.keys | added if added else self.keys, self.changes + len(parked))
        return record._replace(messages=tuple(messages), parked=tuple(parked)), after

    def _holds(self, change: ChangeMessage) -> bool:
        """Whether an earlier version has parked the change's row under another key."""
        return any(parked_key(change.topic, key) in self.keys for key in change.former_keys)

    def inherit(self, keys: Iterable[int]) -> ParkedKeys:
        """Return the same with the parked keys of a parent."""
        if keys is self.keys or self.keys.issuperset(keys):
            return self
        return ParkedKeys(self.keys.union(keys), self.changes)

    def without(self, keys: frozenset[int]) -> ParkedKeys:
        """Return the same after keys were put back; the count of changes stays."""
        return ParkedKeys(self.keys - keys, self.changes) if self.keys & keys else self


def _follower(change: ChangeMessage, token: str) -> ParkedChange:
    """Return a good change whose key is parked."""
    return ParkedChange(
        topic=change.topic,
        key=change.key,
        order_key=change.order_key,
        mod=change.mod,
        content=change.value,
        form=FORM_MESSAGE,
        reason=KEY_PARKED,
        error="",
        token=token,
    )
