"""Which sinks a plan's changes are handed to before its first step, and when none."""

from dataclasses import replace

import pytest

from tidegate.spark_consumer.core.hand_over import HandOver, hand_over, require_handed
from tidegate.spark_consumer.core.plan import PLAN_FORMAT, FreshRows, Plan
from tidegate.spark_consumer.core.row_sums import RowSum
from tidegate.spark_consumer.errors import ChangesNotConserved

NONE = FreshRows(0, RowSum(0, 0))


def plan(**known):
    made = Plan(
        format=PLAN_FORMAT, code="1", prefix="bank", query_id="q", batch=3, end_offsets={},
        after_us=0, through_us=9, slowest=None, stream_has_ended=False, late_rows=0, releases=(),
        stored=(), compaction=None, topics=(), sinks=("changelog", "a", "b"), frontier="f",
        fresh=NONE,
    )  # fmt: skip
    return replace(made, **known)


@pytest.mark.parametrize(
    ("known", "rows"),
    [
        ({"fresh": FreshRows(2, RowSum(3, 0))}, 5),
        ({"late_rows": 4}, 4),
        ({"repeated_rows": 6}, 6),
        ({"fresh": FreshRows(1, RowSum(1, 0)), "late_rows": 1}, 3),
        ({"fresh": None}, None),
    ],
)
def test_all_changes_of_a_batch_are_handed_over_whether_they_wait_or_are_late(known, rows):
    assert hand_over(plan(**known), ["b", "a"]) == (HandOver(("a", "b"), rows),)


def test_nothing_is_handed_over_without_a_change_or_a_sink_that_takes_it():
    some = plan(late_rows=1)
    assert hand_over(plan(), ["a"]) == ()
    assert hand_over(some, []) == ()


def test_a_sink_that_the_plan_does_not_name_waits_for_the_next():
    some = plan(late_rows=1)
    assert hand_over(some, ["c"]) == ()
    assert hand_over(some, ["c", "a"]) == (HandOver(("a",), 1),)


def test_a_batch_must_hold_what_its_plan_counted():
    require_handed(5, HandOver(("a",), 5), batch=3)
    require_handed(5, HandOver(("a",), None), batch=3)
    with pytest.raises(ChangesNotConserved, match="batch=3, planned=5, found=4"):
        require_handed(4, HandOver(("a",), 5), batch=3)
