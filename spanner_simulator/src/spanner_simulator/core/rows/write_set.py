"""The uncommitted writes of one transaction: rows, index entries, net changes.

A row's state keeps its committed form and its present one, and from the two follows the net change:
insert then update is one INSERT, insert then delete is nothing, update then delete one DELETE; only
a delete followed by an insert stays two changes.  States are replaced, never changed, so that a
failed statement can be undone.  Index entries are rows of hidden tables and always follow the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spanner_simulator.core.rows.mutations import COMMIT_TIMESTAMP, PENDING, RowChange
from spanner_simulator.core.rows.secondary_indexes import HiddenIndex
from spanner_simulator.core.rows.sorted_keys import SortedKeys
from spanner_simulator.core.rows.storage import KeyRange, TableRows
from spanner_simulator.core.rows.table_rules import Rules, TableRules
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.values import Row, encode
from spanner_simulator.errors import already_exists

_NOTHING_WRITTEN: frozenset[str] = frozenset()


@dataclass(slots=True)
class RowState:
    """A row before and within the transaction; never changed once it is in a write set.

    `removed_at` and `written_at` are the places, in the order of all changes, of the deletion of
    `before` and of the insert or update that made `after`; -1 when there is none.
    """

    before: Row | None
    after: Row | None
    removed_at: int = -1
    written_at: int = -1
    written: frozenset[str] = _NOTHING_WRITTEN

    @property
    def is_insert(self) -> bool:
        """Whether `after` was made by an insert."""
        return self.before is None or self.removed_at >= 0


class WriteSet:
    """The writes of one transaction; `rules` are those of the schema when it began."""

    def __init__(self, rules: Rules, rows: Mapping[str, TableRows]) -> None:
        self.rules = rules
        self._rows = rows
        self._states: dict[str, dict[bytes, RowState]] = {}
        # Touched keys in order, only in scanned ranges.
        self._ordered: dict[str, SortedKeys] = {}
        self._undo: list[tuple[str, bytes, RowState | None]] = []
        self._next_place = 0
        self._pending: dict[tuple[str, bytes], None] = {}

    # -- reading

    def state(self, name: str, key: bytes) -> RowState:
        """The state of a row, whether touched or not."""
        states = self._states.get(name)
        state = states.get(key) if states is not None else None
        if state is None:
            row = self._rows[name].current(key)
            state = RowState(row, row)
        return state

    def is_touched(self, name: str, key: bytes) -> bool:
        """Whether the transaction has read or written this row's state before."""
        return key in self._states.get(name, ())

    def row(self, name: str, key: bytes) -> Row | None:
        """The row as the transaction sees it."""
        return self.state(name, key).after

    def scan(self, name: str, where: KeyRange) -> list[tuple[bytes, Row]]:
        """The rows of a range as the transaction sees them, in key order."""
        stored = self._rows[name].scan(where, None)
        states = self._states.get(name)
        if not states:
            return list(stored)
        touched = list(self._touched_keys(name, states).between(where.low, where.high))
        if not touched:
            return list(stored)
        rows = dict(stored)
        for key in touched:
            row = states[key].after
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
        return sorted(rows.items(), key=_by_key)

    def _touched_keys(self, name: str, states: dict[bytes, RowState]) -> SortedKeys:
        ordered = self._ordered.get(name)
        if ordered is None:
            ordered = self._ordered[name] = SortedKeys()
            for key in sorted(states):
                ordered.add(key)
        return ordered

    def pending_columns(self, name: str) -> set[str]:
        """The columns of a table, or an index, that await the commit timestamp."""
        columns: set[str] = set()
        for table, key in self._pending:
            pending = _awaiting(self.rules[table].table, self.row(table, key))
            if table == name:
                columns |= pending
            for index in self.rules[table].indexes:
                if index.name == name:
                    columns |= pending.intersection(index.names)
        return columns

    @property
    def places(self) -> set[tuple[str, bytes]]:
        """Table names and keys of all touched rows, including index entries."""
        return {(name, key) for name, states in self._states.items() for key in states}

    def final_rows(self) -> Iterator[tuple[str, bytes, Row | None]]:
        """The rows to store, including index entries; None deletes."""
        for name, states in self._states.items():
            is_index = name not in self.rules
            for key, state in states.items():
                # An entry that came back as it was: a replay, which knows net changes only, would
                # not store it again either.
                is_back = is_index and state.after == state.before
                if state.after is not state.before and not is_back:
                    yield name, key, state.after

    def changes(self) -> list[RowChange]:
        """Net changes of rows, in the order in which they first happened."""
        placed: list[tuple[int, RowChange]] = []
        for name, states in self._states.items():
            rules = self.rules.get(name)
            if rules is None:  # an index
                continue
            for key, state in states.items():
                placed.extend(_changes_of(rules.table, key, state))
        if len(placed) > 1:
            placed.sort(key=_by_place)
        return [change for _, change in placed]

    # -- writing

    def insert(self, rules: TableRules, key: bytes, row: Row, written: frozenset[str]) -> None:
        """Put a row where none is."""
        old = self.state(rules.name, key)
        place = self._place()
        self._put(rules, key, RowState(old.before, row, old.removed_at, place, written))

    def update(self, rules: TableRules, key: bytes, row: Row, written: frozenset[str]) -> None:
        """Replace an existing row."""
        old = self.state(rules.name, key)
        place = old.written_at if old.written_at >= 0 else self._place()
        self._put(
            rules, key, RowState(old.before, row, old.removed_at, place, old.written | written)
        )

    def remove(self, rules: TableRules, key: bytes) -> None:
        """Remove an existing row."""
        old = self.state(rules.name, key)
        removed_at = old.removed_at
        if not old.is_insert:
            removed_at = old.written_at if old.written_at >= 0 else self._place()
        self._put(rules, key, RowState(old.before, None, removed_at))

    def _place(self) -> int:
        self._next_place += 1
        return self._next_place - 1

    def _put(self, rules: TableRules, key: bytes, state: RowState) -> None:
        old = self._set(rules.name, key, state)
        for index in rules.indexes:
            self._index(index, state.before if old is None else old.after, state.after)
        if state.after is not None and PENDING in state.after.values():
            self._pending[rules.name, key] = None

    def _set(self, name: str, key: bytes, state: RowState) -> RowState | None:
        """Store a state; return the one before."""
        states = self._states.get(name)
        if states is None:
            states = self._states[name] = {}
        old = states.get(key)
        self._undo.append((name, key, old))
        states[key] = state
        if old is None and name in self._ordered:
            self._ordered[name].add(key)
        return old

    def _index(self, index: HiddenIndex, old: Row | None, new: Row | None) -> None:
        old_entry = None if old is None else index.entry(old)
        new_entry = None if new is None else index.entry(new)
        if old_entry == new_entry:
            return
        if old_entry is not None and (new_entry is None or new_entry[0] != old_entry[0]):
            self._put_entry(index, old_entry[0], None)
        if new_entry is not None:
            self._put_entry(index, *new_entry)

    def _put_entry(self, index: HiddenIndex, key: bytes, entry: Row | None) -> None:
        self._set(index.name, key, RowState(self._rows[index.name].current(key), entry))

    # -- taking back, and the commit timestamp

    def mark(self) -> int:
        """A point to which `roll_back_to` can return."""
        return len(self._undo)

    def roll_back_to(self, mark: int) -> None:
        """Undo everything written since a mark."""
        while len(self._undo) > mark:
            name, key, old = self._undo.pop()
            if old is not None:
                self._states[name][key] = old
                continue
            del self._states[name][key]
            if name in self._ordered:
                self._ordered[name].remove(key)

    def has_pending_key(self) -> bool:
        """Whether a row's place depends on the commit timestamp."""
        return any(
            not _awaiting(table, self.row(name, key)).isdisjoint(table.key_names)
            for name, key in self._pending
            for table in (self.rules[name].table,)
        )

    def resolve(self, commit_ns: int) -> None:
        """Set every pending column to the commit timestamp; ALREADY_EXISTS if keys collide."""
        for name, key in self._pending:
            state, rules = self.state(name, key), self.rules[name]
            pending = _awaiting(rules.table, state.after)
            if state.after is None or not pending:
                continue
            row: Row = {**state.after, **dict.fromkeys(pending, commit_ns)}
            new_key = rules.table.encoded_key(row)
            place = state
            if new_key != key:
                place = self.state(name, new_key)
                if place.after is not None:
                    raise already_exists(
                        f"Row {key_text(rules.table, row)} in table {rules.table.name} already "
                        "exists",
                    )
                self._put(rules, key, RowState(state.before, None, state.removed_at))
            self._put(
                rules,
                new_key,
                RowState(place.before, row, place.removed_at, state.written_at, state.written),
            )


