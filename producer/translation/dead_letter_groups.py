"""Groups of the dead-letter topic's records, by reason and by table or file: count, times, errors.

Records that were put back are left out.  Only a marker of each key that was put back and a bounded
number of groups stay in memory, no records.  Pure.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tidegate.producer.messages import FORM_EVENT, DeadLetter, ParkedChange
from tidegate.producer.translation.parked_changes import RedrivenKeys
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.order_key import OrderKey

_GROUPS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """The records of one reason and one table or file."""

    reason: str
    """The class of the error."""
    subject: str
    """The data topic; for an event, the file's path."""
    is_file: bool
    count: int
    first_us: int | None
    """When the first of them was written; None if the records do not have the time."""
    last_us: int | None
    error: str
    """The newest error text of its records."""
    token: str
    """The stream partition of the newest record; the next fields are of the same record."""
    place: str
    """The record of the file, or the commit timestamp, transaction, record sequence and mod."""
    topic_partition: int
    offset: int
    """Its offset in the dead-letter topic."""


class DeadLetterGroups:
    """Groups records in two passes over a topic: `note_redriven` for all, then `add` for all."""

    def __init__(self, *, groups_max: int = _GROUPS_MAX) -> None:
        """Start empty; beyond `groups_max` the group with the oldest last record is dropped."""
        self._groups_max = groups_max
        self._groups: OrderedDict[tuple[str, str], DeadLetterGroup] = OrderedDict()
        self._redriven = RedrivenKeys()
        self.records = 0
        """Number of records that are set aside, including those of dropped groups."""
        self.dropped = 0
        """Number of times that a group was dropped."""

    def note_redriven(self, letter: DeadLetter) -> None:
        """Note a marker of changes that were put back; ignore other records."""
        self._redriven.note(letter)

    def add(self, letter: DeadLetter) -> None:
        """Count a record, unless it was put back."""
        change = letter.change
        if change.form != FORM_EVENT and not self._redriven.is_parked(letter):
            return
        self.records += 1
        subject, place = _subject_and_place(change)
        key = change.reason, subject
        before = self._groups.pop(key, None)
        at_us = letter.at_us
        group = DeadLetterGroup(
            reason=change.reason,
            subject=subject,
            is_file=change.form == FORM_EVENT,
            count=1,
            first_us=at_us,
            last_us=at_us,
            error=change.error,
            token=change.token,
            place=place,
            topic_partition=letter.topic_partition,
            offset=letter.offset,
        )
        if before is not None:
            first = [time_us for time_us in (before.first_us, at_us) if time_us is not None]
            last = [time_us for time_us in (before.last_us, at_us) if time_us is not None]
            group = replace(
                group,
                count=before.count + 1,
                first_us=min(first, default=None),
                last_us=max(last, default=None),
                error=group.error or before.error,
            )
        self._groups[key] = group
        if len(self._groups) > self._groups_max:
            self._groups.popitem(last=False)
            self.dropped += 1

    def listed(self) -> tuple[DeadLetterGroup, ...]:
        """Return the groups, the one with the newest record first."""
        return tuple(reversed(self._groups.values()))


def grouped(
    read: Callable[[], Iterator[DeadLetter | None]],
    *,
    progress: Callable[[str, int], None] = lambda _step, _done: None,
    groups_max: int = _GROUPS_MAX,
) -> DeadLetterGroups:
    """Return the groups of a topic; `read` reads it from its beginning each time."""
    groups = DeadLetterGroups(groups_max=groups_max)
    steps = (
        ("looking for what was put back", groups.note_redriven),
        ("counting what is set aside", groups.add),
    )
    for step, take in steps:
        done = 0
        for letter in read():
            if letter is not None:
                take(letter)
                done += 1
            progress(step, done)
    return groups


def _subject_and_place(change: ParkedChange) -> tuple[str, str]:
    """Return the table's topic or the file, and the place in it, or "unknown"."""
    if change.form == FORM_EVENT:
        try:
            content = json.loads(change.content)
            return str(content["file"]), f"record {content['record']}"
        except (ValueError, KeyError, TypeError):
            return "unknown", "unknown"
    try:
        order = OrderKey.decode(change.order_key)
    except SchemaError:
        return change.topic, "unknown"
    instant = format_rfc3339(order.commit_timestamp_us * NS_PER_US)
    high, low = order.record_sequence
    sequence = f"{high:x}-{low:x}" if high else str(low)
    return change.topic, f"{instant}, {order.server_transaction_id}, {sequence}, {order.mod_number}"
