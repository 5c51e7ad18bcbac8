"""Translates librdkafka's error codes to Tidegate's errors, each with its fix."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError

from tidegate.schemas.errors import ConfigError, UnreachableError

AT_END = KafkaError._PARTITION_EOF  # noqa: SLF001 - a public constant
"""The code that a consumer reports at the end of a topic partition; not a failure."""

FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)  # noqa: SLF001 - its public constant
"""The codes of a transactional producer that another producer with its id has replaced."""

GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
"""The code for a group that the principal may not use: a failure only for members of it."""

OUT_OF_RANGE = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - librdkafka's own codes; the constants are public
    KafkaError._LOG_TRUNCATION,  # noqa: SLF001 - the client's name
    KafkaError.OFFSET_OUT_OF_RANGE,
)
"""The codes for a next offset that is not in the log."""

_TLS = (KafkaError._SSL,)  # noqa: SLF001 - librdkafka's own codes; the constants are public
_LOGIN = (
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - the client's names
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
)
_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "consumer groups",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional ids",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster",
}
_UNSUPPORTED = (
    KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001 - librdkafka's own codes; the constants are public
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - the client's name
    KafkaError.INVALID_REQUEST,
    KafkaError.UNSUPPORTED_VERSION,
)
_NO_SUCH_HOST = (KafkaError._RESOLVE,)  # noqa: SLF001 - the client's name
_INTERRUPTED = "handshake failed: Local: "
"""Part of the text about a login that the end of the connection interrupted: the cause is local."""
_TOKENLESS = "Failed to acquire SASL OAUTHBEARER token"
"""Part of librdkafka's text for a login that failed before any broker was asked."""
_TLS_MISMATCH = ("SSL handshake failed", "security.protocol")
"""Parts of librdkafka's texts for a listener that hangs up: on TLS, and on a client without TLS."""


def kafka_failure(
    error: KafkaError,
    *,
    bootstrap_servers: str = "",
    attempt: str = "",
    reported: Iterable[KafkaError] = (),
) -> ConfigError | UnreachableError:
    """Return the error for a failed call, with its meaning and its fix.

    `attempt` names the call, as in "cannot read the group's offsets"; `reported` are the errors
    that the client has passed to its error callback, which are often the cause of a call that timed
    out.
    """
    cause = next((candidate for candidate in (error, *reported) if is_decisive(candidate)), error)
    fields = {"bootstrap_servers": bootstrap_servers} if bootstrap_servers else {}
    head = f"{attempt}: " if attempt else ""
    code = cause.code()
    if _is_tls(cause):
        message = f"{head}TLS to Kafka failed: {cause.str()}"
        hint = "Check security.protocol and the ssl options in kafka_options"
        return ConfigError(message, hint=hint, **fields)
    if _is_without_token(cause):
        message = f"{head}there is no token for the login to Kafka: {cause.str()}"
        hint = "Check kafka_login or the sasl.oauthbearer options, and what issues the tokens"
        return UnreachableError(message, hint=hint, **fields)
    if _is_login(cause):
        message = f"{head}Kafka rejected the login: {cause.str()}"
        hint = (
            "Check kafka_login, or sasl.mechanism, sasl.username and sasl.password in kafka_options"
        )
        return ConfigError(message, hint=hint, **fields)
    if code in _DENIED:
        message = f"{head}Kafka denies access to {_DENIED[code]}: {cause.str()}"
        hint = "Add the ACLs that docs/reference/permissions.md lists"
        return ConfigError(message, hint=hint, **fields)
    if code in _NO_SUCH_HOST:
        message = f"{head}the name of a Kafka broker cannot be resolved: {cause.str()}"
        return UnreachableError(message, hint="Check bootstrap_servers and DNS", **fields)
    if is_unsupported(cause):
        message = f"{head}the Kafka service does not support this request: {cause.str()}"
        hint = "docs/reference/kafka-services.md lists what a service has to support"
        return ConfigError(message, hint=hint, cause=cause.name(), **fields)
    if code > 0:  # a broker's own code: one has answered
        message = f"{head}Kafka answered with an error: {cause.str()}"
        hint = "See the broker's log; starting again may help"
        return UnreachableError(message, hint=hint, cause=cause.name(), **fields)
    place = f" at {bootstrap_servers}" if bootstrap_servers else ""
    hint = "Check bootstrap_servers, and that the broker is running"
    return UnreachableError(f"{head}no Kafka broker answers{place}", hint=hint, cause=cause.name())


def not_read_to_end(
    subject: str, *, topic: str, reported: KafkaError | None, **fields: object
) -> UnreachableError:
    """Return the error for a topic, or a part of it, that was not read to its end in time.

    `subject` begins the text; `reported` is the client's last error since it read anything: without
    one only an open transaction can hold the end back.
    """
    hint = "A transaction may be open in it; the broker ends it after its time-out"
    if reported is not None:
        fields |= {"cause": reported.str()}
        hint = "Check the brokers: the client repeats what failed"
    return UnreachableError(
        f"{subject} cannot be read to its end", hint=hint, topic=topic, **fields
    )


def is_decisive(error: KafkaError) -> bool:
    """Whether an error alone shows what to change, so that a start need not wait longer.

    Only at the start of a program: a broker that restarts gives some of these errors for a moment.
    """
    is_known = error.code() in (*_DENIED, *_NO_SUCH_HOST)
    return is_known or _is_login(error) or _is_without_token(error) or _is_tls(error)


def is_denied(error: KafkaError) -> bool:
    """Whether an ACL is missing, which no retry fixes."""
    return error.code() in _DENIED


def is_unsupported(error: KafkaError) -> bool:
    """Whether a service other than Apache Kafka's broker lacks a request, which no retry fixes."""
    return error.code() in _UNSUPPORTED


def _is_login(error: KafkaError) -> bool:
    """Whether the broker has rejected a login; a broker that leaves during a login has not."""
    is_other = _INTERRUPTED in error.str() or _is_without_token(error)
    return error.code() in _LOGIN and not is_other


def _is_without_token(error: KafkaError) -> bool:
    """Whether a login failed because its source of tokens failed."""
    return _TOKENLESS in error.str()


def _is_tls(error: KafkaError) -> bool:
    return error.code() in _TLS or any(text in error.str() for text in _TLS_MISMATCH)
