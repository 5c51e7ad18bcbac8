"""The members of a group by the names of their workers."""

from types import SimpleNamespace
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError

from tidegate.producer.kafka.group_members import group_members
from tidegate.schemas.errors import ConfigError, UnreachableError


def member(member_id):
    return SimpleNamespace(id=member_id)


def described(cluster, *answers):
    """Let the cluster describe the group, one answer after the other."""
    left = list(answers)

    def list_groups(_group, _timeout):
        answer = left.pop(0)
        if answer is None:
            return []
        if isinstance(answer, KafkaError):
            return [SimpleNamespace(members=[], error=answer)]
        return [SimpleNamespace(members=answer, error=None)]

    cluster.list_groups = list_groups


def test_workers_are_named_and_others_by_their_client_id(admin, cluster):
    answer = [member(f"{name}-{uuid4()}") for name in ("w2", "rdkafka", "w-1")]
    described(cluster, answer, [], None)

    assert group_members(admin, "g") == ["rdkafka", "w-1", "w2"]
    assert group_members(admin, "g") == []
    assert group_members(admin, "g") == []


def test_a_coordinator_that_is_away_is_asked_again(admin, cluster):
    described(cluster, KafkaError(KafkaError.NOT_COORDINATOR), [member(f"w1-{uuid4()}")])

    assert group_members(admin, "g") == ["w1"]


@pytest.mark.usefixtures("impatient")
def test_a_group_that_cannot_be_described_is_named(admin, cluster):
    described(cluster, KafkaError(KafkaError.NOT_COORDINATOR))
    with pytest.raises(UnreachableError, match="group='g'"):
        group_members(admin, "g")

    described(cluster, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(ConfigError):
        group_members(admin, "g")
