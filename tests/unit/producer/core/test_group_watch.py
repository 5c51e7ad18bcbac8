"""Which worker rejoins the group because of unassigned slots, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.core.effects import RejoinGroup, ReplaceGroupClient
from tidegate.producer.core.events import GroupDescribed
from tidegate.producer.core.group_watch import GroupWatch, WatchLimits
from tidegate.schemas.errors import InvariantViolation

PATIENCE, PAUSE = 30, 60
LIMITS = WatchLimits(patience_us=PATIENCE, pause_us=PAUSE)
SLOTS = 4
WORKERS = ("a", "b", "c")


def described(is_stable=True, is_member=True, **slots):
    """Return a description, slots by member."""
    assignments = {name: frozenset(assigned) for name, assigned in slots.items()}
    return GroupDescribed(is_stable, is_member, assignments)


UNASSIGNED = described(a={0, 1}, b={2}, c=set())
REBALANCING = described(False, a={0, 1}, b={2}, c=set())
COMPLETE = described(a={0, 1}, b={2}, c={3})


def watch(worker="c"):
    """Return a worker's watch."""
    return GroupWatch(worker=worker, slots=SLOTS, limits=LIMITS)


def run(one, seen):
    """Handle (time, description) pairs; return when it acted."""
    return [at for at, group in seen if one.handle(group, now_us=at) is not None]


def test_it_names_the_unassigned_slots():
    one = watch()
    one.handle(UNASSIGNED, now_us=0)

    assert one.handle(UNASSIGNED, now_us=PATIENCE) == RejoinGroup((3,))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(0, UNASSIGNED), (PATIENCE, UNASSIGNED)], [PATIENCE]),
        ([(0, UNASSIGNED), (PATIENCE - 1, UNASSIGNED)], []),
        ([(PATIENCE, UNASSIGNED)], []),
        ([(0, COMPLETE), (PATIENCE, COMPLETE), (2 * PATIENCE, COMPLETE)], []),
        ([(0, UNASSIGNED), (1, COMPLETE), (PATIENCE, UNASSIGNED)], []),
        ([(0, UNASSIGNED), (1, REBALANCING), (PATIENCE, UNASSIGNED)], []),
        ([(0, UNASSIGNED), (10, described(a={0}, b={2}, c=())), (PATIENCE, UNASSIGNED)], []),
        ([(0, described(False, a={0})), (PATIENCE, described(False, a={0}))], []),
        ([(0, described(c=())), (PATIENCE, described(c=()))], [PATIENCE]),
        ([(0, described(a={0})), (10 * PATIENCE, described(a={0}))], []),
    ],
    ids=[
        "long enough", "too short", "one description", "all assigned", "assigned meanwhile",
        "rebalance meanwhile", "other assignment meanwhile", "rebalance all the time", "alone",
        "without this worker's name",
    ],
)  # fmt: skip
def test_when_the_first_in_turn_acts(seen, expected):
    assert run(watch(), seen) == expected


OUT = described(is_member=False, a={0, 1, 2, 3})


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(0, OUT), (PATIENCE, OUT)], [PATIENCE]),
        ([(0, OUT), (PATIENCE - 1, OUT)], []),
        ([(PATIENCE, OUT)], []),
        ([(0, OUT), (1, COMPLETE), (PATIENCE, OUT), (PATIENCE + 1, OUT)], []),
        ([(0, OUT), (PATIENCE, described(False, False)), (2 * PATIENCE, OUT)], [PATIENCE]),
        ([(0, OUT), (PATIENCE, OUT), (PATIENCE + 1, OUT), (2 * PATIENCE + 1, OUT)], [30, 61]),
        ([(0, described(True, False)), (PATIENCE, described(False, False))], [PATIENCE]),
        # A static member that took its predecessor's place is described with that one's client.
        ([(0, described(is_member=False, c=())), (PATIENCE, described(is_member=False, c=()))], []),
    ],
    ids=[
        "long enough", "too short", "one description", "a member meanwhile", "one after the other",
        "twice", "an empty group", "under another client's name",
    ],
)  # fmt: skip
def test_a_worker_that_is_not_in_its_group_gets_a_new_client(seen, expected):
    one = watch()
    done = [(at, one.handle(group, now_us=at)) for at, group in seen]

    assert [at for at, what in done if what == ReplaceGroupClient()] == expected
    assert not [what for _, what in done if isinstance(what, RejoinGroup)]


def test_it_pauses_before_it_acts_again():
    seen = [(at, UNASSIGNED) for at in range(0, 2 * PAUSE, 5)]

    assert run(watch(), seen) == [PATIENCE, PATIENCE + PAUSE]


@pytest.mark.parametrize(("worker", "turn"), [("c", 0), ("b", 1), ("a", 2)])
def test_the_member_with_fewest_slots_acts_first_and_the_next_after_a_pause(worker, turn):
    seen = [(at, UNASSIGNED) for at in range(0, 4 * PAUSE, 5)]

    assert run(watch(worker), seen)[0] == PATIENCE + turn * PAUSE


def test_the_smaller_name_goes_first_among_equals():
    equal = described(a={0}, b={1}, c={2})
    seen = [(0, equal), (PATIENCE, equal)]

    assert [name for name in WORKERS if run(watch(name), seen)] == ["a"]


def test_waiting_without_unassigned_slots_breaks_the_invariant():
    one = watch()
    one._last = COMPLETE

    with pytest.raises(InvariantViolation):
        one.check_invariants()


descriptions = st.builds(
    GroupDescribed,
    is_stable=st.booleans(),
    is_member=st.booleans(),
    assignments=st.dictionaries(
        st.sampled_from(WORKERS), st.frozensets(st.integers(0, SLOTS - 1)), max_size=3
    ),
)
# Few different ones, so that the same is often seen again.
stories = st.lists(descriptions, min_size=1, max_size=3).flatmap(
    lambda few: st.lists(st.tuples(st.integers(0, PAUSE), st.sampled_from(few)), max_size=30)
)


@given(stories)
def test_it_acts_only_after_the_same_description_for_long_enough(story):
    watches = {name: watch(name) for name in WORKERS}
    now, since, last, acted = 0, 0, None, {}
    for step, group in story:
        now += step
        if group != last:
            last, since = group, now
        for name, one in watches.items():
            decision = one.handle(group, now_us=now)
            one.check_invariants()
            if not isinstance(decision, RejoinGroup):
                assert decision is None or not group.is_member
                continue
            held = frozenset().union(*group.assignments.values())
            assert group.is_stable
            assert group.is_member
            assert name in group.assignments
            assert set(decision.unassigned) == set(range(SLOTS)) - held
            assert decision.unassigned
            assert now - since >= PATIENCE
            assert name not in acted or now - acted[name] >= PAUSE
            acted[name] = now


@given(descriptions, st.integers(1, PATIENCE))
def test_one_member_acts_if_nothing_changes(group, every):
    watches = [watch(name) for name in WORKERS]
    held = frozenset().union(*group.assignments.values())
    seen = [(at, group) for at in range(0, PATIENCE + 2 * every, every)]

    has_acted = any(run(one, seen) for one in watches)
    assert has_acted == (
        bool(group.assignments) and group.is_stable and len(held) < SLOTS
        if group.is_member
        else any(name not in group.assignments for name in WORKERS)
    )
