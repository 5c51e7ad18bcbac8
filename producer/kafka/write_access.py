"""Which topics a principal may not write to, or not read, as Kafka's authorizer says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from tidegate.program.kafka_clients import admin_config, make_client

Right: TypeAlias = Literal["READ", "WRITE"]

_CALL_TIMEOUT_S = 3.0


def denied_topics(
    topics: Iterable[str],
    *,
    bootstrap_servers: str,
    options: Mapping[str, Any],
    right: Right = "WRITE",
) -> list[str]:
    """Return the topics on which this principal lacks a right; blocks for seconds at most.

    Leaves out what Kafka does not answer: the answer only makes an error's text better.
    """
    admin = make_client(AdminClient, admin_config(bootstrap_servers, options))
    answers = admin.describe_topics(
        TopicCollection(list(topics)),
        include_authorized_operations=True,
        request_timeout=_CALL_TIMEOUT_S,
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
