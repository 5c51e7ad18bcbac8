"""The sinks that a plan and a state name, and those that join."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.core_building import PLAN
from tidegate.spark_consumer.core.batch_state import (
    State,
)
from tidegate.spark_consumer.core.sink_set import (
    begins_after,
    first_release,
    joining_mirrors,
    require_plan_sinks,
    require_sinks,
    sinks_now,
)
from tidegate.spark_consumer.errors import CheckpointMismatch

BOTH = ("changelog", "mirror")


def state(sinks=BOTH, *, releases=3, **more):
    return State(prefix="bank", query_id="q", sinks=sinks, next_release=releases, **more)


def test_a_query_goes_on_with_its_sinks_and_others_beside_them():
    for wanted in (BOTH, ("mirror", "changelog"), (*BOTH, "topic", "history")):
        require_sinks(state(), wanted)
    with pytest.raises(CheckpointMismatch, match="lacks some") as caught:
        require_sinks(state(), ("changelog", "topic"))
    assert caught.value.fields["missing"] == ["mirror"]
    ended = state(stream_has_ended=True)
    require_sinks(ended, BOTH)
    with pytest.raises(CheckpointMismatch, match="has ended"):
        require_sinks(ended, (*BOTH, "topic"))


def test_a_mirror_joins_only_beside_a_changelog_that_has_everything():
    require_sinks(state(("changelog",)), BOTH)
    late = state(("topic", "changelog"), begins={"changelog": 2})
    for before, wanted in (
        (state(("topic",)), ("topic", "mirror")),
        (state(("topic",)), ("topic", *BOTH)),
        (late, ("topic", *BOTH)),
    ):
        with pytest.raises(CheckpointMismatch, match="every release"):
            require_sinks(before, wanted)
    assert joining_mirrors(state(), (*BOTH, "history", "topic")) == ("history",)
    assert joining_mirrors(state(), BOTH) == ()
    # Before the first release any sinks may come.
    nothing = state(("topic",), releases=0)
    require_sinks(nothing, ("topic", *BOTH))
    assert joining_mirrors(nothing, ("topic", *BOTH)) == ()
    # A mirror waits until an adopted output was read again.
    wanted = (*BOTH, "history", "topic")
    assert sinks_now(state(adopts_through_us=5), wanted) == (*BOTH, "topic")
    assert sinks_now(state(), wanted) == wanted


@pytest.mark.rule("sink-mirror-by-key")
@pytest.mark.parametrize("before", [state(BOTH, releases=0, batch=0), state(BOTH)])
def test_a_mirror_by_key_takes_part_from_the_first_batch_or_not_at_all(before):
    with pytest.raises(CheckpointMismatch, match="lack the changes of earlier batches") as caught:
        require_sinks(before, (*BOTH, "mirror_by_key"))
    assert "mirror, which takes every release so far" in caught.value.hint
    require_sinks(before, (*BOTH, "changelog_by_key", "parquet_by_key"))
    require_sinks(replace(before, sinks=(*BOTH, "mirror_by_key")), (*BOTH, "mirror_by_key"))
    require_sinks(State("bank", "q"), (*BOTH, "mirror_by_key"))


def test_a_stored_plan_needs_all_of_its_sinks_and_all_of_the_states():
    plan = replace(PLAN, sinks=(*BOTH, "topic"))
    require_plan_sinks(state(), plan, (*BOTH, "topic", "parquet"))
    for before, sinks in ((state(), BOTH), (state((*BOTH, "parquet")), (*plan.sinks, "parquet"))):
        with pytest.raises(CheckpointMismatch, match="names other sinks"):
            require_plan_sinks(before, plan, sinks)
    # One that was stored without the mirror by key is not executed with it.
    plan, first = replace(PLAN, sinks=BOTH), State("bank", "q")
    require_plan_sinks(first, plan, (*BOTH, "changelog_by_key"))
    with pytest.raises(CheckpointMismatch, match="lack the changes of earlier batches"):
        require_plan_sinks(first, plan, (*BOTH, "mirror_by_key"))


def test_a_state_says_from_which_release_on_a_sink_has_them():
    plan = replace(PLAN, sinks=(*BOTH, "history", "topic"))
    assert begins_after(state(), plan) == {"topic": 3}
    assert begins_after(state(begins={"parquet": 1}), plan) == {"parquet": 1, "topic": 3}
    assert begins_after(state(releases=0), plan) == {}


@pytest.mark.parametrize(
    ("before", "stored", "first"),
    [
        (None, None, 0),
        (state(releases=0), None, 0),
        (state(("topic",)), None, 0),
        (state(("topic",), begins={"topic": 2}), None, 2),
        (state(("topic",), begins={"topic": 2}), ("topic",), 2),
        (state(), None, None),
        (state(), (*BOTH, "topic"), None),
        (None, ("topic",), 0),
        (state((), releases=0), (*BOTH, "topic"), 0),
        *((one, BOTH, None) for one in (None, state((), releases=0), state(releases=0, batch=0))),
    ],
)
def test_a_sink_has_every_release_or_those_from_the_one_on_with_which_it_joined(
    before, stored, first
):
    plan = None if stored is None else replace(PLAN, sinks=stored)
    assert first_release("topic", before, plan) == first
