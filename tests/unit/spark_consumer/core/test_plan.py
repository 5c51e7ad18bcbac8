"""Plans: the order of the effects, and storing without loss."""

import json

import pytest

from tidegate.spark_consumer.core.batch_state import Segment, TopicIds
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    Compaction,
    CompactSegments,
    Plan,
    ReleaseBounds,
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.errors import CheckpointMismatch

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
    releases=(ReleaseBounds(2, 10, 15, ("s",)), ReleaseBounds(3, 15, 20, ())),
    stored=(SEGMENT,),
    compaction=Compaction(("s", "t"), JOINED),
    topics=(TopicIds("bank.a", (1,), (2,)),),
    frontier="000000000004",
    sinks=("changelog", "mirror"),
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


def test_a_plan_of_another_format_is_refused_by_its_number():
    stored = PLAN.snapshot() | {"format": PLAN_FORMAT - 1}
    del stored["sinks"]
    with pytest.raises(CheckpointMismatch, match=f"found={PLAN_FORMAT - 1}"):
        Plan.restore(stored)
