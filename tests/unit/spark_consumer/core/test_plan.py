"""Plans: their steps, their format, and what a plan must agree with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.core_building import PLAN, PLANNED_SEGMENT, as_json
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.batch_state import (
    Segment,
    State,
    TopicIds,
)
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    CompactSegments,
    MergeMirror,
    Plan,
    SetLateAside,
    StoreDeadLetters,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.transition import check_plan, topics_of_merge
from tidegate.spark_consumer.errors import CheckpointMismatch, NewerCheckpoint


def test_late_rows_first_then_releases_by_number_then_what_waits():
    assert PLAN.steps == (
        SetLateAside(10, 1),
        WriteRelease(PLAN.releases[0], ("changelog", "mirror")),
        WriteRelease(PLAN.releases[1], ("changelog", "mirror")),
        StoreSegment(PLANNED_SEGMENT),
        CompactSegments(PLAN.compaction, 20),
    )
    assert Plan.restore(as_json(PLAN.snapshot())) == PLAN
    first = replace(PLAN, dead_letters=3)
    assert first.steps == (StoreDeadLetters(3), *PLAN.steps)
    assert Plan.restore(as_json(first.snapshot())) == first
    # A replay takes the way that the plan names.
    small = replace(PLAN, releases=(replace(PLAN.releases[0], is_small=True), PLAN.releases[1]))
    assert Plan.restore(as_json(small.snapshot())) == small


@pytest.mark.parametrize("found", [2, 3])
def test_a_plan_of_an_older_program_is_executed_without_its_cuts_and_counts(found):
    stored = as_json(PLAN.snapshot()) | {"format": found}
    del stored["dropped_frontiers"]
    for bounds in stored["releases"]:
        del bounds["cuts_us"], bounds["is_small"]
    fresh = PLAN.fresh
    if found == 2:
        fresh = None
        del stored["fresh"]
        for segment in (*stored["stored"], stored["compaction"]["output"]):
            del segment["parts"], segment["size_bytes"]
    releases = tuple(replace(bounds, cuts_us=()) for bounds in PLAN.releases)
    before = ("frontiers/000000000003.json",)
    expected = replace(PLAN, fresh=fresh, releases=releases, dropped_frontiers=before)
    assert Plan.restore(as_json(stored)) == expected
    assert Plan.restore(as_json(stored | {"batch": 0})).dropped_frontiers == ()
    # One of format 6 knows no gaps.
    plan = replace(PLAN, gaps=(PartitionGap("t", 12, 14, "ops", 3),))
    stored = as_json(plan.snapshot())
    assert Plan.restore(stored) == plan
    del stored["gaps"]
    assert Plan.restore(stored | {"format": 6}) == PLAN


def test_a_plan_of_a_newer_program_or_a_much_older_one_is_refused():
    stored = PLAN.snapshot() | {"format": PLAN_FORMAT + 1, "code": "9.1.0"}
    del stored["sinks"]
    with pytest.raises(NewerCheckpoint, match=r"Install Tidegate 9\.1\.0") as caught:
        Plan.restore(stored)
    assert caught.value.fields == {"batch": 4, "found": PLAN_FORMAT + 1, "known": PLAN_FORMAT}
    with pytest.raises(CheckpointMismatch, match="found=1"):
        Plan.restore(stored | {"format": 1})


def test_cuts_that_do_not_ascend_inside_of_the_bounds_are_a_contradiction():
    first, second = PLAN.releases
    PLAN.check_invariants()
    for cuts_us in ((10,), (15,), (13, 12), (12, 12)):
        broken = replace(PLAN, releases=(replace(first, cuts_us=cuts_us), second))
        with pytest.raises(InvariantViolation, match="cuts are out of order"):
            broken.check_invariants()


BEFORE = State(
    prefix="bank",
    query_id="q",
    batch=3,
    watermark_us=10,
    next_release=2,
    segments=(Segment("s", 11, 14, 2, (14,)), Segment("t", 30, 40, 2, (40,))),
)


def test_any_other_is_refused():
    check_plan(PLAN, before=BEFORE)
    check_plan(replace(PLAN, mirror_at=0, merges=(3,)), before=replace(BEFORE, mirror_release=0))
    first = PLAN.releases[0]
    for changes, fault in (
        ({"batch": 5}, "does not continue where the batch"),
        ({"after_us": 9}, "does not continue where the batch"),
        ({"releases": PLAN.releases[1:]}, "release numbers have a gap"),
        ({"mirror_at": 0}, "where the mirror stands"),
        ({"merges": (4,)}, "where the mirror stands"),
        ({"releases": ()}, "no release is planned"),
        ({"releases": (replace(first, segments=()),)}, "may hold its changes"),
        ({"releases": (replace(first, segments=("s", "t")),)}, "may hold its changes"),
    ):
        with pytest.raises(InvariantViolation, match=fault):
            check_plan(replace(PLAN, **changes), before=BEFORE)


def test_older_releases_are_merged_with_the_schemas_that_they_were_written_with():
    then, now = (TopicIds("bank.t", (1,), (2,)),), (TopicIds("bank.t", (1,), (2, 3)),)
    before, plan = replace(BEFORE, topics=then), replace(PLAN, topics=now)
    assert topics_of_merge(MergeMirror(0, 1), plan, before) == then
    assert topics_of_merge(MergeMirror(0, 3), plan, before) == now
    adopted = replace(before, adopts_through_us=5)
    assert topics_of_merge(MergeMirror(0, 1), plan, adopted) == now
