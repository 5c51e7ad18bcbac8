"""From one state to the next: the checks of a plan, its reads, and the state after it.

A stored plan may be another run's, so it is checked before any part of it is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidegate.lineage.frontier import EndOffsets
from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.batch_state import Segment, State, TopicIds
from tidegate.spark_consumer.core.conservation import reads_of
from tidegate.spark_consumer.core.file_names import plan_file, segment_file, state_file
from tidegate.spark_consumer.core.origin_ledger import OriginLedger
from tidegate.spark_consumer.core.part_log import ALL_IN_THE_STATE, SegmentList
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    CompactSegments,
    MergeMirror,
    Plan,
    Step,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import overlapping
from tidegate.spark_consumer.core.sink_set import begins_after, require_plan_sinks, require_sinks
from tidegate.spark_consumer.core.sums import SegmentRead
from tidegate.spark_consumer.errors import CheckpointMismatch

STATES_KEPT = 100


def require_state(state: State | None, batch: int, *, like: State, sinks: Sequence[str]) -> State:
    """Return a loaded state if it is the state after `batch`, of the same query as `like`.

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
    stored = (state.batch, state.prefix, state.query_id)
    wanted = (batch, like.prefix, like.query_id)
    if stored != wanted:
        raise CheckpointMismatch(
            "the stored state does not belong to this batch",
            hint=hint,
            found=stored,
            expected=wanted,
        )
    require_sinks(state, sinks)
    return state


def require_same_batch(
    state: State, plan: Plan, *, end_offsets: EndOffsets, sinks: Sequence[str]
) -> None:
    """Raise CheckpointMismatch unless a stored plan is the plan of this batch, for these sinks."""
    stored: Mapping[str, object] = {
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
    different = sorted(name for name in wanted if stored[name] != wanted[name])
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
    """Return a step's reads of the segments that the state before its batch names.

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
    segments_by_name = {segment.name: segment for segment in before.segments}
    unknown = sorted(set(names) - segments_by_name.keys())
    if unknown:
        raise CheckpointMismatch(
            "the plan reads segments that the state does not name",
            hint="Restore the whole checkpoint of one moment, or adopt the output into a new one",
            batch=before.batch + 1,
            segments=unknown,
        )
    segments = [segments_by_name[name] for name in names]
    return reads_of(segments, after_us=after_us, through_us=through_us)


def topics_of_merge(step: MergeMirror, plan: Plan, before: State) -> tuple[TopicIds, ...]:
    """Return the schemas that the releases of a merge were written with.

    A checkpoint that has adopted an output learns them as it reads the topics again.
    """
    is_older = step.through < before.next_release and before.adopts_through_us is None
    return before.topics if is_older else plan.topics


def after(
    state: State,
    plan: Plan,
    *,
    written: Mapping[str, Segment],
    waiting_rows: int | None,
    code: str,
    listed: SegmentList = ALL_IN_THE_STATE,
    mismatches: int = 0,
    copies: int = 0,
    origins: OriginLedger | None = None,
    origins_file: str | None = None,
    dead_letters: int = 0,
) -> State:
    """Return the state after an executed plan.

    `written` holds the plan's segments with their written sums, by their planned names;
    `waiting_rows` is how many changes wait; `code` is the version of this program; `listed` is how
    the waiting segments are stored; `mismatches` is how many the batch has recorded, `copies` how
    many records it left out, and `dead_letters` how many its releases have set aside; `origins` is
    the ledger of stream partitions, None if it has not changed, and `origins_file` its file.
    """
    waiting = waiting_segments(state, plan, written)
    kept = {segment.name for segment in waiting}
    kept_us = None if plan.mirror_at is None else state.mirror_merged_at_us
    following = replace(
        state,
        batch=plan.batch,
        watermark_us=plan.through_us,
        next_release=state.next_release + len(plan.releases),
        stream_has_ended=plan.stream_has_ended,
        late_rows=state.late_rows + plan.late_rows,
        end_offsets=plan.end_offsets,
        frontier=plan.frontier,
        dropped_frontiers=plan.dropped_frontiers,
        change_bytes=plan.change_bytes,
        segments=waiting,
        dropped_segments=tuple(s.name for s in state.segments if s.name not in kept),
        topics=plan.topics,
        sinks=plan.sinks,
        begins=begins_after(state, plan),
        waiting_rows=waiting_rows,
        code=code,
        adopts_through_us=plan.adopts_through_us,
        listed=listed,
        mirror_release=_mirror_release(state, plan),
        mirror_merged_at_us=plan.decided_at_us if plan.merges else kept_us,
        mismatches=state.mismatches + mismatches,
        copies=state.copies + copies,
        origins=state.origins if origins is None else origins,
        origins_file=origins_file,
        gaps=plan.gaps,
        dead_letters=state.dead_letters + plan.dead_letters + dead_letters,
    )
    following = replace(
        following, dropped_lists=tuple(sorted(state.list_folders - following.list_folders))
    )
    following.check_invariants()
    return following


def _mirror_release(state: State, plan: Plan) -> int | None:
    """Return the release of the mirror after a plan, None for the newest."""
    newest = state.next_release + len(plan.releases) - 1
    stands_at = plan.merges[-1] if plan.merges else plan.mirror_at
    return None if stands_at == newest else stands_at


def waiting_segments(
    state: State, plan: Plan, written: Mapping[str, Segment]
) -> tuple[Segment, ...]:
    """Return the written segments that hold changes above the plan's watermark."""
    joined = () if plan.compaction is None else plan.compaction.inputs
    surviving = [
        segment
        for segment in state.segments
        if segment.max_us > plan.through_us and segment.name not in joined
    ]
    output = () if plan.compaction is None else (plan.compaction.output,)
    return (*surviving, *(written[planned.name] for planned in (*output, *plan.stored)))


def no_longer_needed(state: State) -> tuple[str, ...]:
    """Return the files that batch `state.batch + 1` may delete: no earlier batch runs again.

    The last `STATES_KEPT` states and plans stay for an operator who has to find a fault.
    """
    names = [*(segment_file(name) for name in state.dropped_segments), *state.dropped_frontiers]
    names += state.dropped_lists
    if state.batch >= STATES_KEPT:
        names += [plan_file(state.batch - STATES_KEPT), state_file(state.batch - STATES_KEPT)]
    return tuple(names)


DROPPED_AT_ONCE = 1_000
"""Most manifests that a batch deletes, where a change of the setting leaves more to delete."""

_STEP_MAX = 100


def first_kept(first: int, last: int, *, mirrored: int, kept: int) -> int | None:
    """Return the release from which on manifests are kept, after a batch with these releases.

    None if nothing is due.  It is never above the batch's own first release, which a replay writes
    again, nor above the release that the mirrors had before, whose manifest proves their cut;
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
