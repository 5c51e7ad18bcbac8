"""Rows in several versions: the current one for transactions, older ones for reads at a time.

A deletion is a version too, so that a read in the past, and the check of a transaction's range
reads, see that there was a row.  A version that is too old to be read is removed when its row is
written again; a deleted row is removed some time after its last version became too old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spanner_simulator.core.rows.sorted_keys import SortedKeys
from spanner_simulator.core.values import Row

VERSION_RETENTION_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Encoded keys from `low` (inclusive) to `high` (exclusive; None: no bound)."""

    low: bytes
    high: bytes | None

    def holds(self, key: bytes) -> bool:
        """Whether a key lies inside."""
        return self.low <= key and (self.high is None or key < self.high)


@dataclass(slots=True)
class RowHistory:
    """All versions of one row; `changed_at` is the number of the last commit that wrote it.

    The last version is stored separately, because most rows have only that: `row` since `since_us`.
    """

    row: Row | None
    since_us: int
    changed_at: int
    older: list[tuple[int, Row | None]] | None = None

    def at(self, timestamp_us: int) -> Row | None:
        """The row as of a commit timestamp, inclusive."""
        if self.since_us <= timestamp_us:
            return self.row
        for version_us, row in reversed(self.older or ()):
            if version_us <= timestamp_us:
                return row
        return None

    @property
    def versions(self) -> list[tuple[int, Row | None]]:
        """All versions, oldest first."""
        return [*(self.older or ()), (self.since_us, self.row)]

    def add(self, row: Row | None, *, commit_us: int, commit_number: int, horizon_us: int) -> None:
        """Add a version; versions that ended before the horizon are dropped."""
        older = self.older or []
        older.append((self.since_us, self.row))
        while len(older) > 1 and older[1][0] <= horizon_us:
            del older[0]
        self.older = older
        self.row, self.since_us, self.changed_at = row, commit_us, commit_number


class TableRows:
    """The rows of one table or index, ordered by encoded key.  Rows are never changed in place.

    `created_us` is when the table began to exist, `added_us` when those of its columns did (by
    lower-case name) that were added later; `changed_at` the number of the last commit.
    `forgotten_at` is the number of the last commit that wrote a row that was dropped since.
    """

    def __init__(self, created_us: int = 0) -> None:
        self.created_us = created_us
        self.added_us: dict[str, int] = {}
        self.changed_at = 0
        self.forgotten_at = 0
        self._keys = SortedKeys()
        self._rows: dict[bytes, RowHistory] = {}
        self._deleted: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        """Number of rows, including deleted ones that can still be read."""
        return len(self._rows)

    def current(self, key: bytes) -> Row | None:
        """The last committed row."""
        history = self._rows.get(key)
        return history.row if history is not None else None

    def read(self, key: bytes, timestamp_us: int | None) -> Row | None:
        """The row at a time; None means the last committed version."""
        history = self._rows.get(key)
        if history is None:
            return None
        return history.row if timestamp_us is None else history.at(timestamp_us)

    def row_changed_at(self, key: bytes) -> int:
        """The number of the last commit that may have written this row; 0 if none has."""
        history = self._rows.get(key)
        return history.changed_at if history is not None else self.forgotten_at

    def histories(self, where: KeyRange) -> Iterator[tuple[bytes, RowHistory]]:
        """All rows of a range in key order, including deleted ones."""
        rows = self._rows
        for key in self._keys.between(where.low, where.high):
            yield key, rows[key]

    def scan(self, where: KeyRange, timestamp_us: int | None) -> Iterator[tuple[bytes, Row]]:
        """The rows of a range that exist at a time, in key order."""
        for key, history in self.histories(where):
            row = history.row if timestamp_us is None else history.at(timestamp_us)
            if row is not None:
                yield key, row

    def write(
        self,
        key: bytes,
        row: Row | None,
        *,
        commit_us: int,
        commit_number: int,
    ) -> None:
        """Add a version; None deletes."""
        horizon_us = commit_us - VERSION_RETENTION_US
        self.changed_at = max(self.changed_at, commit_number)
        history = self._rows.get(key)
        if history is None:
            self._rows[key] = RowHistory(row, commit_us, commit_number)
            self._keys.add(key)
        else:
            history.add(
                row, commit_us=commit_us, commit_number=commit_number, horizon_us=horizon_us
            )
        if row is None:
            self._deleted.append((commit_us, key))
        if self._deleted and self._deleted[0][0] <= horizon_us:
            self._forget_deleted(horizon_us)

    def _forget_deleted(self, horizon_us: int) -> None:
        while self._deleted and self._deleted[0][0] <= horizon_us:
            deleted_us, key = self._deleted.popleft()
            history = self._rows.get(key)
            if history is not None and history.row is None and history.since_us == deleted_us:
                self.forgotten_at = max(self.forgotten_at, history.changed_at)
                del self._rows[key]
                self._keys.remove(key)

    def rewrite(self, change: Callable[[Row], Row]) -> None:
        """Transform each row, in all its versions, for a change of the schema."""
        for history in self._rows.values():
            if history.row is not None:
                history.row = change(history.row)
            if history.older is not None:
                history.older = [
                    (changed_us, None if row is None else change(row))
                    for changed_us, row in history.older
                ]

    def sample_keys(self, count: int) -> list[bytes]:
        """Up to `count` existing keys, evenly spread; never the first one."""
        total = len(self._keys)
        picks = {total * index // (count + 1) for index in range(1, count + 1)}
        return [self._keys.nth(pick) for pick in sorted(picks) if pick > 0]
