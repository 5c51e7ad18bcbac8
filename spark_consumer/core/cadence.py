"""The cadence of mirrors: when they take the releases that they lack, which a plan stores.

A merge costs about the same for one release as for ten, so the mirror takes several at once.  It
has reached exactly one release in all of its tables, an older one than the changelog in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often the mirror is merged; neither is part of a plan.

    `every_us` is the least time between two merges; 0: with every release.  From a watermark of
    `goal_us` on the mirror takes every release, because the run ends there; None: it has no end.
    """

    every_us: int = 0
    goal_us: int | None = None

    def is_due(self, *, merged_at_us: int | None, now_us: int) -> bool:
        """Whether a merge may follow that of `merged_at_us`; wall times in microseconds.

        A clock that was set back never delays the mirror.
        """
        if merged_at_us is None or now_us < merged_at_us:
            return True
        return now_us - merged_at_us >= self.every_us

    def is_at_end(self, watermark_us: int) -> bool:
        """Whether the run ends with this watermark."""
        return self.goal_us is not None and watermark_us >= self.goal_us


def merges_due(
    *,
    stands_at: int,
    newest: int,
    releases: Sequence[int],
    has_new_schemas: bool,
    is_every_release_due: bool,
    is_due: bool,
    is_end: bool,
    is_joining: bool = False,
) -> tuple[int, ...]:
    """Return the releases through which a batch merges the mirror, in order; the last is its cut.

    The mirror is at release `stands_at`; `newest` is the newest one before the batch, and
    `releases` are the batch's own.  The very first is merged by itself, so that every manifest
    names a cut.  One merge never spans a change of schemas: releases that the mirror lacks are
    merged with the schemas that they were released with, before the batch's own releases.
    `is_joining`: another mirror takes all releases before the batch, and is then at the release of
    the others.
    """
    is_behind = is_joining or stands_at < newest
    if is_every_release_due:
        return (*([newest] if is_behind else []), *releases)
    last = releases[-1] if releases else newest
    merges = [newest] if is_joining or (is_behind and has_new_schemas) else []
    if stands_at < 0 and releases and not is_joining:
        merges = [releases[0]]
    # These count as the one merge of their time.
    is_next_due = is_end or (is_due and not merges)
    if is_next_due and (merges[-1] if merges else stands_at) < last:
        merges.append(last)
    return tuple(merges)
