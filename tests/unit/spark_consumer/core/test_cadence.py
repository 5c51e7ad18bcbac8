"""When the mirror takes the releases that it lacks, and the plans and states that say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.core_building import PLAN, as_json
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.batch_state import (
    State,
)
from tidegate.spark_consumer.core.cadence import Cadence, merges_due
from tidegate.spark_consumer.core.plan import (
    MergeMirror,
    Plan,
    WriteRelease,
)


def due(stands_at, newest, releases=(), **changes):
    facts = {
        "has_new_schemas": False, "is_every_release_due": False, "is_due": False, "is_end": False,
    }  # fmt: skip
    return merges_due(stands_at=stands_at, newest=newest, releases=releases, **(facts | changes))


@pytest.mark.parametrize(
    ("stands_at", "facts", "merges"),
    [
        # A mirror that is behind takes all at once up to a change of schemas.
        (4, {}, ()),
        (4, {"is_due": True}, (8,)),
        (4, {"is_end": True}, (8,)),
        (4, {"has_new_schemas": True}, (6,)),
        (4, {"has_new_schemas": True, "is_due": True}, (6,)),
        (4, {"has_new_schemas": True, "is_end": True}, (6, 8)),
        (4, {"is_every_release_due": True}, (6, 7, 8)),
        # One that has all before takes the batch's releases.
        (6, {}, ()),
        (6, {"is_due": True}, (8,)),
        (6, {"has_new_schemas": True}, ()),
        (6, {"has_new_schemas": True, "is_due": True}, (8,)),
        (6, {"is_every_release_due": True}, (7, 8)),
        # One that joins does so at the newest release before the batch.
        *(
            (stands_at, {"is_joining": True, **facts}, merges)
            for stands_at in (4, 6)
            for facts, merges in (
                ({}, (6,)),
                ({"is_due": True}, (6,)),
                ({"has_new_schemas": True}, (6,)),
                ({"is_end": True}, (6, 8)),
                ({"is_every_release_due": True}, (6, 7, 8)),
            )
        ),
    ],
    ids=str,
)
def test_a_mirror_takes_the_releases_that_are_due(stands_at, facts, merges):
    assert due(stands_at, 6, (7, 8), **facts) == merges


def test_without_a_release_a_mirror_catches_up_and_the_first_one_is_merged_by_itself():
    for facts in ({"is_due": True}, {"is_end": True}):
        assert due(4, 6, **facts) == (6,)
        assert due(6, 6, **facts) == ()
    assert due(6, 6, is_joining=True) == (6,)
    assert due(-1, -1, (0, 1), is_due=True) == due(-1, -1, (0,), is_end=True) == (0,)
    assert due(-1, -1, (0, 1), is_end=True) == (0, 1)
    assert due(-1, -1) == ()


def test_it_is_due_after_its_time_and_when_the_clock_was_set_back():
    cadence = Cadence(every_us=10)
    for at_us, now_us, is_due in (
        (None, 5, True),
        (100, 109, False),
        (100, 110, True),
        (100, 99, True),
    ):
        assert cadence.is_due(merged_at_us=at_us, now_us=now_us) is is_due
    assert not cadence.is_at_end(10**18)  # a run without a goal has no end
    assert [Cadence(10, goal_us=7).is_at_end(us) for us in (6, 7)] == [False, True]


FIRST, SECOND = PLAN.releases

OTHERS, ALL = ("changelog",), ("changelog", "mirror")
APART = [WriteRelease(FIRST, OTHERS, 1), WriteRelease(SECOND, OTHERS, 1)]
TOGETHER = [WriteRelease(FIRST, ALL), WriteRelease(SECOND, ALL)]


@pytest.mark.parametrize(
    ("mirror_at", "merges", "joining", "steps"),
    [
        (1, (2, 3), (), TOGETHER),
        (1, (), (), APART),
        (1, (2,), (), [TOGETHER[0], WriteRelease(SECOND, OTHERS, 2)]),
        (1, (3,), (), [*APART, MergeMirror(1, 3)]),
        (
            0,
            (2,),
            (),
            [WriteRelease(FIRST, OTHERS, 0), MergeMirror(0, 2), WriteRelease(SECOND, OTHERS, 2)],
        ),
        (0, (1,), (), [MergeMirror(0, 1), *APART]),
        (0, (1, 2, 3), (), [MergeMirror(0, 1), *TOGETHER]),
        # A mirror joins with the first of the merges.
        (1, (1, 3), ("mirror",), [MergeMirror(1, 1, ("mirror",)), *APART, MergeMirror(1, 3)]),
    ],
)
def test_a_release_is_merged_as_it_is_written_where_the_mirror_has_all_before(
    mirror_at, merges, joining, steps
):
    plan = replace(PLAN, mirror_at=mirror_at, merges=merges, joining=joining, decided_at_us=5)
    plan.check_invariants()
    found = [step for step in plan.steps if isinstance(step, WriteRelease | MergeMirror)]
    assert found == steps
    assert Plan.restore(as_json(plan.snapshot())) == plan


def test_merges_that_do_not_ascend_are_a_contradiction():
    for changes in (
        {"mirror_at": 2, "merges": (2,)},
        {"mirror_at": 1, "merges": (3, 2)},
        {"mirror_at": None, "merges": (2,)},
        {"joining": ("mirror",)},  # no mirror joins without a merge
    ):
        with pytest.raises(InvariantViolation, match="out of order"):
            replace(PLAN, **changes).check_invariants()
    plan = replace(PLAN, releases=(), mirror_at=0, merges=(1,), through_us=PLAN.after_us)
    assert MergeMirror(0, 1) in plan.steps  # a batch without releases merges what is left


def test_plans_and_states_of_an_older_program_have_every_release_in_the_mirror():
    stored = PLAN.snapshot() | {"format": 4}
    for name in ("mirror_at", "merges", "decided_at_us", "joining"):
        del stored[name]
    assert Plan.restore(as_json(stored)).steps == PLAN.steps
    assert PLAN.merged == (2, 3)
    stored = State(prefix="bank", query_id="q", next_release=7).snapshot() | {"format": 3}
    for name in ("mirror_release", "mirror_merged_at_us"):
        del stored[name]
    assert State.restore(stored).mirrored == 6
