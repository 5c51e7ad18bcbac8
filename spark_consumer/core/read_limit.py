"""How many changes a batch may read, so that it stays within a number of bytes.

Spark's Kafka source takes a limit of offsets alone, and keeps it as long as a query runs.  So the
state remembers how large a change is on average, a query starts with the offsets that follow, and
is started again where they do not fit any more.
"""

from __future__ import annotations

_ROWS_REMEMBERED = 10_000
"""Changes that the former average stands for: a few large ones alone do not move it."""

_TOO_MANY = 2
_TOO_FEW = 4


def average_bytes(before: int, *, rows: int, size_bytes: int) -> int:
    """Return the average size of a change after a batch of so many; 0: not known yet."""
    if rows == 0:
        return before
    weight = _ROWS_REMEMBERED if before else 0
    return max(1, (before * weight + size_bytes) // (weight + rows))


def offsets_per_batch(*, changes_max: int, bytes_max: int, change_bytes: int) -> int:
    """Return how many offsets a batch reads at most; `change_bytes` is the average, 0 unknown."""
    return max(1, min(changes_max, bytes_max // max(1, change_bytes)))


def must_restart(reads: int, wanted: int) -> bool:
    """Whether a query that reads so many offsets per batch has to be started with others.

    Rather seldom: a start takes seconds.
    """
    return reads > _TOO_MANY * wanted or wanted > _TOO_FEW * reads
