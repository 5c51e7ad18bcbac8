"""The state of a worker's core for tests, metrics and copies, and the story of a violation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.group_watch import GroupWatch
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import OpenTransaction, TransactionCycle
from tidegate.schemas.errors import InvariantViolation, TidegateError, invariant
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.progress import PartitionAnnounced, PartitionFinished, ProgressRecord
from tidegate.schemas.topics import slot_of

_LINES_MAX = 2_000
_LINES_SHOWN_MAX = 30

Entry: TypeAlias = on.Event | do.Effect

_TRANSACTION_ENTRIES = (
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
    entry: object
    """The event or effect; a tuple that describes it if it holds records."""


class Story:
    """The last events and effects of one worker, for the report of an InvariantViolation.

    Lines are kept as small values and become text only for a report.  They hold no records: a line
    must not hold memory that the byte budget counts as free.  `slots` is the number of all slots.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._lines: deque[_Line] = deque(maxlen=_LINES_MAX)

    def add(self, entry: Entry, *, now_us: int) -> None:
        """Append an event or effect, except those as frequent as ticks."""
        if isinstance(entry, on.Ticked | on.FleetRead):
            return
        token, slots, brief = _brief(entry)
        is_of_transaction = isinstance(entry, _TRANSACTION_ENTRIES)
        self._lines.append(_Line(now_us, token, slots, is_of_transaction, brief))

    def about(self, fields: dict[str, object]) -> tuple[str, ...]:
        """Return the last lines about the `token`, `slot` or `transaction` in `fields`.

        Without such a field, return the last lines of all.
        """
        newest_first = islice(self._lines_about(fields), _LINES_SHOWN_MAX)
        return tuple(reversed([_shown(line) for line in newest_first]))

    def _lines_about(self, fields: dict[str, object]) -> Iterator[_Line]:
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
    """Return (token, slots, description) of an entry, without its records."""
    name = type(entry).__name__
    match entry:
        case on.RecordsRead():
            shown = (name, f"query {entry.query_id}", f"{len(entry.items)} items")
            return entry.token, (), (*shown, f"{entry.size_bytes} bytes")
        case on.RedriveRead():
            return None, (), (name, f"{len(entry.records)} records")
        case do.StartQuery():
            begin = f"query {entry.query_id}", f"from {entry.start_ns}", f"to {entry.end_ns}"
            return entry.token, (), (name, *begin, f"{len(entry.resumption)} files")
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
    entry = line.entry
    if isinstance(entry, tuple):
        name, *details = entry
        place = [] if line.token is None else [f"token {line.token}"]
        place += [f"slot {slot}" for slot in line.slots]
        entry = f"{name}({', '.join([*place, *details])})"
    return f"{line.at_us / US_PER_SECOND:.6f} {entry}"


_STATE = (
    "slots",
    "stream",
    "epoch",
    "counters",
    "_index",
    "_cycle",
    "_undeliverable",
    "_incarnations",
    "_queries",
    "_start_search",
    "_draining",
    "_opening",
    "_fleet",
    "_group_watch",
    "_tables",
    "_commands",
    "_leaves_group",
)


class InspectedWorker:
    """The part of a worker that changes nothing, except for `restore`."""

    slots: dict[int, Slot]
    _draining: bool
    _identity: StreamIdentity
    _index: PartitionIndex
    _cycle: TransactionCycle
    _group_watch: GroupWatch
    _commands: OperatorCommands
    _story: Story

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the state, for diagnosis or for `restore`.

        Only the slots' snapshots in the log survive a process.
        """
        return deepcopy({name: getattr(self, name) for name in _STATE})

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Set the state to that of a worker with the same settings."""
        for name, value in deepcopy(dict(snapshot)).items():
            setattr(self, name, value)

    @property
    def transaction(self) -> OpenTransaction | None:
        """The open transaction; None if there is none."""
        return self._cycle.open

    @property
    def watermark_us(self) -> int | None:
        """The least published watermark of the owned tokens; None if there are none."""
        return self._index.watermark_us

    @property
    def states(self) -> Mapping[PartitionState, int]:
        """The number of stream partitions of the owned slots in each state."""
        return self._index.states

    @property
    def is_draining(self) -> bool:
        """Whether it is about to end, by itself or because an operator drains it."""
        return self._draining

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused the stream and this worker has stopped reading."""
        return self._commands.paused_by is not None

    @property
    def stopped(self) -> Mapping[str, TidegateError]:
        """The stopped stream partitions of the owned slots, each with its error."""
        return self._index.stopped

    def check_invariants(self) -> None:
        """Raise InvariantViolation, with the story of its subject, if the state is inconsistent."""
        try:
            self._check_invariants()
        except InvariantViolation as violation:
            violation.story = self._story.about(violation.fields)
            raise

    def _check_invariants(self) -> None:
        for number, slot in self.slots.items():
            invariant(number == slot.number, "slot registered under another number", slot=number)
            slot.check_invariants()
            for token in slot.tokens:
                home = slot_of(token, self._identity.slots)
                invariant(home == number, "token in the wrong slot", token=token, slot=number)
        self._index.check_invariants(self.slots.values())
        self._cycle.check_invariants()
        self._group_watch.check_invariants()
