"""Which release manifests are kept: the newest ones.  The others are dropped many at a time."""

from __future__ import annotations

from tidegate.spark_consumer.core.plan import Plan, Step, WriteRelease

DROPPED_AT_ONCE = 1_000
"""Most manifests that a batch deletes, where a change of the setting leaves more to delete."""

_STEP_MAX = 100


def first_kept(first: int, last: int, *, mirrored: int, kept: int) -> int | None:
    """Return the release from which on manifests are kept, after a batch with these releases.

    None if nothing is due.  It is never above the batch's own first release, which a replay writes
    again, nor above the one that the mirrors stood at before, whose manifest proves their cut;
    `kept` is about how many are kept, 0: all.
    """
    if not kept:
        return None
    step = max(1, min(_STEP_MAX, kept // 10))
    before, after = ((end - kept) // step * step for end in (first, last + 1))
    due = min(after, first, mirrored)
    return due if due > 0 and after > before else None


def first_kept_after(step: Step, plan: Plan, *, mirrored: int, kept: int) -> int | None:
    """Return what `first_kept` does for a batch whose last release this step is; else None."""
    releases = plan.releases
    if not isinstance(step, WriteRelease) or step.bounds != releases[-1]:
        return None
    return first_kept(releases[0].number, releases[-1].number, mirrored=mirrored, kept=kept)
