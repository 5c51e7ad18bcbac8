"""Plans: the order of the effects, and storing without loss."""

import json
from dataclasses import replace

import pytest

from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.batch_state import Segment, TopicIds
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    Compaction,
    CompactSegments,
    FreshRows,
    Plan,
    ReleaseBounds,
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.row_sums import RowSum
from tidegate.spark_consumer.errors import CheckpointMismatch, NewerCheckpoint

SEGMENT = Segment("000000000004-000", 21, 30, 6, (25, 30))
JOINED = Segment("000000000004-joined", 15, 40, 9, (40,))
PLAN = Plan(
    format=PLAN_FORMAT,
    code="0.1.0",
    prefix="bank",
    query_id="q",
    batch=4,
    end_offsets={"bank-progress": {0: 9, 15: 3}},
    after_us=10,
    through_us=20,
    slowest="token",
    stream_has_ended=False,
    late_rows=1,
    releases=(ReleaseBounds(2, 10, 15, ("s",), cuts_us=(12,)), ReleaseBounds(3, 15, 20, ())),
    stored=(SEGMENT,),
    compaction=Compaction(("s", "t"), JOINED),
    topics=(TopicIds("bank.a", (1,), (2,)),),
    frontier="000000000004/1",
    dropped_frontiers=("frontiers/000000000003",),
    sinks=("changelog", "mirror"),
    fresh=FreshRows(3, RowSum(6, 2**63 + 1)),
)


def test_late_rows_first_then_releases_by_number_then_what_waits():
    assert PLAN.steps == (
        SetLateAside(10, 1),
        WriteRelease(PLAN.releases[0], ("changelog", "mirror")),
        WriteRelease(PLAN.releases[1], ("changelog", "mirror")),
        StoreSegment(SEGMENT),
        CompactSegments(PLAN.compaction, 20),
    )


def test_storing_loses_nothing():
    assert Plan.restore(json.loads(json.dumps(PLAN.snapshot()))) == PLAN


@pytest.mark.parametrize("found", [2, 3])
def test_a_plan_of_an_older_program_is_executed_without_its_cuts_and_counts(found):
    stored = PLAN.snapshot() | {"format": found}
    del stored["dropped_frontiers"]
    for bounds in stored["releases"]:
        del bounds["cuts_us"]
    fresh = PLAN.fresh
    if found == 2:
        fresh = None
        del stored["fresh"]
        for segment in (*stored["stored"], stored["compaction"]["output"]):
            del segment["parts"]
    releases = tuple(replace(bounds, cuts_us=()) for bounds in PLAN.releases)
    before = ("frontiers/000000000003.json",)
    expected = replace(PLAN, fresh=fresh, releases=releases, dropped_frontiers=before)
    assert Plan.restore(json.loads(json.dumps(stored))) == expected
    first = Plan.restore(json.loads(json.dumps(stored | {"batch": 0})))
    assert first.dropped_frontiers == ()


def test_a_plan_of_format_6_knows_no_gaps():
    plan = replace(PLAN, gaps=(PartitionGap("t", 12, 14, "ops", 3),))
    stored = json.loads(json.dumps(plan.snapshot()))
    assert Plan.restore(stored) == plan
    del stored["gaps"]
    assert Plan.restore(stored | {"format": 6}) == PLAN


def test_a_plan_of_a_newer_program_names_the_version_to_install():
    stored = PLAN.snapshot() | {"format": PLAN_FORMAT + 1, "code": "9.1.0"}
    del stored["sinks"]
    with pytest.raises(NewerCheckpoint, match=r"Install Tidegate 9\.1\.0") as caught:
        Plan.restore(stored)
    assert caught.value.fields == {"batch": 4, "found": PLAN_FORMAT + 1, "known": PLAN_FORMAT}


def test_a_plan_that_is_too_old_is_refused_by_its_number():
    stored = PLAN.snapshot() | {"format": 1}
    del stored["sinks"]
    with pytest.raises(CheckpointMismatch, match="found=1"):
        Plan.restore(stored)


def test_a_plan_of_an_older_program_has_no_small_release():
    data = json.loads(json.dumps(PLAN.snapshot()))
    for bounds in data["releases"]:
        del bounds["is_small"]
    for segment in data["stored"]:
        del segment["size_bytes"]
    restored = Plan.restore(data)
    assert [bounds.is_small for bounds in restored.releases] == [False, False]
    assert [segment.size_bytes for segment in restored.stored] == [None]


def test_a_replay_takes_the_way_that_the_plan_names():
    small = replace(PLAN, releases=(replace(PLAN.releases[0], is_small=True), PLAN.releases[1]))
    restored = Plan.restore(json.loads(json.dumps(small.snapshot())))
    assert [bounds.is_small for bounds in restored.releases] == [True, False]


@pytest.mark.parametrize("cuts_us", [(10,), (15,), (16,), (13, 12), (12, 12)])
def test_cuts_that_do_not_ascend_inside_of_the_bounds_are_a_contradiction(cuts_us):
    first, second = PLAN.releases
    broken = replace(PLAN, releases=(replace(first, cuts_us=cuts_us), second))
    PLAN.check_invariants()
    with pytest.raises(InvariantViolation, match="cuts are out of order"):
        broken.check_invariants()
