"""A release's changes, each once, in commit order: one task sorts each slice of the release.

The cuts between slices are commit timestamps of the plan, so every change is compared with them and
no row is sampled.  Where one commit time has more changes than a task should sort, as that of a
backfill has, there are inner cuts too, each before a transaction's first change: a transaction is
never in two slices.  The hash of one column decides which rows a task gets, since Spark has no
other way to name a task; the column's values are chosen so that each slice has its own task, and
the count of a release checks that each slice holds its own changes only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.order_key import TIMESTAMP_BYTES, first_key_after
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS, transaction_begin
from tidegate.spark_consumer.core.plan import ReleaseBounds

COPY_COLUMNS = ("copies", "is_conflict", "last")
"""For each change in a release: its records, whether they differ, and the place of the last one."""

SLICE = "slice"
"""Number of the slice, from 0 in commit order."""

PLACE = "place"
"""Place of the change in its slice, from 0."""

SLICE_KEY = "slice_key"
"""Spark's hash of this column decides the task: grouping by it too needs no other shuffle."""

_PLACE_BITS = 33
"""Spark's row numbers hold the task above these bits."""

_SEED = 42
_WORD = (1 << 32) - 1


def in_order(
    changes: DataFrame, bounds: ReleaseBounds, inner_cuts: Sequence[bytes] = ()
) -> DataFrame:
    """Return changes with copies in any order as the changes of a release.

    The columns are `CHANGE_COLUMNS`, `COPY_COLUMNS`, `SLICE`, `PLACE` and `SLICE_KEY`.  Of several
    copies of a change the first by topic, topic partition and offset stays.  The changes must
    lie within the bounds.  Rows and places depend on the rows and the cuts alone: a task that is
    repeated gives the same.
    """
    edges = edges_of(bounds, inner_cuts)
    slices = len(edges) - 1
    if slices == 1:
        keys = ["order_key"]
        changes, slice_key = changes.coalesce(1), F.lit(0)
    else:
        # With the slice's key among the keys, Spark needs no second shuffle to group; after the
        # order key, since Spark's sort compares the first bytes of the first key by themselves.
        keys = ["order_key", SLICE_KEY]
        key = _of_slice(_slice_of(edges), [F.lit(key) for key in slice_keys(slices)])
        changes = changes.withColumn(SLICE_KEY, key).repartition(slices, SLICE_KEY)
        slice_key = F.col(SLICE_KEY)
    place = F.struct("topic", "topic_partition", "offset")
    # A column, for an aggregate would hash twice.
    changes = changes.withColumn("content", F.xxhash64("topic", "key", "value", "mod"))
    rest = [column for column in CHANGE_COLUMNS if column != "order_key"]
    row_number = F.monotonically_increasing_id()
    # A task's aggregation by the sort key comes out sorted: one sort serves both.
    return (
        changes.groupBy(*keys)
        .agg(
            F.min(F.struct(*rest)).alias("change"),
            F.count("*").alias("copies"),
            (F.min("content") != F.max("content")).alias("is_conflict"),
            F.max(place).alias("last"),
        )
        .sortWithinPartitions(*keys)
        .select("change.*", "order_key", *COPY_COLUMNS, slice_key.alias(SLICE_KEY))
        .select(
            *CHANGE_COLUMNS,
            *COPY_COLUMNS,
            F.shiftright(row_number, _PLACE_BITS).cast("int").alias(SLICE),
            row_number.bitwiseAND(F.lit((1 << _PLACE_BITS) - 1)).alias(PLACE),
            SLICE_KEY,
        )
    )


def numbered(rows: DataFrame, first_ordinals: Sequence[int], *, release: int) -> DataFrame:
    """Return rows of `in_order` with `release` and `ordinal` in place of slice and place.

    `first_ordinals` is the ordinal of each slice's first change.
    """
    # Looked up by slice, for literals would be in the code that Spark compiles, for each release
    # again.
    slice_of = F.col(SLICE)
    first = _of_slice(slice_of, [F.lit(first).cast("long") for first in first_ordinals])
    number = _of_slice(slice_of, [F.lit(release).cast("long") for _ in first_ordinals])
    return rows.withColumns({"release": number, "ordinal": F.col(PLACE) + first})


def edges_of(bounds: ReleaseBounds, inner_cuts: Sequence[bytes] = ()) -> tuple[bytes, ...]:
    """Return where slices begin and end: one has the order keys from an edge up to the next.

    Edges ascend, and are order keys or what one begins with.  There is one more than slices.
    """
    times_us = (bounds.after_us, *bounds.cuts_us, bounds.through_us)
    return tuple(sorted({*map(first_key_after, times_us), *inner_cuts}))


