"""Whether what was stored belongs to a batch and continues it, and what a plan reads of it.

A plan that was stored may be of another run, so this is checked before anything of it is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.lineage.frontier import EndOffsets
from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.batch_state import State, TopicIds
from tidegate.spark_consumer.core.conservation import reads_of
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    CompactSegments,
    MergeMirror,
    Plan,
    Step,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import overlapping
from tidegate.spark_consumer.core.row_sums import SegmentRead
from tidegate.spark_consumer.core.sink_set import require_plan_sinks, require_sinks
from tidegate.spark_consumer.errors import CheckpointMismatch


def require_state(state: State | None, batch: int, *, like: State, sinks: Sequence[str]) -> State:
    """Return a loaded state if it is the one after `batch`, of the same query as `like`.

    Raises CheckpointMismatch otherwise, and for a state with sinks that are not among `sinks`, and
    would miss the next releases.
    """
    hint = "Spark's checkpoint and the gate's belong together: restore or remove both"
    if state is None:
        raise CheckpointMismatch(
            "Spark's checkpoint continues after a batch that the gate has no state of",
            hint=hint,
            batch=batch,
        )
    found = (state.batch, state.prefix, state.query_id)
    wanted = (batch, like.prefix, like.query_id)
    if found != wanted:
        raise CheckpointMismatch(
            "the stored state does not belong to this batch",
            hint=hint,
            found=found,
            expected=wanted,
        )
    require_sinks(state, sinks)
    return state


def require_same_batch(
    state: State, plan: Plan, *, end_offsets: EndOffsets, sinks: Sequence[str]
) -> None:
    """Raise CheckpointMismatch unless a stored plan is the plan of this batch, for these sinks."""
    found: Mapping[str, object] = {
        "format": plan.format,
        "prefix": plan.prefix,
        "query_id": plan.query_id,
        "batch": plan.batch,
        "after_us": plan.after_us,
        "end_offsets": plan.end_offsets,
    }
    wanted: Mapping[str, object] = {
        "format": PLAN_FORMAT,
        "prefix": state.prefix,
        "query_id": state.query_id,
        "batch": state.batch + 1,
        "after_us": state.watermark_us,
        "end_offsets": end_offsets,
    }
    different = sorted(name for name in wanted if found[name] != wanted[name])
    if different:
        raise CheckpointMismatch(
            "the stored plan does not belong to this batch",
            hint="Spark's checkpoint and the gate's belong together: restore or remove both",
            batch=plan.batch,
            different=different,
        )
    require_plan_sinks(state, plan, sinks)


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
        raise CheckpointMismatch(
            "the plan reads segments that the state does not name",
            hint="Restore the whole checkpoint of one moment, or adopt the output into a new one",
            batch=before.batch + 1,
            segments=unknown,
        )
    segments = [known[name] for name in names]
    return reads_of(segments, after_us=after_us, through_us=through_us)


def topics_of_merge(step: MergeMirror, plan: Plan, before: State) -> tuple[TopicIds, ...]:
    """Return the schemas that the releases of a merge were written with.

    A checkpoint that has adopted an output learns them as it reads the topics again.
    """
    is_older = step.through < before.next_release and before.adopts_through_us is None
    return before.topics if is_older else plan.topics
