"""Cuts the keys of a table into ranges with about as many rows each, in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.producer.backfill.read_partition import Key, ReadPartition

READ_PARTITIONS_MAX = 256
"""How many one backfill has, unless it has more tables.  Each names as many tokens at its end."""

_ROWS_MIN = 10_000
"""Rows of a key range, at least, unless it is the last one."""


class KeyRanges:
    """The key ranges of one table; keys are added in their order.

    Ranges become twice as large whenever there are too many, so memory is bounded.
    """

    def __init__(self, *, ranges_max: int = READ_PARTITIONS_MAX, rows_min: int = _ROWS_MIN) -> None:
        """Begin without a row."""
        self._ranges_max = ranges_max
        self._rows_in_each = rows_min
        self._ends: list[Key] = []
        self.rows = 0

    def rows_to_end(self) -> int:
        """Return how many more keys there are up to the next one that ends a range."""
        return self._rows_in_each - self.rows % self._rows_in_each

    def pass_over(self, rows: int) -> None:
        """Count keys that do not end a range: fewer than `rows_to_end`."""
        self.rows += rows

    def end_at(self, key: Key) -> None:
        """Count the key that ends a range."""
        self.rows += 1
        self._ends.append(key)
        if len(self._ends) > self._ranges_max:
            self._ends = self._ends[1::2]
            self._rows_in_each *= 2

    @property
    def bounds(self) -> list[tuple[Key | None, Key | None, int]]:
        """(last key before, last key, rows) of each range, in their order; none without a row."""
        ends, left = self._ends, self.rows - len(self._ends) * self._rows_in_each
        if ends and not left:
            ends, left = ends[:-1], self._rows_in_each
        if not left:
            return []
        starts: Sequence[Key | None] = [None, *ends]
        counts = [*([self._rows_in_each] * len(ends)), left]
        return list(zip(starts, [*ends, None], counts, strict=True))


def read_partitions(tables: Iterable[tuple[str, KeyRanges]]) -> list[ReadPartition]:
    """Return the read partitions of a backfill, numbered over all tables."""
    ranges = [(table, *bounds) for table, found in tables for bounds in found.bounds]
    return [
        ReadPartition(table, number, len(ranges), rows, after, through)
        for number, (table, after, through, rows) in enumerate(ranges)
    ]
