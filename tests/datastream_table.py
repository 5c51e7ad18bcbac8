"""A table of a source whose events meet the clauses of Datastream's page "Events and streams".

`drawn_table` draws which: an UPDATE of a key as two events at one place of the log, several rows
moved by one statement, transactions that are rolled back and their reverse operations, Oracle's
rows that are read again then, a table without a key, a column that is added, and the values of
`read_method` and the fields of a key that the page has and those that files have, and fields in
another order than usual.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.datastream_files import ADDED_COLUMN, START_MS, TABLES, in_another_order, plain_row
from tidegate.local_stack.demo.event_forms import backfill_event, change_event

_KEYS = 12
_LOG_ORDERED = ("mysql", "oracle")
"""Sources whose order has no time in it, and whose changes of keys have two halves."""
_IN_PRIMARY_KEYS, _IN_INDEX = {"primary_keys": ["id"]}, {"replication_index": ["id"]}
_KEY_FIELDS = {
    "mysql": (_IN_PRIMARY_KEYS,),
    # The page has no field for it; files have `primary_keys`.
    "oracle": (_IN_PRIMARY_KEYS,),
    "postgresql": (_IN_PRIMARY_KEYS,),
    "sqlserver": (_IN_INDEX, _IN_INDEX | {"primary_keys": []}, _IN_PRIMARY_KEYS),
    "salesforce": (_IN_PRIMARY_KEYS,),
}
_NO_KEY_FIELDS: dict[str, tuple[Mapping[str, Sequence[str] | None], ...]] = {
    "mysql": ({"primary_keys": []},),
    "oracle": ({},),
    "postgresql": ({"primary_keys": []}, {"primary_keys": None}),
    "sqlserver": ({"replication_index": []}, {"replication_index": None, "primary_keys": None}),
    "salesforce": ({"primary_keys": []},),
}
_CHANGE_METHODS = {"postgresql": ("postgres-cdc-wal", "postgresql-cdc")}
_BACKFILL_METHODS = {"mysql": ("mysql-backfill-incremental", "mysql-backfill-fulldump")}


@dataclass(frozen=True)
class Clauses:
    """What a table's events are like."""

    has_key: bool
    key_fields: Mapping[str, Sequence[str] | None]
    change_method: str
    """Empty: the only one of the source; as for a backfill."""
    backfill_method: str
    column_added_at: int | None
    """Before which event the table gets another column."""
    field_order: int | None
    """A seed; None: the usual order."""


def drawn_clauses(source: str, rng: random.Random, changes: int) -> Clauses:
    """Return what a seed has drawn."""
    # Without the field of files, Oracle's tables look as if they had no key.
    has_key = rng.random() < (0.6 if source == "oracle" else 0.75)
    return Clauses(
        has_key=has_key,
        key_fields=rng.choice((_KEY_FIELDS if has_key else _NO_KEY_FIELDS)[source]),
        change_method=rng.choice(_CHANGE_METHODS.get(source, ("",))),
        backfill_method=rng.choice(_BACKFILL_METHODS.get(source, ("",))),
        column_added_at=rng.randrange(changes) if rng.random() < 0.5 else None,
        field_order=rng.getrandbits(32) if rng.random() < 0.5 else None,
    )


def drawn_table(source: str, rng: random.Random, *, changes: int, rows: int) -> SourceTable:
    """Return a table after at least so many changes; `rows` it has from before the stream."""
    table = SourceTable(source, rng, drawn_clauses(source, rng, changes), rows)
    backfill_at = rng.randrange(changes)
    while len(table.changes) < changes:
        if rows and not table.backfill and len(table.changes) >= backfill_at:
            table.read_backfill()
        table.step()
    if rows and not table.backfill:
        table.read_backfill()
    return table


