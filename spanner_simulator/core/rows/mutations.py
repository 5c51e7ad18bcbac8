"""Mutations of one transaction applied over the committed rows, and the net change of each row.

Collapsing: insert then update is one INSERT, insert then delete is nothing, update then delete one
DELETE. Only a delete followed by an insert (as `replace` of a row that exists) stays two changes.
Reading inside a transaction never sees its own mutations, as with the real service.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

from tidegate.spanner_simulator.core.key_encoding import successor
from tidegate.spanner_simulator.core.rows.storage import KeyRange, TableRows
from tidegate.spanner_simulator.core.values import Plain, Row, Value, decode
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
    from tidegate.spanner_simulator.core.schema.schema_objects import Table

__all__ = [
    "Delete",
    "KeyBound",
    "KeySet",
    "KeySpan",
    "ModType",
    "Mutation",
    "RowChange",
    "Write",
    "WriteSet",
    "key_range",
]

COMMIT_TIMESTAMP = "spanner.commit_timestamp()"
WriteKind = Literal["insert", "update", "insert_or_update", "replace"]
ModType = Literal["INSERT", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class KeyBound:
    """One end of a span: the first key parts, and whether rows that have them belong to it."""

    values: list[Plain]
    inclusive: bool


@dataclass(frozen=True, slots=True)
class KeySpan:
    """A range of primary keys, in key order."""

    start: KeyBound
    end: KeyBound


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys, ranges or everything, in plain form."""

    keys: tuple[list[Plain], ...] = ()
    spans: tuple[KeySpan, ...] = ()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """insert, update, insert_or_update or replace of some rows."""

    kind: WriteKind
    table: str
    columns: tuple[str, ...]
    rows: tuple[list[Plain], ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletion of a key set; keys that do not exist are no error."""

    table: str
    keys: KeySet


Mutation: TypeAlias = Write | Delete


@dataclass(slots=True)
class RowChange:
    """What a transaction did to one row in the end. `written` names non-key columns."""

    table: Table
    key: bytes
    mod_type: ModType
    old: Row | None
    new: Row | None
    written: set[str] = field(default_factory=set)
    is_void: bool = False


@dataclass(slots=True)
class _RowState:
    row: Row | None
    last: RowChange | None = None


def decode_key(table: Table, plain: list[Plain]) -> list[Value]:
    """Key values in plain form to values; may be fewer than the key has parts."""
    if len(plain) > len(table.key):
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"Wrong number of key parts for {table.name}. Expected: {len(table.key)}. "
            f"Got: {len(plain)}",
        )
    return [
        decode(table.column(part.name).value_type, value, where=f"{table.name}.{part.name}")
        for part, value in zip(table.key, plain, strict=False)
    ]


def whole_key(table: Table, plain: list[Plain]) -> bytes:
    """The encoded key of a full list of key parts; INVALID_ARGUMENT when parts are missing."""
    if len(plain) != len(table.key):
        raise SpannerError(
            Code.INVALID_ARGUMENT,
            f"Wrong number of key parts for {table.name}. Expected: {len(table.key)}. "
            f"Got: {len(plain)}",
        )
    return table.encoded_key_of(decode_key(table, plain))


def key_range(table: Table, span: KeySpan | None) -> KeyRange:
    """Encoded bounds of a span; None means the whole table."""
    if span is None:
        return KeyRange(table.prefix, successor(table.prefix))
    low = table.encoded_key_of(decode_key(table, span.start.values))
    high = table.encoded_key_of(decode_key(table, span.end.values))
    low_bound = low if span.start.inclusive else successor(low)
    high_bound = successor(high) if span.end.inclusive else high
    return KeyRange(low_bound if low_bound is not None else high, high_bound)


class WriteSet:
    """The effect of a transaction's mutations, not yet visible to anybody.

    `touched` has each row's key with its final state; `changes` the net changes in the order in
    which they first happened.
    """

    def __init__(
        self, catalogue: Catalogue, rows: Mapping[str, TableRows], *, commit_timestamp_us: int
    ) -> None:
        self._catalogue = catalogue
        self._rows = rows
        self._commit_us = commit_timestamp_us
        self._states: dict[tuple[str, bytes], _RowState] = {}
        self._changes: list[RowChange] = []

    @property
    def touched(self) -> dict[tuple[str, bytes], Row | None]:
        """Final rows by lower-case table name and encoded key."""
        return {place: state.row for place, state in self._states.items()}

    @property
    def changes(self) -> list[RowChange]:
        """Net changes; what cancelled itself out is gone."""
        return [change for change in self._changes if not change.is_void]

    def apply(self, mutation: Mutation) -> None:
        """Add one mutation. Raises `SpannerError`; the write set is then good for nothing."""
        match mutation:
            case Write():
                table = self._catalogue.table(mutation.table)
                names = [table.column(column).name for column in mutation.columns]
                for plain in mutation.rows:
                    self._write(table, mutation.kind, self._decode(table, names, plain))
            case Delete():
                self._delete(self._catalogue.table(mutation.table), mutation.keys)
            case _:
                assert_never(mutation)

    def _decode(self, table: Table, names: list[str], plain: list[Plain]) -> Row:
        if len(plain) != len(names):
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                f"Mutation of {table.name} has {len(names)} columns but {len(plain)} values.",
            )
        row: Row = {}
        for name, value in zip(names, plain, strict=True):
            column = table.column(name)
            if value == COMMIT_TIMESTAMP and column.value_type.code == "TIMESTAMP":
                if not column.commit_timestamp:
                    raise SpannerError(
                        Code.FAILED_PRECONDITION,
                        "Cannot write commit timestamp because the allow_commit_timestamp column "
                        f"option is not set to true for column {name} of table {table.name}.",
                    )
                row[name] = self._commit_us * 1000
                continue
            row[name] = decode(column.value_type, value, where=f"{table.name}.{name}")
            if row[name] is None and not column.is_nullable:
                raise _null_refused(table, name)
        return row

    def _state(self, table: Table, key: bytes) -> _RowState:
        place = (table.name.lower(), key)
        state = self._states.get(place)
        if state is None:
            state = self._states[place] = _RowState(self._rows[place[0]].current(key))
        return state

    def _write(self, table: Table, kind: WriteKind, values: Row) -> None:
        for name in table.key_names:
            if name not in values:
                if not table.column(name).is_nullable or kind == "update":
                    raise SpannerError(
                        Code.FAILED_PRECONDITION,
                        f"{table.name} must specify a value for the key column {name}.",
                    )
                values[name] = None
        key = table.encoded_key(values)
        state = self._state(table, key)
        match kind:
            case "insert":
                if state.row is not None:
                    raise SpannerError(
                        Code.ALREADY_EXISTS,
                        f"Row {_key_text(table, values)} in table {table.name} already exists",
                    )
                self._insert(table, key, state, values)
            case "update":
                if state.row is None:
                    raise SpannerError(
                        Code.NOT_FOUND,
                        f"Row {_key_text(table, values)} in table {table.name} is missing. "
                        "Row cannot be updated.",
                    )
                self._update(table, key, state, values)
            case "insert_or_update":
                if state.row is None:
                    self._insert(table, key, state, values)
                else:
                    self._update(table, key, state, values)
            case "replace":
                if state.row is not None:
                    self._remove(table, key, state)
                self._insert(table, key, state, values)
            case _:
                assert_never(kind)

    def _insert(self, table: Table, key: bytes, state: _RowState, values: Row) -> None:
        for column in table.columns:
            if not column.is_nullable and values.get(column.name) is None:
                raise _null_refused(table, column.name)
        state.row = {column.name: values.get(column.name) for column in table.columns}
        written = set(table.value_names)
        state.last = RowChange(table, key, "INSERT", None, state.row, written)
        self._changes.append(state.last)

    def _update(self, table: Table, key: bytes, state: _RowState, values: Row) -> None:
        old = state.row
        state.row = {**(old or {}), **values}
        written = values.keys() & table.value_names
        if state.last is None:
            state.last = RowChange(table, key, "UPDATE", old, state.row, set(written))
            self._changes.append(state.last)
            return
        state.last.new = state.row
        state.last.written |= written

    def _remove(self, table: Table, key: bytes, state: _RowState) -> None:
        last, old, state.row = state.last, state.row, None
        state.last = None
        if last is None:
            self._changes.append(RowChange(table, key, "DELETE", old, None))
        elif last.mod_type == "INSERT":
            last.is_void = True
        else:
            last.mod_type, last.new, last.written = "DELETE", None, set()

    def _delete(self, table: Table, keys: KeySet) -> None:
        doomed: dict[bytes, None] = {}
        for plain in keys.keys:
            doomed[whole_key(table, plain)] = None
        spans: list[KeySpan | None] = [None] if keys.everything else list(keys.spans)
        lowered = table.name.lower()
        for span in spans:
            where = key_range(table, span)
            doomed.update((key, None) for key, _ in self._rows[lowered].scan(where, None))
            mine = [key for name, key in self._states if name == lowered and where.holds(key)]
            doomed.update((key, None) for key in mine)
        for key in doomed:
            state = self._state(table, key)
            if state.row is not None:
                self._remove(table, key, state)


def _null_refused(table: Table, column: str) -> SpannerError:
    return SpannerError(
        Code.FAILED_PRECONDITION,
        f"{column} must not be NULL in table {table.name}.",
    )


def _key_text(table: Table, values: Row) -> str:
    return "[" + ",".join(str(values[name]) for name in table.key_names) + "]"
