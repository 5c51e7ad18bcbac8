"""Who begins a round for slots that belong to nobody, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.core.group_watch import GroupSeen, GroupWatch, RejoinGroup, WatchLimits
from tidegate.schemas.errors import InvariantViolation

PATIENCE, PAUSE = 30, 60
LIMITS = WatchLimits(patience_us=PATIENCE, pause_us=PAUSE)
SLOTS = 4
WORKERS = ("a", "b", "c")


def seen(is_stable=True, **slots):
    """Return a description, slots by member."""
    return GroupSeen(is_stable, {name: frozenset(given) for name, given in slots.items()})


ORPHANED = seen(a={0, 1}, b={2}, c=set())
WHOLE = seen(a={0, 1}, b={2}, c={3})


def watch(worker="c"):
    """Return a worker's watch."""
    return GroupWatch(worker=worker, slots=SLOTS, limits=LIMITS)


def run(one, looks):
    """Give looks, (time, description) each; return when it acted."""
    return [at for at, look in looks if one.handle(look, now_us=at) is not None]


def test_it_names_what_belongs_to_nobody():
    one = watch()
    one.handle(ORPHANED, now_us=0)

    assert one.handle(ORPHANED, now_us=PATIENCE) == RejoinGroup((3,))


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0, ORPHANED), (PATIENCE, ORPHANED)], [PATIENCE]),
        ([(0, ORPHANED), (PATIENCE - 1, ORPHANED)], []),
        ([(PATIENCE, ORPHANED)], []),
        ([(0, WHOLE), (PATIENCE, WHOLE), (2 * PATIENCE, WHOLE)], []),
        ([(0, ORPHANED), (1, WHOLE), (PATIENCE, ORPHANED)], []),
        ([(0, ORPHANED), (1, seen(False, a={0, 1}, b={2}, c=())), (PATIENCE, ORPHANED)], []),
        ([(0, ORPHANED), (10, seen(a={0}, b={2}, c=())), (PATIENCE, ORPHANED)], []),
        ([(0, seen(False, a={0})), (PATIENCE, seen(False, a={0}))], []),
        ([(0, seen(c=())), (PATIENCE, seen(c=()))], [PATIENCE]),
        ([(0, seen(a={0})), (10 * PATIENCE, seen(a={0}))], []),
        ([(0, seen()), (10 * PATIENCE, seen())], []),
    ],
    ids=[
        "long enough", "too short", "one look", "all have owners", "had owners meanwhile",
        "a round meanwhile", "another group meanwhile", "a round all the while", "alone",
        "not a member", "nobody there",
    ],
)  # fmt: skip
def test_when_the_first_in_turn_acts(looks, expected):
    assert run(watch(), looks) == expected


def test_it_pauses_before_it_acts_again():
    looks = [(at, ORPHANED) for at in range(0, 2 * PAUSE, 5)]

    assert run(watch(), looks) == [PATIENCE, PATIENCE + PAUSE]


@pytest.mark.parametrize(("worker", "turn"), [("c", 0), ("b", 1), ("a", 2)])
def test_who_has_least_begins_and_the_next_follows_after_a_pause(worker, turn):
    looks = [(at, ORPHANED) for at in range(0, 4 * PAUSE, 5)]

    assert run(watch(worker), looks)[0] == PATIENCE + turn * PAUSE


def test_the_smaller_name_goes_first_among_equals():
    equal = seen(a={0}, b={1}, c={2})
    looks = [(0, equal), (PATIENCE, equal)]

    assert [name for name in WORKERS if run(watch(name), looks)] == ["a"]


def test_a_watch_that_waits_for_nothing_breaks_the_invariant():
    one = watch()
    one._seen = WHOLE

    with pytest.raises(InvariantViolation):
        one.check_invariants()


descriptions = st.builds(
    GroupSeen,
    is_stable=st.booleans(),
    slots=st.dictionaries(
        st.sampled_from(WORKERS), st.frozensets(st.integers(0, SLOTS - 1)), max_size=3
    ),
)
# Few different ones, so that the same is often seen again.
stories = st.lists(descriptions, min_size=1, max_size=3).flatmap(
    lambda few: st.lists(st.tuples(st.integers(0, PAUSE), st.sampled_from(few)), max_size=30)
)


@given(stories)
def test_only_after_the_same_was_seen_for_long_enough(story):
    watches = {name: watch(name) for name in WORKERS}
    now, since, last, acted = 0, 0, None, {}
    for step, look in story:
        now += step
        if look != last:
            last, since = look, now
        for name, one in watches.items():
            decision = one.handle(look, now_us=now)
            one.check_invariants()
            if decision is None:
                continue
            held = frozenset().union(*look.slots.values())
            assert look.is_stable
            assert name in look.slots
            assert set(decision.orphans) == set(range(SLOTS)) - held
            assert decision.orphans
            assert now - since >= PATIENCE
            assert name not in acted or now - acted[name] >= PAUSE
            acted[name] = now


@given(descriptions, st.integers(1, PATIENCE))
def test_somebody_acts_if_nothing_changes(look, every):
    watches = [watch(name) for name in WORKERS]
    held = frozenset().union(*look.slots.values())
    looks = [(at, look) for at in range(0, PATIENCE + 2 * every, every)]

    has_acted = any(run(one, looks) for one in watches)
    assert has_acted == (look.is_stable and bool(look.slots) and len(held) < SLOTS)
