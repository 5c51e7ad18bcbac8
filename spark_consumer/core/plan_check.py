"""Whether a plan continues where the state before its batch ended.

A plan that was stored may be of another run, so this is checked before anything of it is executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.release import overlapping

if TYPE_CHECKING:
    from tidegate.spark_consumer.core.batch_state import State
    from tidegate.spark_consumer.core.plan import Plan

__all__ = ["check_plan"]


def check_plan(plan: Plan, *, before: State) -> None:
    """Raise InvariantViolation if a plan does not continue where the state before it ended."""
    invariant(
        (plan.batch, plan.after_us) == (before.batch + 1, before.watermark_us),
        "the plan does not continue where the batch before ended",
        plan=(plan.batch, plan.after_us),
        state=(before.batch, before.watermark_us),
    )
    invariant(
        all(bounds.number == before.next_release + n for n, bounds in enumerate(plan.releases)),
        "release numbers have a gap",
        next_release=before.next_release,
        releases=[bounds.number for bounds in plan.releases],
    )
    newest = before.next_release + len(plan.releases) - 1
    invariant(
        plan.mirror_at in (None, before.mirrored) and all(n <= newest for n in plan.merges),
        "the plan's merges do not continue where the mirror stands",
        mirror=before.mirrored,
        mirror_at=plan.mirror_at,
        merges=plan.merges,
    )
    waiting = overlapping(before.segments, after_us=plan.after_us, through_us=plan.through_us)
    invariant(
        plan.releases or not waiting or plan.through_us == plan.after_us,
        "segments hold due changes and no release is planned",
        segments=[segment.name for segment in waiting],
    )
    for bounds in plan.releases:
        due = overlapping(waiting, after_us=bounds.after_us, through_us=bounds.through_us)
        invariant(
            set(bounds.segments) == {segment.name for segment in due},
            "a release does not read the segments that may hold its changes",
            release=bounds.number,
            reads=bounds.segments,
        )
