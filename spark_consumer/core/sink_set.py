"""The sinks of a query: those that a batch writes to, and each sink's first release.

A sink may join a query that has released already.  A joining mirror takes every earlier release
from the changelog; any other sink begins with the next release, whose number the state stores.  A
mirror by key takes batches, not releases, so it cannot join: it would lack the batches before.  No
sink leaves: it would lack releases if it came back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.sink_names import CHANGELOG, MIRROR_BY_KEY, MIRRORS
from tidegate.spark_consumer.errors import CheckpointMismatch


def require_sinks(state: State, wanted: Sequence[str]) -> None:
    """Raise CheckpointMismatch if a query with these sinks cannot continue after a state."""
    left = [name for name in state.sinks if name not in wanted]
    if left:
        raise CheckpointMismatch(
            "the checkpoint was started with other sinks, and this run lacks some of them",
            hint=(
                "Run with the former sinks, and others beside them if you like;"
                " or start with a new checkpoint and a new output"
            ),
            missing=left,
            found=state.sinks,
        )
    joiners = [name for name in wanted if name not in state.sinks]
    if joiners and state.stream_has_ended:
        raise CheckpointMismatch(
            "the stream has ended: no batch follows with which a sink could join",
            hint="Run without it, or start with a new checkpoint and a new output",
            joining=joiners,
            found=state.sinks,
        )
    if MIRROR_BY_KEY in joiners and (state.batch >= 0 or state.next_release):
        raise _mirror_by_key_is_late(batch=state.batch + 1)
    joining = joining_mirrors(state, wanted)
    if joining and (CHANGELOG not in state.sinks or CHANGELOG in state.begins):
        raise CheckpointMismatch(
            "a mirror can join only beside a changelog that has every release",
            hint="Run without it, or start with a new checkpoint and a new output",
            joining=joining,
            found=state.sinks,
        )


def require_plan_sinks(state: State, plan: Plan, wanted: Sequence[str]) -> None:
    """Raise CheckpointMismatch if a stored plan of the next batch cannot be executed with these.

    A run that made a plan with more sinks has begun to write to them.
    """
    unknown = [name for name in plan.sinks if name not in wanted]
    if unknown or not set(state.sinks) <= set(plan.sinks):
        raise CheckpointMismatch(
            "the stored plan of this batch names other sinks",
            hint="Run with these sinks: the plan was made with them",
            batch=plan.batch,
            found=plan.sinks,
        )
    if MIRROR_BY_KEY in wanted and MIRROR_BY_KEY not in plan.sinks:
        raise _mirror_by_key_is_late(batch=plan.batch)


def joining_mirrors(state: State, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the mirrors that have to take all earlier releases from the changelog."""
    if not state.next_release:
        return ()
    return tuple(name for name in wanted if name in MIRRORS and name not in state.sinks)


def sinks_now(state: State, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the sinks of the next plan.

    While an adopted output is read again, mirrors do not join: the schemas of the changes that they
    would take are not known yet.
    """
    if state.adopts_through_us is None:
        return tuple(wanted)
    later = joining_mirrors(state, wanted)
    return tuple(name for name in wanted if name not in later)


def begins_after(state: State, plan: Plan) -> Mapping[str, int]:
    """Return, after a plan, the first release of each sink that does not have all of them."""
    if not state.next_release:
        return state.begins
    joined = {
        name: state.next_release
        for name in plan.sinks
        if name not in state.sinks and name not in MIRRORS
    }
    return {**state.begins, **joined}


def first_release(sink: str, state: State | None, stored: Plan | None) -> int | None:
    """Return the first release that a sink has, or None if it joins with a later one.

    `stored` is the plan of the batch after the state, if a former run has stored it: it is executed
    with the sinks that it names, so that any other sink begins after it.
    """
    if stored is not None and sink not in stored.sinks:
        return None
    if state is None or not state.next_release:
        return 0
    return state.begins.get(sink, 0) if sink in state.sinks else None


def _mirror_by_key_is_late(*, batch: int) -> CheckpointMismatch:
    message = f"{MIRROR_BY_KEY} cannot join a query: it would lack the changes of earlier batches"
    hint = (
        "Start with a new checkpoint and a new output; or add the sink mirror, which takes every"
        " release so far from the changelog"
    )
    return CheckpointMismatch(message, hint=hint, batch=batch)
