"""Both offsets of a recovery respect open transactions."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException

from tidegate.producer.kafka.recovery import SlotRecovery
from tidegate.schemas.errors import UnreachableError

GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
UNSTABLE = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)


@pytest.fixture
def recovery(admin, open_committed):
    return SlotRecovery(admin, open_committed("g"), topic="t")


@pytest.mark.parametrize(("committed", "expected"), [(7, 7), (0, 0), (-1001, None)])
def test_the_fence_offset_is_what_the_group_committed(cluster, recovery, committed, expected):
    cluster.answers.append(committed)

    assert recovery.fence_offset(3) == expected
    ((group, place, config),) = cluster.requests
    assert (group, place.topic, place.partition) == ("g", "t", 3)
    assert config["isolation.level"] == "read_committed", "an open transaction may move the offset"


def test_the_fence_offset_waits_for_open_transactions(cluster, recovery):
    cluster.answers += [UNSTABLE, UNSTABLE, 9]

    assert recovery.fence_offset(3) == 9
    assert cluster.made == 1, "the client is as good as before"


def test_the_end_includes_open_transactions(cluster, recovery):
    cluster.answers += [GONE, 42]

    assert recovery.uncommitted_end(3) == 42
    places, options = cluster.requests[-1]
    assert [(place.topic, place.partition) for place in places] == [("t", 3)]
    assert options["isolation_level"] is IsolationLevel.READ_UNCOMMITTED


def test_an_answer_without_an_end_is_asked_for_again(cluster, recovery):
    """librdkafka gives one, without an error, while a broker that was killed starts again."""
    cluster.answers += [OFFSET_INVALID, 42]

    assert recovery.uncommitted_end(3) == 42


@pytest.mark.parametrize("call", ["fence_offset", "uncommitted_end"])
def test_a_broker_that_does_not_answer_is_an_error(cluster, recovery, impatient, call):
    cluster.answers.append(GONE)

    with pytest.raises(UnreachableError, match="slot=3"):
        getattr(recovery, call)(3)
