"""Where releases and segments are cut: at commit timestamps, never inside one.

Sizes are estimates from quantiles.  A wrong estimate costs memory, never order or completeness:
every bound is a commit timestamp, and each change is compared with the bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tidegate.spark_consumer.core.batch_state import Segment, TopicIds
from tidegate.spark_consumer.core.plan import Compaction, ReleaseBounds

QUANTILES = 64
"""Parts into which a distribution is cut: releases can be sized to about a sixty-fourth."""

_SEGMENTS_COMPACTED = 8

_SLICES_MAX = 256
"""Each slice is a comparison for every row."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many changes there are, and commit timestamps that cut them into parts of equal size.

    Each entry of `quantiles_us` is the last commit timestamp of its part; they ascend and may
    repeat.  `size_bytes` is that of all keys and values, None if it is not known.
    """

    rows: int
    quantiles_us: tuple[int, ...]
    size_bytes: int | None = None

    def weights(
        self, *, after_us: int, through_us: int, row_bytes: float = 0.0
    ) -> list[tuple[int, float]]:
        """Return (commit timestamp, changes at or shortly before it) within the bounds.

        Changes of more than `row_bytes` each, on average, count as the number that their bytes are
        enough for; 0: a change counts as one, however large it is.
        """
        rows: float = self.rows
        if row_bytes and self.size_bytes is not None:
            rows = max(rows, self.size_bytes / row_bytes)
        share = rows / len(self.quantiles_us) if self.quantiles_us else 0.0
        return [(us, share) for us in self.quantiles_us if after_us < us <= through_us]


NO_CHANGES = Distribution(0, (), 0)


def cut(
    weights: Iterable[tuple[int, float]], *, after_us: int, through_us: int, rows_max: int
) -> tuple[int, ...]:
    """Return ascending upper bounds of parts of about `rows_max` changes each.

    The last is `through_us`.  A commit timestamp is in one part, however many changes it has.
    """
    bounds: list[int] = []
    rows = 0.0
    last_us = after_us
    for us, weight in sorted(weights):
        is_new_timestamp = us > last_us
        if is_new_timestamp and rows > 0 and rows + weight > rows_max:
            bounds.append(last_us)
            rows = 0.0
        rows += weight
        last_us = us
    return (*(bound for bound in bounds if bound < through_us), through_us)


def overlapping(
    segments: Iterable[Segment], *, after_us: int, through_us: int
) -> tuple[Segment, ...]:
    """Return the segments that may hold changes within the bounds."""
    return tuple(s for s in segments if s.min_us <= through_us and s.max_us > after_us)


def releases_of(
    *,
    after_us: int,
    through_us: int,
    fresh: Distribution,
    segments: Sequence[Segment],
    first_number: int,
    rows_max: int,
    slice_rows: int,
    bytes_max: int = 0,
    small_rows_max: int = 0,
    small_bytes_max: int = 0,
) -> tuple[ReleaseBounds, ...]:
    """Return the releases that cover (`after_us`, `through_us`]; empty without changes in it.

    `fresh` are the batch's own changes within the bounds.  Either all of the releases are small or
    none: their size is estimated by everything that they read, which is never too low.  Releases
    that are not small are cut into slices of about `slice_rows` changes.
    """
    waiting = overlapping(segments, after_us=after_us, through_us=through_us)
    if through_us <= after_us or not (fresh.rows or waiting):
        return ()
    row_bytes = bytes_max / rows_max
    weights = fresh.weights(after_us=after_us, through_us=through_us, row_bytes=row_bytes)
    for segment in waiting:
        distribution = Distribution(segment.rows, segment.quantiles_us, segment.size_bytes)
        weights += distribution.weights(
            after_us=after_us, through_us=through_us, row_bytes=row_bytes
        )
    bounds = cut(weights, after_us=after_us, through_us=through_us, rows_max=rows_max)
    rows = fresh.rows + sum(segment.rows for segment in waiting)
    size_bytes = _sum([fresh.size_bytes, *(segment.size_bytes for segment in waiting)])
    is_small = rows <= small_rows_max and size_bytes is not None and size_bytes <= small_bytes_max
    return tuple(
        ReleaseBounds(
            number=first_number + index,
            after_us=low,
            through_us=high,
            segments=tuple(s.name for s in overlapping(waiting, after_us=low, through_us=high)),
            is_small=is_small,
            cuts_us=() if is_small else _slice_cuts(weights, low, high, slice_rows=slice_rows),
        )
        for index, (low, high) in enumerate(zip((after_us, *bounds), bounds, strict=False))
    )


def _slice_cuts(
    weights: Sequence[tuple[int, float]], after_us: int, through_us: int, *, slice_rows: int
) -> tuple[int, ...]:
    """Return the commit timestamps that cut a release into slices of about equal size.

    They only divide the work: with any cuts the release holds the same rows with the same ordinals.
    """
    inside = [(us, weight) for us, weight in sorted(weights) if after_us < us <= through_us]
    slices = round(sum(weight for _, weight in inside) / slice_rows)
    cuts = _equal_parts(inside, min(slices, _SLICES_MAX))
    return tuple(us for us in dict.fromkeys(cuts) if us < through_us)


def first_ordinals(changes: Iterable[int]) -> tuple[int, ...]:
    """Return the ordinal of each slice's first change; `changes` counts those of every slice.

    Slices follow each other in commit order and hold each change once, so ordinals are dense.
    """
    return tuple(accumulate(changes, initial=0))[:-1]


def segments_of(
    fresh: Distribution, *, batch: int, min_us: int, max_us: int, rows_max: int, bytes_max: int = 0
) -> tuple[Segment, ...]:
    """Return the segments for a batch's changes between two commit timestamps, both inclusive."""
    if fresh.rows == 0:
        return ()
    row_bytes = bytes_max / rows_max
    weights = fresh.weights(after_us=min_us - 1, through_us=max_us, row_bytes=row_bytes)
    bounds = cut(weights, after_us=min_us - 1, through_us=max_us, rows_max=rows_max)
    segments = []
    for index, (low, high) in enumerate(zip((min_us - 1, *bounds), bounds, strict=False)):
        inside = [us for us, _ in weights if low < us <= high]
        share = len(inside) / max(1, len(weights))
        rows = fresh.rows if len(bounds) == 1 else round(fresh.rows * share)
        name = f"{batch:012d}-{index:03d}"
        # The size of all of them: it is at least the segment's own.
        segments.append(
            Segment(name, low + 1, high, rows, tuple(inside), size_bytes=fresh.size_bytes)
        )
    return tuple(segments)


