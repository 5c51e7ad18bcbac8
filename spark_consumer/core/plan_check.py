"""Whether a plan continues where the state before its batch ended, and what it reads of that.

A plan that was stored may be of another run, so this is checked before anything of it is executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.conservation import reads_of
from tidegate.spark_consumer.core.plan import CompactSegments, WriteRelease
from tidegate.spark_consumer.core.release import overlapping
from tidegate.spark_consumer.errors import CheckpointMismatch

if TYPE_CHECKING:
    from tidegate.spark_consumer.core.batch_state import State
    from tidegate.spark_consumer.core.plan import Plan, Step
    from tidegate.spark_consumer.core.row_sums import SegmentRead

__all__ = ["check_plan", "reads_of_step"]


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


def reads_of_step(step: Step, before: State) -> tuple[SegmentRead, ...]:
    """Return what a step reads of the segments that the state before its batch names.

    Raises CheckpointMismatch if the state does not name them.
    """
    match step:
        case WriteRelease():
            names, after_us = step.bounds.segments, step.bounds.after_us
            through_us = step.bounds.through_us
        case CompactSegments():
            names, after_us = step.compaction.inputs, step.after_us
            through_us = step.compaction.output.max_us
        case _:
            return ()
    known = {segment.name: segment for segment in before.segments}
    unknown = sorted(set(names) - known.keys())
    if unknown:
        message = "the plan reads segments that the state does not name"
        raise CheckpointMismatch(message, batch=before.batch + 1, segments=unknown)
    segments = [known[name] for name in names]
    return reads_of(segments, after_us=after_us, through_us=through_us)
