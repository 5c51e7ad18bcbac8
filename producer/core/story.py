"""The last events and effects of a worker, for the report of an InvariantViolation.

Lines are kept as small values and become text only when a violation asks for them.  They hold no
records: a line must not keep memory that the byte budget counts as free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.progress import PartitionAnnounced, PartitionFinished, ProgressRecord
from tidegate.schemas.topics import slot_of

_LINES_MAX = 2_000
_LINES_SHOWN_MAX = 30

Entry: TypeAlias = on.Event | do.Effect

_OF_TRANSACTIONS = (
    do.TransactionEffect
    | on.Delivered
    | on.TransactionCommitted
    | on.CommitUnanswered
    | on.TransactionFailure
)


class _Line(NamedTuple):
    at_us: int
    token: str | None
    slots: tuple[int, ...]
    is_of_transaction: bool
    what: object
    """The event or effect itself or, where it holds records, a tuple that describes it."""


class Story:
    """A bounded log of one worker's events and effects; `slots` is how many slots there are."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._lines: deque[_Line] = deque(maxlen=_LINES_MAX)

    def add(self, entry: Entry, *, now_us: int) -> None:
        """Append an event or effect; ticks are left out, and what comes as often."""
        if isinstance(entry, on.Ticked | on.FleetRead):
            return
        token, slots, what = _brief(entry)
        is_of_transaction = isinstance(entry, _OF_TRANSACTIONS)
        self._lines.append(_Line(now_us, token, slots, is_of_transaction, what))

    def about(self, fields: dict[str, object]) -> tuple[str, ...]:
        """Return the last lines about the `token`, `slot` or `transaction` that `fields` name.

        Without such a field these are the last lines of all.
        """
        newest_first = islice(self._of(fields), _LINES_SHOWN_MAX)
        return tuple(reversed([_shown(line) for line in newest_first]))

    def _of(self, fields: dict[str, object]) -> Iterator[_Line]:
        token, slot = fields.get("token"), fields.get("slot")
        for line in reversed(self._lines):
            if isinstance(token, str):
                of_slot = line.token is None and slot_of(token, self._slots) in line.slots
                is_about = line.token == token or of_slot
            elif slot is not None:
                is_about = slot in line.slots
            else:
                is_about = "transaction" not in fields or line.is_of_transaction
            if is_about:
                yield line


def _brief(entry: Entry) -> tuple[str | None, tuple[int, ...], object]:
    """Return (token, slots, what to show) of an entry, without the records that it holds."""
    name = type(entry).__name__
    match entry:
        case on.RecordsRead():
            shown = (name, f"query {entry.query_id}", f"{len(entry.items)} items")
            return entry.token, (), (*shown, f"{entry.size_bytes} bytes")
        case do.PublishRecords():
            return entry.token, (entry.slot,), (name, f"{len(entry.records)} records")
        case on.ProgressRead():
            body = type(entry.record.body).__name__
            return _token(entry.record), (entry.slot,), (name, body, f"offset {entry.offset}")
        case do.PublishProgress():
            body = type(entry.record.body).__name__
            return _token(entry.record), (entry.slot,), (name, body, f"by {entry.author_slot}")
        case on.StreamStartFound():
            return None, (), (name, f"epoch {entry.record.epoch}")
        case on.Delivered():
            slots = tuple(sorted(entry.written.keys() | entry.snapshots.keys()))
            return None, slots, (name, "snapshots" if entry.snapshots else "records")
        case _:
            token = getattr(entry, "token", None)
            slot = getattr(entry, "slot", None)
            slots = getattr(entry, "slots", ()) if slot is None else (slot,)
            return token, slots, entry


def _token(record: ProgressRecord) -> str | None:
    match record.body:
        case PartitionAnnounced():
            return record.body.child.token
        case PartitionFinished():
            return record.body.token
        case _:
            return None


def _shown(line: _Line) -> str:
    what = line.what
    if isinstance(what, tuple):
        name, *details = what
        place = [] if line.token is None else [f"token {line.token}"]
        place += [f"slot {slot}" for slot in line.slots]
        what = f"{name}({', '.join([*place, *details])})"
    return f"{line.at_us / US_PER_SECOND:.6f} {what}"