def compaction_of(
    segments: Sequence[Segment], *, batch: int, segments_max: int, rows_max: int
) -> Compaction | None:
    """Return the cheapest join of a few neighbours in time, if there are too many segments.

    The work is bounded by `rows_max`; None if there are few segments, or if all are large already.
    """
    if len(segments) <= segments_max:
        return None
    ordered = sorted(segments, key=lambda s: (s.min_us, s.max_us, s.name))
    runs = [
        ordered[start : start + size]
        for size in range(2, _SEGMENTS_COMPACTED + 1)
        for start in range(len(ordered) - size + 1)
    ]
    fitting = [run for run in runs if sum(s.rows for s in run) <= rows_max]
    if not fitting:
        return None
    # The longest run first: it takes away the most segments; among those the smallest.
    run = max(fitting, key=lambda r: (len(r), -sum(s.rows for s in r), r[0].name))
    weights = sorted(
        weight
        for s in run
        for weight in Distribution(s.rows, s.quantiles_us).weights(
            after_us=s.min_us - 1, through_us=s.max_us
        )
    )
    output = Segment(
        name=f"{batch:012d}-joined",
        min_us=min(s.min_us for s in run),
        max_us=max(s.max_us for s in run),
        rows=sum(s.rows for s in run),
        quantiles_us=_equal_parts(weights, QUANTILES),
        size_bytes=_sum([s.size_bytes for s in run]),
    )
    return Compaction(tuple(s.name for s in run), output)


def _sum(sizes: Sequence[int | None]) -> int | None:
    """Return the sum, or None if one of the numbers is not known."""
    given = [size for size in sizes if size is not None]
    return sum(given) if len(given) == len(sizes) else None


def _equal_parts(weights: Sequence[tuple[int, float]], parts: int) -> tuple[int, ...]:
    """Return at most `parts` timestamps, each the end of one of about equal parts; may repeat."""
    share = sum(weight for _, weight in weights) / max(1, parts)
    chosen: list[int] = []
    rows = 0.0
    for us, weight in weights:
        rows += weight
        while len(chosen) < parts and rows >= share * (len(chosen) + 1) - 1e-6:
            chosen.append(us)
    return tuple(chosen)


@dataclass(frozen=True, slots=True)
class BatchStats:
    """Counts of a batch's data rows against the former and the new watermark."""

    late_rows: int = 0
    """At or below the former watermark."""
    due: Distribution = NO_CHANGES
    """Above the former, at or below the new watermark."""
    early: Distribution = NO_CHANGES
    """Above the new watermark."""
    early_checksum: int = 0
    """The checksum of the rows above the new watermark."""
    early_min_us: int | None = None
    early_max_us: int | None = None
    topics: tuple[TopicIds, ...] = ()
    """The schema ids that occur in the batch."""
    unordered_rows: int = 0
    """Rows without an order key in their first header."""
    unordered_at: str = ""
    """Topic, topic partition and offset of one of these rows."""
    dead_letters: int = 0
    """Rows that are set aside as dead letters instead; they are counted nowhere else."""

    @property
    def rows(self) -> int:
        """All data rows of the batch."""
        ordered = self.late_rows + self.due.rows + self.early.rows
        return ordered + self.unordered_rows + self.dead_letters
