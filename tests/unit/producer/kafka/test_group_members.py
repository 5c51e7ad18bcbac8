"""The members of a group by the names of their workers."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.kafka.group_members import group_members
from tidegate.schemas.errors import ConfigError, UnreachableError


def member(name, member_id):
    return SimpleNamespace(group_instance_id=name, member_id=member_id)


def described(cluster, *answers):
    """Let the cluster describe the group, one answer after the other."""
    left = list(answers)

    def describe(groups, **_):
        promise = Future()
        answer = left.pop(0)
        if isinstance(answer, KafkaError):
            promise.set_exception(KafkaException(answer))
        else:
            promise.set_result(SimpleNamespace(members=answer))
        return {groups[0]: promise}

    cluster.describe_consumer_groups = describe


def test_workers_are_named_and_others_by_their_member_id(admin, cluster):
    described(cluster, [member("w2", "m1"), member("", "m3"), member("w1", "m2")], [])

    assert group_members(admin, "g") == ["m3", "w1", "w2"]
    assert group_members(admin, "g") == []


def test_a_coordinator_that_is_away_is_asked_again(admin, cluster):
    described(cluster, KafkaError(KafkaError.NOT_COORDINATOR), [member("w1", "m2")])

    assert group_members(admin, "g") == ["w1"]


@pytest.mark.usefixtures("impatient")
def test_a_group_that_cannot_be_described_is_named(admin, cluster):
    described(cluster, KafkaError(KafkaError.NOT_COORDINATOR))
    with pytest.raises(UnreachableError, match="group='g'"):
        group_members(admin, "g")

    described(cluster, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(ConfigError):
        group_members(admin, "g")
