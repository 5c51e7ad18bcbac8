"""A member's client: what it tells its application, and when it joins again."""

from __future__ import annotations

from tidegate.producer.memory.group import Group
from tidegate.producer.memory.group_client import ClientState, GroupClient


def settled(group, client):
    """Let a client work and its application agree until nothing happens any more."""
    for _ in range(12):
        client.work()
        group.complete()
        while client.callbacks:
            client.done(client.callbacks[0])
    return client


def test_it_joins_and_gets_its_slots():
    group = Group(3)
    client = settled(group, GroupClient(group, "a"))

    assert client.owned == {0, 1, 2}
    assert client.is_settled
    assert client.metadata().generation == group.generation


def test_a_member_that_was_removed_is_notified_of_the_loss_and_joins_again():
    group = Group(2)
    client = settled(group, GroupClient(group, "a"))
    group.expire("a")
    client.work()
    assert client.callbacks[0] == ("lost", {0, 1})
    assert client.metadata().generation == -1

    settled(group, client)
    assert client.owned == {0, 1}


def test_a_callback_that_a_loss_replaced_changes_nothing():
    group = Group(2)
    client = settled(group, GroupClient(group, "a"))
    client.rejoin()
    revoked = client.callbacks[0]
    group.expire("a")
    client.work()
    client.done(revoked)

    assert client.callbacks[0] == ("lost", {0, 1})


def test_it_leaves_only_when_its_slots_are_released():
    group = Group(2)
    client = settled(group, GroupClient(group, "a"))
    client.rejoin()
    client.work()
    assert "a" in group.members

    client.done(client.callbacks[0])
    client.work()
    assert "a" not in group.members
    assert client.state is ClientState.OUT


def test_the_former_process_of_a_name_is_locked_out():
    group = Group(2)
    former = settled(group, GroupClient(group, "a"))
    heir = settled(group, GroupClient(group, "a"))
    former.work()

    assert former.state is ClientState.LOCKED_OUT
    former.leave()
    assert former.state is ClientState.LOCKED_OUT, "it has no place to give up"
    assert former.has_left
    assert not heir.has_left
    assert heir.owned == {0, 1}
