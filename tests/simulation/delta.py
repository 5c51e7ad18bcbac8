"""Delta tables as a model: versions, optimistic commits and their conflicts, transaction ids.

A transaction reads a version and commits on top of the newest one.  What others have committed in
between decides: an append goes on top of appends and rewrites, a MERGE goes on top of nothing, and
nobody goes on top of a change of columns.  A writer's transaction id (application, number) is
skipped if the table has it or a higher one; two writers of one id at once are a conflict.
A direct handle, as delta-rs has it, skips nothing: it says what its version has, and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.disturbance import Disturbance
from tidegate.spark_consumer.sinks.delta.commit_log import TableCommit

TransactionId = tuple[str, int]

MAINTENANCE = ("OPTIMIZE", "CHANGE COLUMN", "CLUSTER BY")
"""What others do to a table without changing a row; all but the first change its metadata."""


class ConcurrentCommit(Exception):
    """Another commit came between a transaction's reading and its commit; the transaction fails."""


class SchemaMismatch(Exception):
    """Rows have a column that the table does not have."""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One version: what it added, and all that the table holds after it."""

    operation: str
    metadata: str | None
    columns: tuple[str, ...]
    added: tuple[Any, ...] = ()
    rows: Mapping[Any, Any] = field(default_factory=dict)
    """Rows by key, for a table that is merged into."""
    transaction: TransactionId | None = None


@dataclass(slots=True)
class DeltaTable:
    """One table; without a commit it does not exist."""

    commits: list[DeltaCommit] = field(default_factory=list)
    cleaned: int = 0
    """Delta has deleted the commits before this version, as older than the log's retention."""

    @property
    def head(self) -> int:
        return len(self.commits) - 1

    @property
    def columns(self) -> tuple[str, ...]:
        return self.commits[-1].columns

    def recent(self, limit: int | None) -> Sequence[TableCommit]:
        first = 0 if limit is None else len(self.commits) - limit
        kept = range(max(first, self.cleaned), len(self.commits))
        return [self._described(version) for version in kept]

    def commit(self, version: int) -> TableCommit | None:
        return self._described(version) if self.cleaned <= version <= self.head else None

    def numbers(self, sink: str) -> Mapping[str, int]:
        ids = [commit.transaction for commit in self.commits if commit.transaction is not None]
        ascending = sorted(ids, key=lambda one: one[1])
        return {name.removesuffix(f"/{sink}"): number for name, number in ascending
                if name.endswith(f"/{sink}")}  # fmt: skip

    def added_up_to(self, version: int) -> list[Any]:
        return [row for commit in self.commits[: version + 1] for row in commit.added]

    def rows_at(self, version: int) -> Mapping[Any, Any]:
        return self.commits[version].rows

    def create(
        self, columns: Sequence[str], metadata: str, disturbance: Disturbance | None
    ) -> None:
        exists = self.head >= 0
        at_point(disturbance, self)
        if exists:
            return
        if self.head >= 0:
            raise ConcurrentCommit
        self.commits.append(DeltaCommit("CREATE TABLE", metadata, tuple(columns)))

    def widen(self, columns: Sequence[str], metadata: str, disturbance: Disturbance | None) -> None:
        read = self.head
        at_point(disturbance, self)
        if any(commit.columns != self.commits[read].columns for commit in self.commits[read:]):
            raise ConcurrentCommit
        known = self.columns
        wider = (*known, *(column for column in columns if column not in known))
        self.commits.append(DeltaCommit("WRITE", metadata, wider, (), self.commits[-1].rows))

    def append(self, rows: Sequence[Any], used: Sequence[str], *more: Any) -> None:
        self._once(self.append_at, rows, used, *more)

    def append_at(self, rows: Sequence[Any], used: Sequence[str], *more: Any, read: int) -> None:
        self._write("WRITE", lambda: (tuple(rows), {}), used, *more, read=read)

    def merge(self, change: Callable[[Any], Any], used: Sequence[str], *more: Any) -> None:
        self._once(self.merge_at, change, used, *more)

    def _once(
        self, write: Any, what: Any, used: Sequence[str], transaction: TransactionId, *more: Any
    ) -> None:
        read = self.head
        if not self._has(transaction, read):
            write(what, used, transaction, *more, read=read)

    def merge_at(
        self, change: Callable[[Any], Any], used: Sequence[str], *more: Any, read: int
    ) -> None:
        self._write("MERGE", lambda: ((), change(self.rows_at(read))), used, *more, read=read)

    def _write(
        self,
        operation: str,
        content: Callable[[], tuple[tuple[Any, ...], Mapping[Any, Any]]],
        used: Sequence[str],
        transaction: TransactionId,
        *more: Any,
        read: int,
    ) -> None:
        metadata, disturbance = more
        if not set(used) <= set(self.columns):
            raise SchemaMismatch
        added, rows = content()
        at_point(disturbance, self)
        self._require_no_conflict(read, transaction, is_append=operation == "WRITE")
        commit = DeltaCommit(operation, metadata, self.columns, added, rows, transaction)
        self.commits.append(commit)
        at_point(disturbance, self)

    def open(self) -> DirectHandle:
        return DirectHandle(self, self.head)

    def maintain(self) -> None:
        """Rewrite the files or comment on a column, as anybody may; no row changes.

        After a MERGE it is Delta's auto compaction: in the session of the MERGE, with its metadata.
        """
        if self.head >= 0:
            last = self.commits[-1]
            is_auto = last.operation == "MERGE"
            operation = MAINTENANCE[0 if is_auto else self.head % len(MAINTENANCE)]
            metadata = last.metadata if is_auto else None
            self.commits.append(DeltaCommit(operation, metadata, last.columns, (), last.rows))

    def _has(self, transaction: TransactionId, version: int) -> bool:
        application, number = transaction
        return any(
            commit.transaction is not None
            and commit.transaction[0] == application
            and commit.transaction[1] >= number
            for commit in self.commits[: version + 1]
        )

    def _require_no_conflict(
        self, read: int, transaction: TransactionId, *, is_append: bool
    ) -> None:
        for commit in self.commits[read + 1 :]:
            is_same = commit.transaction is not None and commit.transaction[0] == transaction[0]
            has_columns = commit.columns != self.commits[read].columns
            has_metadata = commit.operation in MAINTENANCE[1:]
            if is_same or has_columns or has_metadata or not is_append:
                raise ConcurrentCommit

    def _described(self, version: int) -> TableCommit:
        commit = self.commits[version]
        changes_rows = commit.operation not in MAINTENANCE
        return TableCommit(version, commit.operation, commit.metadata, {}, changes_rows)


@dataclass(frozen=True, slots=True)
class DirectHandle:
    table: DeltaTable
    version: int

    def has(self, transaction: TransactionId) -> bool:
        return self.table._has(transaction, self.version)

    def append(self, *args: Any) -> None:
        self.table.append_at(*args, read=self.version)

    def merge(self, *args: Any) -> None:
        self.table.merge_at(*args, read=self.version)


def at_point(disturbance: Disturbance | None, table: DeltaTable) -> None:
    if disturbance is None:
        return
    if disturbance.chance(disturbance.profile.optimizes):
        table.maintain()
        disturbance.tell("a foreign commit")
    disturbance.point(is_in_commit=True)
