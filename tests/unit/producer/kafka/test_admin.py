"""Admin calls outlast a broker's restart, each try with a client that has not seen it go."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.kafka import admin as kafka_admin
from tidegate.schemas.errors import ConfigError, UnreachableError

GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
STALE = KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
UNSTABLE = KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))


def script(*answers):
    """Return a call that raises or returns these, one at a time."""
    left = list(answers)

    def ask(_client):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


@pytest.mark.parametrize(
    ("answers", "clients"),
    [([7], 1), ([GONE, 7], 2), ([GONE, STALE, 7], 3), ([UNSTABLE, UNSTABLE, 7], 1)],
    ids=["at once", "disconnected", "stale leader", "open transaction"],
)
def test_a_failed_call_is_retried_with_a_new_client(cluster, admin, answers, clients):
    assert admin.call(script(*answers), "cannot ask") == 7
    assert cluster.made == clients


def test_the_error_names_what_was_asked_for(admin, impatient):
    with pytest.raises(UnreachableError, match=r"cannot ask \(slot=3, cause='.*_TRANSPORT"):
        admin.call(script(GONE), "cannot ask", slot=3)


def test_a_missing_acl_is_reported_at_once(cluster, admin):
    denied = KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "not authorized"))
    with pytest.raises(ConfigError, match="cannot ask: Kafka denies access to consumer groups"):
        admin.call(script(denied), "cannot ask")
    assert cluster.made == 1


def test_a_shared_client_is_replaced_by_who_was_left_without_an_answer(monkeypatch):
    monkeypatch.setattr(kafka_admin, "AdminClient", lambda _config: object())
    shared = kafka_admin.SharedAdmin({})
    first = shared.client()
    assert shared.client() is first

    shared.replace(first)
    second = shared.client()
    assert second is not first
    shared.replace(first)  # another user's late finding about the former one
    assert shared.client() is second
