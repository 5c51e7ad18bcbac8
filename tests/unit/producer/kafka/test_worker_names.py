"""A process claims its name, and finds out whether another one has claimed it since."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.kafka.worker_names import NameClaim
from tidegate.schemas.errors import UnreachableError

GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
LOADING = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.fixture
def name(open_committed):
    return NameClaim(open_committed("g-w"), topic="t", process="w-1")


def test_a_claim_is_written_into_a_group_of_its_own(cluster, name):
    cluster.answers.append("")
    name.claim()

    ((group, place, _),) = cluster.requests
    assert group == "g-w"
    assert (place.topic, place.partition, place.metadata) == ("t", 0, "w-1")


def test_a_claim_is_retried_until_it_is_written(cluster, name):
    cluster.answers += [GONE, LOADING, ""]
    name.claim()

    assert len(cluster.requests) == 3


def test_a_claim_that_cannot_be_written_is_an_error(cluster, name, impatient):
    cluster.answers.append(LOADING)

    with pytest.raises(UnreachableError, match=r"cannot claim the worker's name.*g-w"):
        name.claim()


@pytest.mark.parametrize(
    ("owner", "expected"), [("w-1", False), ("w-2", True), ("", False), (None, False)]
)
def test_the_last_claim_tells_a_successor(cluster, name, owner, expected):
    cluster.answers.append(owner)

    assert name.has_successor() == expected
    assert cluster.requests[0][0] == "g-w"


def test_a_claim_that_cannot_be_read_is_an_error(cluster, name, impatient):
    cluster.answers.append(GONE)

    with pytest.raises(UnreachableError, match="cannot look up the worker's name"):
        name.has_successor()
