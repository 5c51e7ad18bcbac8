"""Transactions: their reads and writes, and whether these are still valid at the commit.

Concurrency control is optimistic: nothing blocks, reads are recorded with the number of the last
commit at that moment, and a commit is rejected (ABORTED) if something that it read has changed
since.  So a committed transaction saw, and acts on, the state immediately before its own commit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from spanner_simulator.core.rows.storage import KeyRange, TableRows
from spanner_simulator.core.rows.write_set import WriteSet
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.errors import invalid_argument

TransactionState = Literal["ACTIVE", "COMMITTED", "ROLLED_BACK", "ABORTED"]


@dataclass(slots=True)
class Transaction:
    """One transaction of a session; read-only ones have a `read_us` and never commit.

    `begun_at` is the number of the last commit when it began; `writes` the writes of its DML;
    `commit_us` its commit timestamp once it has one.
    """

    transaction_id: bytes
    begun_at: int
    read_us: int | None = None
    tag: str = ""
    exclude_from_streams: bool = False
    is_system: bool = False
    state: TransactionState = "ACTIVE"
    commit_us: int = 0
    key_reads: dict[tuple[str, bytes], int] = field(default_factory=dict)
    range_reads: dict[tuple[str, KeyRange], int] = field(default_factory=dict)
    writes: WriteSet | None = None

    @property
    def is_read_only(self) -> bool:
        """Whether it reads at one fixed time."""
        return self.read_us is not None

    def note_key(self, table: str, key: bytes, *, commit_number: int) -> None:
        """Record a read of one key; the first read of a key must still be valid."""
        self.key_reads.setdefault((table, key), commit_number)

    def note_range(self, table: str, where: KeyRange, *, commit_number: int) -> None:
        """Record a read of a range, including absent rows."""
        self.range_reads.setdefault((table, where), commit_number)

    def conflict(self, rows: Mapping[str, TableRows]) -> str | None:
        """The table in which something that this transaction read has changed since, or None."""
        for (table, key), commit_number in self.key_reads.items():
            if table not in rows or rows[table].row_changed_at(key) > commit_number:
                return table
        for (table, where), commit_number in self.range_reads.items():
            if table not in rows:
                return table
            held = rows[table]
            if held.changed_at > commit_number and (
                held.forgotten_at > commit_number
                or any(history.changed_at > commit_number for _, history in held.histories(where))
            ):
                return table
        return None

    def has_read_any(self, places: set[tuple[str, bytes]]) -> bool:
        """Whether one of these rows was read, for the rule of equal timestamps."""
        if not places.isdisjoint(self.key_reads):
            return True
        return any(
            table == name and where.holds(key)
            for name, where in self.range_reads
            for table, key in places
        )

    def check_readable(self, table: Table, columns: Collection[str]) -> None:
        """Reject reading columns that await the commit timestamp: INVALID_ARGUMENT.

        A pending key column makes the whole table, or index, unreadable; any other only itself.
        """
        if self.writes is None:
            return
        pending = self.writes.pending_columns(table.name.lower())
        if not pending:
            return
        named = {column.lower() for column in columns}
        if not pending.isdisjoint(table.key_names):
            culprit = f"Table {table.name}"
        else:
            hit = sorted(column for column in pending if column.lower() in named)
            if not hit:
                return
            culprit = f"Column {hit[0]}"
        raise invalid_argument(
            f"{culprit} cannot be accessed because it, or its associated index, has a pending "
            "CommitTimestamp",
        )
