"""Limits of a batch's reads and writes; none changes the content of the output.

Spark's Kafka source limits offsets only, and keeps the limit as long as a query runs.  So the state
stores the average size of a change, a query starts with the limit that follows from it, and is
restarted when that limit no longer fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegate.spark_consumer.core.cadence import Cadence


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes: they change how the output is divided, written and kept, never its content."""

    release_rows_max: int = 500_000
    segment_rows_max: int = 250_000
    segments_max: int = 32
    compaction_rows_max: int = 500_000
    small_release_rows_max: int = 0
    """Changes that a release may read to be a small one; 0: none is."""
    small_release_bytes_max: int = 0
    """Bytes of their keys and values."""
    slice_rows: int = 125_000
    """About how many changes one task sorts and writes: a large release is cut into such slices."""
    release_bytes_max: int = 0
    """Bytes of keys and values that a release or a segment holds, about; 0: any number."""
    state_segments_max: int = 64
    """Segments that the file of a state holds, about; more are in other files."""
    releases_kept: int = 0
    """Release manifests that are kept, about; 0: all."""
    cadence: Cadence = field(default_factory=Cadence)
    """How often the mirror is merged."""


_ROWS_REMEMBERED = 10_000
"""The weight of the former average, in changes: a few large changes alone do not move it."""

_TOO_MANY = 2
_TOO_FEW = 4


def average_bytes(before: int, *, rows: int, size_bytes: int) -> int:
    """Return the average size of a change after a batch of `rows`; 0: not known yet."""
    if rows == 0:
        return before
    weight = _ROWS_REMEMBERED if before else 0
    return max(1, (before * weight + size_bytes) // (weight + rows))


def offsets_per_batch(*, changes_max: int, bytes_max: int, change_bytes: int) -> int:
    """Return how many offsets a batch reads at most; `change_bytes` is the average, 0 unknown."""
    return max(1, min(changes_max, bytes_max // max(1, change_bytes)))


def must_restart(reads: int, wanted: int) -> bool:
    """Whether a query that reads `reads` offsets per batch has to be started with other limits.

    Rather seldom: a start takes seconds.
    """
    return reads > _TOO_MANY * wanted or wanted > _TOO_FEW * reads
