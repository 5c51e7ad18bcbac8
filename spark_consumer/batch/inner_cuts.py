"""Cuts of a release inside one commit time, for a time that has too many changes for one task.

A backfill's rows have one commit time, and so are one release, however many they are.  Where cuts
are is estimated from a sample of order keys.  They only divide the work: whatever they are, the
release holds the same rows with the same ordinals.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tidegate.spark_consumer.batch.release_order import edges_of
from tidegate.spark_consumer.batch.rows import transaction_begin
from tidegate.spark_consumer.core.plan import ReleaseBounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SLICES_MAX = 256
"""Each slice is a comparison for every row."""

_TOO_MANY = 2
"""A release is looked at if one of its slices may hold so many times the changes that it should."""

_SAMPLE_ROWS = 20_000
_SEED = 0


def find_inner_cuts(
    found: DataFrame, bounds: ReleaseBounds, *, rows_max: int, slice_rows: float
) -> tuple[bytes, ...]:
    """Return the inner cuts of a release: none if none of its slices can be too large.

    `found` are its changes, in any order; `rows_max` is how many they are at most, and `slice_rows`
    how many one task sorts, about.  One Spark job, which reads order keys alone, or none.
    """
    # The last slice is empty where the last commit time is before the release's end.  Each other
    # one was made for an average share at least, and what is too many may all be in one of them.
    others = max(1, len(bounds.slices) - 1) - 1
    if rows_max - slice_rows * others <= _TOO_MANY * slice_rows:
        return ()
    share = min(1.0, _SAMPLE_ROWS / rows_max)
    sample = found.select(transaction_begin().alias("begins")).sample(share, _SEED)
    begins = sorted(bytes(row["begins"]) for row in sample.collect())
    return cuts_of(begins, edges_of(bounds), slice_rows=slice_rows * share)


def cuts_of(
    begins: Sequence[bytes], edges: Sequence[bytes], *, slice_rows: float
) -> tuple[bytes, ...]:
    """Return the cuts that divide slices into parts of about `slice_rows` changes, ascending.

    `begins` has for each change what the order keys of its transaction begin with, sorted; `edges`
    are those of the slices.  A transaction is in one part, however many changes it has.
    """
    slice_rows = max(slice_rows, len(begins) / max(1, SLICES_MAX - len(edges)))
    cuts: set[bytes] = set()
    for low, high in pairwise(edges):
        first, end = bisect_left(begins, low), bisect_left(begins, high)
        parts = round((end - first) / slice_rows) if end > first else 0
        cuts |= {begins[first + part * (end - first) // parts] for part in range(1, parts)}
        if parts:
            cuts.discard(begins[first])  # nothing stands before it
    return tuple(sorted(cuts))