class SourceTable:
    """The rows that the source has, and the events of how they came to be."""

    def __init__(self, source: str, rng: random.Random, clauses: Clauses, rows: int) -> None:
        self.source, self.clauses = source, clauses
        self.rows: dict[int, dict[str, Any]] = {key: plain_row(key, key) for key in range(rows)}
        """As a reader of the source finds them, whatever the events say."""
        self.changes: list[dict[str, Any]] = []
        """In the source's order."""
        self.backfill: list[dict[str, Any]] = []
        self.places: dict[str, int] = {}
        """Number of each change's place in the log, by uuid; events at one place share it."""
        self.met: Counter[str] = Counter()
        """How often each clause was met."""
        self._rng = rng
        self._place, self._at_ms = 0, START_MS
        self._has_added = False
        self._undo: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = []

    def step(self) -> None:
        """Let a statement change the table, or a transaction that is rolled back."""
        added_at = self.clauses.column_added_at
        if added_at is not None and len(self.changes) >= added_at and not self._has_added:
            self._add_column()
        if self.source == "salesforce":  # neither has a log, nor changes the id of a record
            self._change()
            return
        drawn = self._rng.random()
        if drawn < 0.15:
            self._roll_back()
        elif drawn < 0.35:
            self._move()
        elif drawn < 0.5 and self.source == "mysql":
            self._shift()
        else:
            self._change()

    def read_backfill(self) -> None:
        """Read all rows as they are now; they are before every change, whatever is in them."""
        read_ms = START_MS + 500
        for number, row in enumerate(self.rows.values()):
            event = backfill_event(
                TABLES[self.source], number, read_ms=read_ms, payload=row,
                uuid=f"aaaaaaaa-0000-0000-0000-0000{self._rng.getrandbits(32):08x}{number:08x}",
                key_fields=self.clauses.key_fields, read_method=self.clauses.backfill_method,
                blank=self._rng.choice(("", 0)) if self.source == "mysql" else "",
            )  # fmt: skip
            self.backfill.append(self._ordered(event))

    def _ordered(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event with its fields in the table's order."""
        if self.clauses.field_order is None:
            return event
        self.met["fields in another order"] += 1
        return in_another_order(event, random.Random(self.clauses.field_order))

    def _add_column(self) -> None:
        self._has_added = True
        self.met["column added"] += 1
        self.rows = {key: {**row, ADDED_COLUMN: None} for key, row in self.rows.items()}

    def _change(self) -> None:
        """Change one row, and not its key."""
        key = self._rng.randrange(_KEYS)
        old = self.rows.get(key)
        is_deletion = old is not None and self._rng.random() < 0.3
        self._write(old, None if is_deletion else self._row(key))

    def _move(self) -> None:
        """Change the key of a row."""
        free = [key for key in range(_KEYS) if key not in self.rows]
        if self.rows and free:
            old = self.rows[self._rng.choice(sorted(self.rows))]
            self._write(old, self._row(self._rng.choice(free)))
        else:
            self._change()

    def _shift(self) -> None:
        """Move neighbours to the next key, the last one first: one event of MySQL's log."""
        last = [key for key in self.rows if key - 1 in self.rows and key + 1 not in self.rows]
        if last:
            self.met["rows that follow each other"] += 1
            key = self._rng.choice(last)
            self._write(self.rows[key], self._row(key + 1), is_last=False)
            self._write(self.rows[key - 1], self._row(key))
        else:
            self._change()

    def _roll_back(self) -> None:
        """Change rows in a transaction, whose reverse operations follow in the log."""
        before, first = dict(self.rows), len(self.changes)
        self._undo.clear()
        for _ in range(self._rng.randrange(1, 4)):
            self._rng.choice((self._change, self._move))()
        for old, new in reversed(self._undo.copy()):
            self.met["reverse operations"] += 1
            self._write(new, old)
        assert self.rows == before
        if self.source == "oracle":
            self._read_again({event["payload"]["id"] for event in self.changes[first:]})

    def _read_again(self, keys: set[int]) -> None:
        """Read the rows that a transaction had changed, as Oracle's supplementation does."""
        for key in sorted(keys & set(self.rows)):
            self.met["supplementation"] += 1
            self._add("INSERT", self.rows[key], read_method="oracle-supplementation")
            self._place += 1

    def _row(self, key: int) -> dict[str, Any]:
        row = plain_row(len(self.changes), key)
        if self._has_added:
            row[ADDED_COLUMN] = self._rng.choice((None, f"added {len(self.changes)}"))
        return row

    def _write(
        self, old: dict[str, Any] | None, new: dict[str, Any] | None, *, is_last: bool = True
    ) -> None:
        """Put a row in the place of another; `is_last`: what follows has another place in the log.

        Without `old` it is an INSERT, without `new` a DELETE; with another key it is two events.
        """
        self._undo.append((old, new))
        halves = self.source in _LOG_ORDERED
        if old is not None:
            del self.rows[old["id"]]
        if new is not None:
            self.rows[new["id"]] = new
        if old is None or new is None:
            self._add("DELETE" if new is None else "INSERT", old or new or {})
        elif old["id"] == new["id"]:
            self._add("UPDATE-INSERT" if halves else "UPDATE", new)
        else:
            self.met["key updated"] += 1
            self._add("UPDATE-DELETE" if halves else "DELETE", old)
            # In a file of MySQL the two have times one second apart.
            self._at_ms += 1_000 if self.source == "mysql" and self._rng.random() < 0.5 else 0
            self._add("UPDATE-INSERT" if halves else "INSERT", new, is_same_place=True)
        self._place += is_last

    def _add(
        self, change_type: str, row: Mapping[str, Any], *, read_method: str = "",
        is_same_place: bool = False,
    ) -> None:  # fmt: skip
        if self.source == "salesforce":
            self._at_ms += 1_000
        elif not is_same_place:
            self._at_ms += self._rng.choice((0, 0, 1, 1_000))
            if self.source in _LOG_ORDERED and self._rng.random() < 0.1:
                self._at_ms -= 2_000  # the time of a statement
        number = len(self.changes)
        uuid = f"3c0ffaeb-b16e-4c8c-91d4-{number:012x}"
        self.places[uuid] = self._place
        method = read_method or self.clauses.change_method
        self.met[method or "no other method"] += 1
        self.met["without a key"] += not self.clauses.has_key
        event = change_event(
            TABLES[self.source], self._place, at_ms=self._at_ms,
            read_ms=START_MS + 5_000 + number, uuid=uuid, change_type=change_type, payload=row,
            key_fields=self.clauses.key_fields, read_method=method,
        )  # fmt: skip
        self.changes.append(self._ordered(event))
