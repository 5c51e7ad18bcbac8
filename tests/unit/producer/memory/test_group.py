"""The coordinator: balance, generations, names; the rest is in the contract with a real broker."""

from __future__ import annotations

from random import Random

import pytest

from tidegate.producer.memory.group import Group, GroupRefusal, MemberMetadata

NOTHING = frozenset()


def joined(group, *names):
    """Let members join without slots and complete the rebalance; return their ids."""
    ids = {name: group.join(name, "", NOTHING) for name in names}
    assert group.complete()
    return ids


@pytest.mark.parametrize("random", [None, Random(7)])
def test_slots_are_shared_evenly(random):
    group = Group(5, random=random)
    joined(group, "a", "b")

    assert sorted(len(slots) for slots in group.assignment().values()) == [2, 3]
    assert group.unassigned == NOTHING


def test_without_chance_slots_stay_with_their_owner():
    group = Group(4)
    ids = joined(group, "a")
    owned = group.assignment()["a"]
    group.join("b", "", NOTHING)
    group.join("a", ids["a"], owned)
    group.complete()

    assert group.assignment() == {"a": frozenset({0, 1}), "b": NOTHING}
    assert group.unassigned == {2, 3}, "revoked in this rebalance, assigned in the next"


def test_a_rebalance_waits_for_every_member():
    group = Group(2)
    joined(group, "a")
    group.join("b", "", NOTHING)

    assert not group.complete()
    assert group.unassigned == NOTHING


def test_metadata_of_another_generation_or_process_is_refused():
    group = Group(2)
    ids = joined(group, "a")

    assert group.check(MemberMetadata("a", ids["a"], group.generation))
    assert not group.check(MemberMetadata("", "", -1))
    for wrong in (
        MemberMetadata("a", ids["a"], group.generation - 1),
        MemberMetadata("a", "another", group.generation),
        MemberMetadata("b", "", -1),
    ):
        with pytest.raises(GroupRefusal):
            group.check(wrong)


def test_metadata_travel_as_bytes():
    metadata = MemberMetadata("worker", "worker-3", 17)

    assert MemberMetadata.decode(metadata.encode()) == metadata


def test_an_expired_member_holds_nothing():
    group = Group(2)
    ids = joined(group, "a")
    metadata = MemberMetadata("a", ids["a"], group.generation)
    assert group.held_by(metadata) == {0, 1}
    assert group.expire("a")
    assert not group.expire("a")

    assert group.held_by(metadata) == NOTHING
