"""A plan that does not continue where the state before it ended is refused, by its fault."""

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.test_plan import PLAN
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.batch_state import Segment, State
from tidegate.spark_consumer.core.plan_check import check_plan

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
