"""What librdkafka reports, as an error with the fix that fits."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tidegate.program.kafka_errors import is_decisive, is_denied, is_unsupported, kafka_failure
from tidegate.schemas.errors import ConfigError, UnreachableError

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)

DECISIVE = [
    (KafkaError._SSL, "handshake failed", "TLS to Kafka failed: handshake", "ssl options"),
    (
        KafkaError._TRANSPORT,
        "Disconnected: might be caused by incorrect security.protocol configuration",
        "TLS to Kafka failed",
        "security.protocol",
    ),
    (
        KafkaError._TRANSPORT,
        "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
        "TLS to Kafka failed",
        "security.protocol",
    ),
    (KafkaError._AUTHENTICATION, "bad", "rejected the login: bad", "sasl.password"),
    (KafkaError.SASL_AUTHENTICATION_FAILED, "bad", "rejected the login", "sasl.username"),
    (KafkaError.UNSUPPORTED_SASL_MECHANISM, "bad", "rejected the login", "sasl.mechanism"),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, "no", "denies access to topics", "ACLs"),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, "no", "denies access to consumer groups", "ACLs"),
    (
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "no",
        "denies access to transactional ids",
        "ACLs",
    ),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no", "denies access to the cluster", "ACLs"),
    (KafkaError._RESOLVE, "unknown name", "cannot be resolved: unknown name", "DNS"),
]


@pytest.mark.parametrize(("code", "text", "error_text", "fix"), DECISIVE)
def test_a_decisive_error_names_cause_and_fix(code, text, error_text, fix):
    error = KafkaError(code, text)
    failure = kafka_failure(error, attempt="cannot do it", bootstrap_servers="b:1")
    assert is_decisive(error)
    # A name that cannot be resolved may be resolved later.
    assert failure.exit_code == (75 if code == KafkaError._RESOLVE else 2)
    assert str(failure).startswith("cannot do it: ")
    assert error_text in str(failure)
    assert fix in failure.hint
    assert "b:1" in str(failure)


@pytest.mark.parametrize(("code", "text", "error_text", "_fix"), DECISIVE)
def test_what_was_reported_explains_a_call_that_timed_out(code, text, error_text, _fix):
    reported = [KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(code, text)]
    assert error_text in str(kafka_failure(TIMED_OUT, reported=reported))


def test_logins_and_acls_are_settings_and_names_are_the_network():
    assert isinstance(kafka_failure(KafkaError(KafkaError._AUTHENTICATION)), ConfigError)
    assert isinstance(kafka_failure(KafkaError(KafkaError._RESOLVE)), UnreachableError)


def test_without_a_cause_no_broker_answers():
    failure = kafka_failure(TIMED_OUT, reported=[KafkaError(KafkaError._ALL_BROKERS_DOWN)])
    assert isinstance(failure, UnreachableError)
    assert "no Kafka broker answers (cause='_TIMED_OUT')" in str(failure)
    assert not is_decisive(TIMED_OUT)


def test_what_a_service_answers_is_not_called_no_answer():
    for code in (
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_REQUEST,
    ):
        failure = kafka_failure(KafkaError(code, "not here"), attempt="cannot do it")
        assert isinstance(failure, ConfigError)
        assert "cannot do it: the Kafka service does not support this request: not" in str(failure)
        assert is_unsupported(KafkaError(code))
    for code in (KafkaError.NOT_CONTROLLER, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG):
        failure = kafka_failure(KafkaError(code, "why"), bootstrap_servers="b:1")
        assert isinstance(failure, UnreachableError)
        assert "Kafka answered with an error: why" in str(failure)
        assert not is_unsupported(KafkaError(code))


def test_only_a_missing_acl_ends_a_program_that_runs():
    assert is_denied(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    for code in (KafkaError._RESOLVE, KafkaError._SSL, KafkaError._TRANSPORT):
        assert not is_denied(KafkaError(code))


@pytest.mark.parametrize(
    "cause", ["Broker transport failure", "Timed out", "Broker handle destroyed"]
)
def test_a_broker_that_leaves_in_the_middle_of_a_login_has_not_rejected_it(cause):
    text = (
        "sasl_ssl://127.0.0.1:40235/bootstrap: SASL SCRAM-SHA-512 mechanism handshake failed: "
        f"Local: {cause}: broker's supported mechanisms: (n/a) (after 0ms in state DOWN)"
    )
    error = KafkaError(KafkaError._AUTHENTICATION, text)
    assert not is_decisive(error)
    failure = kafka_failure(TIMED_OUT, reported=[error])
    assert isinstance(failure, UnreachableError)
    assert isinstance(kafka_failure(error), UnreachableError)