def is_outside(bounds: ReleaseBounds, inner_cuts: Sequence[bytes] = ()) -> Column:
    """Condition: the order key is not within the bounds of its row's slice."""
    edges = [F.lit(bytearray(edge)) for edge in edges_of(bounds, inner_cuts)]
    low, high = _of_slice(F.col(SLICE), edges[:-1]), _of_slice(F.col(SLICE), edges[1:])
    return (F.col("order_key") < low) | (F.col("order_key") >= high)


def is_late_or_early(bounds: ReleaseBounds, inner_cuts: Sequence[bytes] = ()) -> Column:
    """Condition: the column `commit_us` is not within the bounds of its row's slice."""
    edges = edges_of(bounds, inner_cuts)
    least = [_commit_us(edge) for edge in edges[:-1]]
    # An edge inside a commit time is followed by more changes of that time.
    most = [_commit_us(edge) - (len(edge) == TIMESTAMP_BYTES) for edge in edges[1:]]
    low, high = (
        _of_slice(F.col(SLICE), [F.lit(us).cast("long") for us in times]) for times in (least, most)
    )
    return (F.col("commit_us") < low) | (F.col("commit_us") > high)


def slice_keys(slices: int) -> tuple[int, ...]:
    """Return a number for each slice that Spark's hash partitioning sends to the task of its place.

    It takes Murmur3 of the number modulo the number of tasks.
    """
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < slices:
        keys.setdefault(_murmur3(number) % slices, number)
        number += 1
    return tuple(keys[place] for place in range(slices))


def _commit_us(edge: bytes) -> int:
    return int.from_bytes(edge[:TIMESTAMP_BYTES], "big")


def _slice_of(edges: Sequence[bytes]) -> Column:
    number = F.lit(0)
    for edge in edges[1:-1]:
        number += (F.col("order_key") >= F.lit(bytearray(edge))).cast("int")
    return number


def _of_slice(slice_of: Column, values: Sequence[Column]) -> Column:
    return F.element_at(F.array(*values), slice_of + 1)


def _murmur3(number: int) -> int:
    """Return Spark's hash of an INT that is not negative, as a signed number of 32 bits."""
    mixed = number * 0xCC9E2D51 & _WORD
    mixed = _rotated(mixed, 15) * 0x1B873593 & _WORD
    hashed = _rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _WORD
    hashed ^= 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _WORD
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _WORD
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _WORD


SLICES_MAX = 256
"""Each slice is a comparison for every row."""

_TOO_MANY = 2
"""A release is looked at if one of its slices may hold this many times its share of changes."""

_SAMPLE_ROWS = 20_000
_SAMPLE_SEED = 0


def find_inner_cuts(
    changes: DataFrame, bounds: ReleaseBounds, *, rows_max: int, slice_rows: float
) -> tuple[bytes, ...]:
    """Return the inner cuts of a release: none if none of its slices can be too large.

    `changes` are in any order; `rows_max` is their highest possible number, and `slice_rows` about
    how many one task sorts.  One Spark job, which reads order keys alone, or none.
    """
    # The last slice is empty where the last commit time is before the release's end.  Each other
    # one was made for an average share at least, and all surplus rows may be in one of them.
    other_slices = max(1, len(bounds.slices) - 1) - 1
    if rows_max - slice_rows * other_slices <= _TOO_MANY * slice_rows:
        return ()
    share = min(1.0, _SAMPLE_ROWS / rows_max)
    sample = changes.select(transaction_begin().alias("begins")).sample(share, _SAMPLE_SEED)
    begins = sorted(bytes(row["begins"]) for row in sample.collect())
    return cuts_of(begins, edges_of(bounds), slice_rows=slice_rows * share)


def cuts_of(
    begins: Sequence[bytes], edges: Sequence[bytes], *, slice_rows: float
) -> tuple[bytes, ...]:
    """Return the cuts that divide slices into parts of about `slice_rows` changes, ascending.

    `begins` has for each change the prefix of its transaction's order keys, sorted; `edges` are the
    slices' edges.  A transaction is in one part, however many changes it has.
    """
    slice_rows = max(slice_rows, len(begins) / max(1, SLICES_MAX - len(edges)))
    cuts: set[bytes] = set()
    for low, high in pairwise(edges):
        first, end = bisect_left(begins, low), bisect_left(begins, high)
        parts = round((end - first) / slice_rows) if end > first else 0
        cuts |= {begins[first + part * (end - first) // parts] for part in range(1, parts)}
        if parts:
            cuts.discard(begins[first])  # nothing precedes it
    return tuple(sorted(cuts))
