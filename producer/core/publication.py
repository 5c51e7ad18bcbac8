"""The part of a stream partition in one transaction: its records, totals and parked keys.

If a change of a key cannot be published, publishing a later change of the key would break its
order.  So this stream partition and its successors park every later change as well, until all of
them are put back (`core.sole_workers`).

A key is identified by its hash (`schemas.checksums.parked_key`).  A key with the hash of a parked
one is parked with it, which delays its changes but loses none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegate.producer.core.position import Position
from tidegate.producer.errors import TooManyParkedKeys
from tidegate.producer.messages import (
    FORM_EVENT,
    FORM_MESSAGE,
    KEY_PARKED,
    ChangeMessage,
    ParkedChange,
    PublishableRecord,
)
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS, parked_key
from tidegate.schemas.progress import ChecksumKind, ChildPartition, TopicTotals

PARKED_KEYS_MAX = 1_000
"""The limit of a stream partition: it stops instead of parking another key.

Otherwise one cause that affects every row would move a whole table into the dead-letter topic.
"""


@dataclass(frozen=True, slots=True)
class ParkedKeys:
    """The parked keys of a stream partition at one moment; replaced, never changed.

    While no key is added, `keys` stays the same object.
    """

    keys: frozenset[int] = frozenset()
    """The parked keys, including those of its parents."""
    changes: int = 0
    """The number of changes that this stream partition has parked, including redriven ones."""

    def divert(
        self, record: PublishableRecord, *, token: str
    ) -> tuple[PublishableRecord, ParkedKeys]:
        """Return the record with every change of a parked key parked, and the parked keys after it.

        Earlier changes of a key stay messages.  Raises TooManyParkedKeys for a record that would
        exceed the limit of parked keys.
        """
        messages: list[ChangeMessage] = []
        parked: list[ParkedChange] = []
        new_keys: set[int] = set()
        changes: list[ChangeMessage | ParkedChange] = [*record.messages, *record.parked]
        changes.sort(key=lambda change: change.order_key)
        for change in changes:
            if isinstance(change, ParkedChange) and change.form == FORM_EVENT:
                parked.append(change)
                continue
            key = parked_key(change.topic, change.key)
            if isinstance(change, ParkedChange):
                new_keys.add(key)
                parked.append(change)
            elif key in self.keys or key in new_keys or self._holds(change):
                parked.append(_follower(change, token))
            else:
                messages.append(change)
        if not parked:
            return record, self
        added = new_keys - self.keys
        if added and len(self.keys) + len(added) > PARKED_KEYS_MAX:
            raise TooManyParkedKeys(
                token,
                keys=len(self.keys),
                limit=PARKED_KEYS_MAX,
                commit_timestamp_us=record.commit_timestamp_us,
                reason=next(change.error for change in parked if change.error),
            )
        after = ParkedKeys(self.keys | added if added else self.keys, self.changes + len(parked))
        return record._replace(messages=tuple(messages), parked=tuple(parked)), after

    def _holds(self, change: ChangeMessage) -> bool:
        """Whether an earlier version has parked the change's row under another key."""
        return any(parked_key(change.topic, key) in self.keys for key in change.former_keys)

    def inherit(self, keys: Iterable[int]) -> ParkedKeys:
        """Return these with the parked keys of a parent added."""
        if keys is self.keys or self.keys.issuperset(keys):
            return self
        return ParkedKeys(self.keys.union(keys), self.changes)

    def without(self, keys: frozenset[int]) -> ParkedKeys:
        """Return these after keys were put back; the count of changes stays."""
        return ParkedKeys(self.keys - keys, self.changes) if self.keys & keys else self


def _follower(change: ChangeMessage, token: str) -> ParkedChange:
    """Return a change that could be published as parked, because its key is parked."""
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


@dataclass(slots=True)
class _Count:
    """The counts that records add to one topic."""

    records: int = 0
    mods: int = 0
    value_bytes: int = 0
    checksum: int = 0
    last: PublishableRecord | None = None


def counted(
    records: list[PublishableRecord], totals: dict[str, TopicTotals], checksums: ChecksumKind
) -> dict[str, TopicTotals]:
    """Return the totals, with the records, of every topic that the records belong to.

    Parked changes are not counted, because they are in no data topic.
    """
    counts: dict[str, _Count] = {}
    checksum_of = CHECKSUMS[checksums]
    for record in records:
        for message in record.messages:
            count = counts.get(message.topic)
            if count is None:
                count = counts[message.topic] = _Count()
            if count.last is not record:
                count.last = record
                count.records += 1
            count.mods += 1
            count.value_bytes += len(message.value)
            count.checksum += checksum_of(message.order_key)
    after = {}
    for topic, count in counts.items():
        before = totals.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
        after[topic] = TopicTotals(
            topic,
            records=before.records + count.records,
            mods=before.mods + count.mods,
            value_bytes=before.value_bytes + count.value_bytes,
            checksum=(before.checksum + count.checksum) % CHECKSUM_MODULUS,
        )
    return after


@dataclass(frozen=True, slots=True)
class Publication:
    """One stream partition's part of a transaction, and its state after the commit."""

    records: tuple[PublishableRecord, ...]
    size_bytes: int
    position: Position
    totals: dict[str, TopicTotals]
    finish: tuple[int, tuple[ChildPartition, ...]] | None
    """(end in nanoseconds, children); None unless the stream partition ends with it."""
    parked: ParkedKeys = field(default_factory=ParkedKeys)
    started: tuple[ChildPartition, ...] = ()
    """Stream partitions that it named and that begin while it goes on."""
    filtered: int = 0
    """Number of changes left out since its start."""
