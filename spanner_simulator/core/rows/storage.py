"""Rows in several versions: the current one for transactions, older ones for reads at a timestamp.

A deletion is a version too, so that a read in the past, and the check of a transaction's range
reads, see that something was there. Versions older than `VERSION_RETENTION_US` go when their row
is written again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.spanner_simulator.core.values import Row

__all__ = ["VERSION_RETENTION_US", "KeyRange", "RowHistory", "TableRows"]

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
    """All versions of one row, oldest first; `changed_at` is the number of the last commit."""

    versions: list[tuple[int, Row | None]] = field(default_factory=list)
    changed_at: int = 0

    def at(self, timestamp_us: int) -> Row | None:
        """The row as of a commit timestamp, inclusive."""
        for version_us, row in reversed(self.versions):
            if version_us <= timestamp_us:
                return row
        return None


class TableRows:
    """The rows of one table, ordered by encoded key. Rows are never changed in place."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._rows: dict[bytes, RowHistory] = {}

    def current(self, key: bytes) -> Row | None:
        """The last committed row."""
        history = self._rows.get(key)
        return history.versions[-1][1] if history is not None else None

    def read(self, key: bytes, timestamp_us: int | None) -> Row | None:
        """The row at a time; None means the last committed one."""
        if timestamp_us is None:
            return self.current(key)
        history = self._rows.get(key)
        return history.at(timestamp_us) if history is not None else None

    def changed_at(self, key: bytes) -> int:
        """The number of the commit that wrote this row last; 0 when none did."""
        history = self._rows.get(key)
        return history.changed_at if history is not None else 0

    def histories(self, where: KeyRange) -> Iterator[tuple[bytes, RowHistory]]:
        """All rows of a range in key order, deleted ones included."""
        index = bisect_left(self._keys, where.low)
        while index < len(self._keys):
            key = self._keys[index]
            if where.high is not None and key >= where.high:
                return
            yield key, self._rows[key]
            index += 1

    def scan(self, where: KeyRange, timestamp_us: int | None) -> Iterator[tuple[bytes, Row]]:
        """The rows of a range that exist at a time, in key order."""
        for key, history in self.histories(where):
            row = history.versions[-1][1] if timestamp_us is None else history.at(timestamp_us)
            if row is not None:
                yield key, row

    def write(self, key: bytes, row: Row | None, *, commit_us: int, commit_number: int) -> None:
        """Add a version; None deletes."""
        history = self._rows.get(key)
        if history is None:
            history = self._rows[key] = RowHistory()
            insort(self._keys, key)
        history.versions.append((commit_us, row))
        history.changed_at = commit_number
        horizon_us = commit_us - VERSION_RETENTION_US
        while len(history.versions) > 1 and history.versions[1][0] <= horizon_us:
            del history.versions[0]

    def sample_keys(self, count: int) -> list[bytes]:
        """Up to `count` existing keys, evenly spread; never the first one."""
        total = len(self._keys)
        picks = {total * index // (count + 1) for index in range(1, count + 1)}
        return [self._keys[pick] for pick in sorted(picks) if pick > 0]