def _awaiting(table: Table, row: Row | None) -> set[str]:
    """The columns that await the commit timestamp; a number in others may look the same."""
    return {
        name
        for name, value in (row or {}).items()
        if value == PENDING and table.type_of[name].code == "TIMESTAMP"
    }


def _by_key(item: tuple[bytes, Row]) -> bytes:
    return item[0]


def _by_place(item: tuple[int, RowChange]) -> int:
    return item[0]


def _changes_of(table: Table, key: bytes, state: RowState) -> Iterator[tuple[int, RowChange]]:
    before = state.before
    if state.removed_at >= 0:
        yield state.removed_at, RowChange(table, key, "DELETE", before, None)
    if state.written_at >= 0:
        if state.is_insert:
            change = RowChange(table, key, "INSERT", None, state.after, state.written)
        else:
            change = RowChange(table, key, "UPDATE", before, state.after, state.written)
        yield state.written_at, change


def key_text(table: Table, row: Row, parts: int | None = None) -> str:
    """A row's key, or its first parts, in the form of the service's messages."""
    return "[" + ",".join(_text(table, row, name) for name in table.key_names[:parts]) + "]"


def _text(table: Table, row: Row, name: str) -> str:
    value, value_type = row.get(name), table.type_of[name]
    if value is None:
        return "NULL"
    if value == PENDING and value_type.code == "TIMESTAMP":
        return COMMIT_TIMESTAMP
    plain = encode(value_type, value)
    return str(plain).lower() if isinstance(plain, bool) else str(plain)
