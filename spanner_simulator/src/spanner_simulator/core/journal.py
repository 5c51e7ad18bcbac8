"""The journal of a database: everything that must survive a restart, as plain values.

A listener gets each entry within its step, before the step's caller gets its answer.  Replaying the
entries in the same order in a new database of the same dialect (`Database.replay`) gives the same
rows, records, tokens and timestamps.  Reads and uncommitted transactions are not recorded.

Steps that draw random numbers (for the tokens of stream partitions) keep them in the entry. They
draw from `Journal.chance` between `begin_step` and the entry; a replayed step gets the same ones.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, assert_never

from spanner_simulator.core.rng import Rng
from spanner_simulator.core.rows.mutations import ModType
from spanner_simulator.core.values import Plain
from spanner_simulator.errors import SpannerError, invalid_argument

# Earlier entries, from before there were identity columns.
_COMMIT_WITHOUT_COUNTS = 7
Draw: TypeAlias = "int | float"
TurnKind = Literal["split", "merge", "move", "move_keys"]


@dataclass(frozen=True, slots=True)
class JournaledSchema:
    """One DDL statement as written, and the time at which it took effect.

    `stream_partitions` is the initial number for a new change stream: a setting that may differ at
    the next start.  `proto_descriptors` are the descriptors sent with the statement, if it uses
    them.
    """

    text: str
    at_us: int
    stream_partitions: int
    draws: tuple[Draw, ...] = ()
    proto_descriptors: bytes = b""


@dataclass(frozen=True, slots=True)
class JournaledChange:
    """One net change of a row.

    `values` has the whole row in the table's column order, for a DELETE its key; `written` the
    names of the non-key columns that an UPDATE wrote.
    """

    table: str
    mod_type: ModType
    values: tuple[Plain, ...]
    written: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JournaledCommit:
    """One committed transaction; `number` counts the database's commits from 1.

    `counts` has the next count of identity columns that were used.
    """

    commit_us: int
    number: int
    tag: str
    is_system: bool
    is_excluded: bool
    changes: tuple[JournaledChange, ...]
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JournaledTurn:
    """A turn of stream partitions: the request and its time.

    `kind` is a method of `ChangeStreams` and `arguments` are its other arguments.
    """

    stream: str
    kind: TurnKind
    at_us: int
    arguments: dict[str, Plain]
    draws: tuple[Draw, ...] = ()


JournalEntry: TypeAlias = JournaledSchema | JournaledCommit | JournaledTurn


class JournalRng:
    """Random numbers that are recorded or, in a replay, the recorded ones."""

    def __init__(self, chance: Rng) -> None:
        self._chance = chance
        self._drawn: list[Draw] = []
        self._given: deque[Draw] = deque()

    def random(self) -> float:
        """A float in [0, 1)."""
        return float(self._given.popleft()) if self._given else self._note(self._chance.random())

    def getrandbits(self, k: int, /) -> int:
        """An integer of k bits."""
        if self._given:
            return int(self._given.popleft())
        return int(self._note(self._chance.getrandbits(k)))

    def _note(self, draw: Draw) -> Draw:
        self._drawn.append(draw)
        return draw

    def begin(self, draws: Sequence[Draw] = ()) -> None:
        """Start a step, which gets these draws first."""
        self._drawn.clear()
        self._given = deque(draws)

    @property
    def is_spent(self) -> bool:
        """Whether the step used exactly the given draws."""
        return not self._given and not self._drawn

    @property
    def drawn(self) -> tuple[Draw, ...]:
        """The draws of the step so far."""
        return tuple(self._drawn)


class Journal:
    """Passes the steps of a database to a listener."""

    def __init__(self, chance: Rng) -> None:
        self.listener: Callable[[JournalEntry], None] | None = None
        self.chance = JournalRng(chance)
        self.is_replaying = False

    @property
    def is_heard(self) -> bool:
        """Whether entries are passed on; not during a replay."""
        return self.listener is not None and not self.is_replaying

    def begin_step(self) -> None:
        """Start a step that may draw random numbers; a replayed one already has its numbers."""
        if not self.is_replaying:
            self.chance.begin()

    def note(self, entry: JournalEntry) -> None:
        """Pass an entry to the listener, if there is one and this is not a replay."""
        if self.listener is not None and not self.is_replaying:
            self.listener(entry)


def entry_to_plain(entry: JournalEntry) -> list[Plain]:
    """An entry as a JSON-like list."""
    match entry:
        case JournaledSchema():
            descriptors = base64.b64encode(entry.proto_descriptors).decode()
            return [
                "schema", entry.at_us, entry.text, entry.stream_partitions, list(entry.draws),
                descriptors,
            ]  # fmt: skip
        case JournaledCommit():
            changes: list[Plain] = [
                [change.table, change.mod_type, list(change.values), list(change.written)]
                for change in entry.changes
            ]
            return [
                "commit", entry.commit_us, entry.number, entry.tag, entry.is_system,
                entry.is_excluded, changes, dict(entry.counts),
            ]  # fmt: skip
        case JournaledTurn():
            return [
                "turn", entry.at_us, entry.stream, entry.kind, entry.arguments,
                list(entry.draws),
            ]  # fmt: skip
        case _:
            assert_never(entry)


def entry_from_plain(plain: Plain) -> JournalEntry:
    """The entry of a list from `entry_to_plain`; INVALID_ARGUMENT for anything else."""
    if isinstance(plain, list) and plain[:1] == ["commit"] and len(plain) == _COMMIT_WITHOUT_COUNTS:
        plain = [*plain, {}]
    match plain:
        case [
            "schema",
            int(at_us),
            str(text),
            int(stream_partitions),
            list(draws),
            str(descriptors),
        ]:
            bundle = base64.b64decode(descriptors)
            return JournaledSchema(text, at_us, stream_partitions, _draws(draws), bundle)
        case [
            "commit",
            int(commit_us),
            int(number),
            str(tag),
            bool(is_system),
            bool(is_excluded),
            list(changes),
            dict(counts),
        ]:
            read = tuple(_change(count) for count in changes)
            drawn = {place: count for place, count in counts.items() if isinstance(count, int)}
            if len(drawn) < len(counts):
                raise _unreadable(plain)
            return JournaledCommit(commit_us, number, tag, is_system, is_excluded, read, drawn)
        case [
            "turn",
            int(at_us),
            str(stream),
            "split" | "merge" | "move" | "move_keys" as kind,
            dict(arguments),
            list(draws),
        ]:
            return JournaledTurn(stream, kind, at_us, arguments, _draws(draws))
        case _:
            raise _unreadable(plain)


def _change(plain: Plain) -> JournaledChange:
    match plain:
        case [str(table), "INSERT" | "UPDATE" | "DELETE" as mod_type, list(values), list(written)]:
            names = tuple(str(name) for name in written)
            return JournaledChange(table, mod_type, tuple(values), names)
        case _:
            raise _unreadable(plain)


def _draws(plain: list[Plain]) -> tuple[Draw, ...]:
    draws = tuple(draw for draw in plain if isinstance(draw, int | float))
    if len(draws) < len(plain):
        raise _unreadable(plain)
    return draws


def _unreadable(plain: Plain) -> SpannerError:
    return invalid_argument(f"This is no entry of a journal: {str(plain)[:200]}")
