"""A plan that does not continue where the state before it ended is refused, by its fault."""

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.test_plan import PLAN
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.batch_state import Segment, State, TopicIds
from tidegate.spark_consumer.core.plan import MergeMirror
from tidegate.spark_consumer.core.plan_check import (
    check_plan,
    require_same_batch,
    require_state,
    topics_of_merge,
)
from tidegate.spark_consumer.errors import CheckpointMismatch

BEFORE = State(
    prefix="bank",
    query_id="q",
    batch=3,
    watermark_us=10,
    next_release=2,
    segments=(Segment("s", 11, 14, 2, (14,)), Segment("t", 30, 40, 2, (40,))),
)


def test_a_plan_that_continues_is_accepted():
    check_plan(PLAN, before=BEFORE)
    check_plan(replace(PLAN, mirror_at=0, merges=(3,)), before=replace(BEFORE, mirror_release=0))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"batch": 5}, "does not continue where the batch"),
        ({"after_us": 9}, "does not continue where the batch"),
        ({"releases": PLAN.releases[1:]}, "release numbers have a gap"),
        ({"mirror_at": 0}, "where the mirror stands"),
        ({"merges": (4,)}, "where the mirror stands"),
        ({"releases": ()}, "no release is planned"),
        ({"releases": (replace(PLAN.releases[0], segments=()),)}, "may hold its changes"),
        ({"releases": (replace(PLAN.releases[0], segments=("s", "t")),)}, "may hold its changes"),
    ],
    ids=str,
)
def test_any_other_is_refused(changes, fault):
    with pytest.raises(InvariantViolation, match=fault):
        check_plan(replace(PLAN, **changes), before=BEFORE)


def test_a_plan_of_another_batch_is_not_obeyed():
    state = replace(BEFORE, sinks=PLAN.sinks)
    same = {"end_offsets": PLAN.end_offsets, "sinks": PLAN.sinks}
    require_same_batch(state, PLAN, **same)
    with pytest.raises(CheckpointMismatch, match="end_offsets"):
        require_same_batch(state, PLAN, **(same | {"end_offsets": {}}))
    with pytest.raises(CheckpointMismatch, match="query_id"):
        require_same_batch(replace(state, query_id="x"), PLAN, **same)
    with pytest.raises(CheckpointMismatch, match="names other sinks"):
        require_same_batch(state, PLAN, **(same | {"sinks": ("changelog",)}))


def test_a_state_belongs_to_its_batch_and_query():
    assert require_state(BEFORE, 3, like=BEFORE, sinks=()) is BEFORE
    with pytest.raises(CheckpointMismatch, match="has no state of"):
        require_state(None, 3, like=BEFORE, sinks=())
    for other in (replace(BEFORE, batch=2), replace(BEFORE, query_id="x")):
        with pytest.raises(CheckpointMismatch, match="does not belong"):
            require_state(other, 3, like=BEFORE, sinks=())


def test_older_releases_are_merged_with_the_schemas_that_they_were_written_with():
    then, now = (TopicIds("bank.t", (1,), (2,)),), (TopicIds("bank.t", (1,), (2, 3)),)
    before, plan = replace(BEFORE, topics=then), replace(PLAN, topics=now)
    assert topics_of_merge(MergeMirror(0, 1), plan, before) == then
    assert topics_of_merge(MergeMirror(0, 3), plan, before) == now
    adopted = replace(before, adopts_through_us=5)
    assert topics_of_merge(MergeMirror(0, 1), plan, adopted) == now
