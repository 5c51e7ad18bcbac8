"""Checks before a stream starts whether the Kafka service and the principal meet the fleet's needs.

Everything that implements Kafka's protocol answers a metadata request; services differ in
transactions, compaction, the ids of topics and their settings.  No topic is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, Uuid
from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, ResourceType

from tidegate.program.kafka_clients import admin_config, make_client
from tidegate.program.kafka_errors import is_denied, is_unsupported, kafka_failure
from tidegate.schemas.errors import ConfigError

Right: TypeAlias = Literal["READ", "WRITE"]

_RIGHTS_TIMEOUT_S = 3.0


def denied_topics(
    topics: Iterable[str],
    *,
    bootstrap_servers: str,
    options: Mapping[str, Any],
    right: Right = "WRITE",
) -> list[str]:
    """Return the topics on which this principal lacks a right; blocks for at most some seconds.

    Topics for which Kafka gives no answer are left out: the result only improves an error's text.
    """
    admin = make_client(AdminClient, admin_config(bootstrap_servers, options))
    answers = admin.describe_topics(
        TopicCollection(list(topics)),
        include_authorized_operations=True,
        request_timeout=_RIGHTS_TIMEOUT_S,
    )
    denied = []
    for topic, answer in answers.items():
        try:
            allowed = answer.result().authorized_operations
        except KafkaException:
            continue
        if allowed is not None and AclOperation[right] not in allowed:
            denied.append(topic)
    return denied


_CALL_TIMEOUT_S = 10.0
_NO_ID = str(Uuid(0, 0))
_SERVICES = "docs/reference/kafka-services.md says which Kafka services have them"


def require_transactions(
    bootstrap_servers: str, *, options: Mapping[str, Any], transactional_id: str, timeout_ms: int
) -> None:
    """Raise ConfigError if the brokers reject a transactional producer; blocks for seconds.

    Only for a transactional id that no process uses: the check ends its open transaction.  Raises
    UnreachableError if the brokers do not answer.
    """
    config = {
        **options,
        "bootstrap.servers": bootstrap_servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": timeout_ms,
        "message.timeout.ms": timeout_ms,
        "log_level": 0,
    }
    config.pop("logger", None)
    producer = make_client(Producer, config)
    try:
        producer.init_transactions(_CALL_TIMEOUT_S)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return  # `run` reports it, with the setting
        if is_denied(reason) or not (is_unsupported(reason) or reason.code() > 0):
            attempt = f"transactions refused for {transactional_id}"
            raise kafka_failure(reason, attempt=attempt) from error
        raise ConfigError(
            f"transactions refused: {reason.str()}", hint=_SERVICES, cause=reason.name()
        ) from error


def missing_parts(
    bootstrap_servers: str, *, options: Mapping[str, Any], topics: Sequence[str]
) -> list[str]:
    """Return the features that make a fleet safer and that the service lacks; blocks for seconds.

    `topics` exist.  Denied or unanswered requests do not count as missing features.
    """
    admin = make_client(AdminClient, admin_config(bootstrap_servers, options))
    missing = []
    if _has_no_ids(admin, topics):
        missing.append("topic ids are zero: a topic that is deleted and re-created is not noticed")
    if reason := _refused_configs(admin):
        missing.append(
            f"DescribeConfigs is missing ({reason}): limits of sizes and the cleanup.policy of the "
            "progress topic are not checked"
        )
    return missing


def _has_no_ids(admin: AdminClient, topics: Sequence[str]) -> bool:
    if not topics:
        return False
    answers = admin.describe_topics(
        TopicCollection(list(topics[:1])), request_timeout=_CALL_TIMEOUT_S
    )
    try:
        return all(str(answer.result().topic_id) == _NO_ID for answer in answers.values())
    except KafkaException:
        return False


def _refused_configs(admin: AdminClient) -> str:
    """Return why a broker's settings cannot be read; empty if they can, or access is denied."""
    try:
        brokers = admin.list_topics(timeout=_CALL_TIMEOUT_S).brokers
    except KafkaException:
        return ""
    nodes = [ConfigResource(ResourceType.BROKER, str(number)) for number in list(brokers)[:1]]
    for answer in admin.describe_configs(nodes, request_timeout=_CALL_TIMEOUT_S).values():
        try:
            if not answer.result():
                return "the answer is empty"
        except KafkaException as error:
            if is_unsupported(error.args[0]):
                return str(error.args[0].name())
    return ""
