"""Output and releases topic in Kafka: described, and created where they are missing.

A topic that exists is never altered.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tidegate.program.kafka_clients import admin_config, make_client
from tidegate.program.kafka_errors import is_denied, kafka_failure
from tidegate.schemas.errors import ConfigError, TidegateError, UnreachableError
from tidegate.spark_consumer.sinks.kafka.port import TopicFacts

_CALL_TIMEOUT_S = 15.0
_VISIBLE_EVERY_S = 0.05
_POLICY, _BYTES_MAX = "cleanup.policy", "max.message.bytes"
_OUTPUT_BYTES = (100 << 20, 20 << 20, 8 << 20, None)
"""The largest message that the output topic takes, in the order in which they are tried: a record
has longer headers here than in its data topic, where it may have had just the size that fits."""
_BYTES_MAX_DEFAULT = 1_048_588
"""Kafka's own, where the service does not show it."""
_REFUSED_SETTINGS = (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION)
_BROKER_DEFAULT = -1


class TopicSetup:
    """Describes topics, and creates those that are missing; every call blocks for seconds.

    Raises ConfigError if Kafka refuses, and UnreachableError if it does not answer.
    """

    def __init__(self, bootstrap_servers: str, options: Mapping[str, Any]) -> None:
        """Prepare; nothing is sent yet.  Raises ConfigError for options that are rejected."""
        self._admin = make_client(AdminClient, admin_config(bootstrap_servers, options))

    def ensure_output(self, topic: str, *, topic_partitions: int) -> tuple[TopicFacts, int]:
        """Return the facts of an output topic, and the largest message that it takes."""
        settings = [
            {_POLICY: "delete"} if most is None else {_POLICY: "delete", _BYTES_MAX: str(most)}
            for most in _OUTPUT_BYTES
        ]
        return self._ensure(topic, topic_partitions=topic_partitions, settings=settings)

    def ensure_releases(self, topic: str) -> TopicFacts:
        """Return the facts of a releases topic; its segments are small, so that it stays short."""
        settings = [{_POLICY: "compact", "segment.bytes": str(1 << 20)}]
        return self._ensure(topic, topic_partitions=1, settings=settings)[0]

    def _ensure(
        self, topic: str, *, topic_partitions: int, settings: Sequence[Mapping[str, str]]
    ) -> tuple[TopicFacts, int]:
        """Create a missing topic with the first of the settings that the brokers accept."""
        found = self._described(topic)
        if found is None:
            self._create(topic, topic_partitions=topic_partitions, settings=settings)
            give_up_at = time.monotonic() + _CALL_TIMEOUT_S
            while (found := self._described(topic)) is None:
                if time.monotonic() > give_up_at:
                    raise UnreachableError(
                        "a created topic is not visible in broker metadata",
                        hint="Check the brokers",
                        topic=topic,
                    )
                time.sleep(_VISIBLE_EVERY_S)
        topic_id, number = found
        policies, bytes_max = self._configured(topic)
        return TopicFacts(topic_id, number, policies), bytes_max

    def _described(self, topic: str) -> tuple[str, int] | None:
        answers = self._admin.describe_topics(
            TopicCollection([topic]), request_timeout=_CALL_TIMEOUT_S
        )
        try:
            description = answers[topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise kafka_failure(error.args[0], attempt=f"cannot describe topic {topic}") from error
        return str(description.topic_id), len(description.partitions)

    def _configured(self, topic: str) -> tuple[frozenset[str], int]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        answers = self._admin.describe_configs([resource], request_timeout=_CALL_TIMEOUT_S)
        try:
            found = answers[resource].result()
        except KafkaException as error:
            raise kafka_failure(
                error.args[0], attempt=f"cannot read the settings of topic {topic}"
            ) from error
        policies, bytes_max = (
            "" if name not in found or found[name].value is None else str(found[name].value)
            for name in (_POLICY, _BYTES_MAX)
        )
        if not policies:
            raise ConfigError(
                f"topic {topic}: the Kafka service does not show its {_POLICY}",
                hint=(
                    "Use a service that answers DescribeConfigs: nothing else shows what is deleted"
                ),
            )
        return (
            frozenset(one.strip() for one in policies.split(",")),
            int(bytes_max) if bytes_max.isdecimal() else _BYTES_MAX_DEFAULT,
        )

    def _create(
        self, topic: str, *, topic_partitions: int, settings: Sequence[Mapping[str, str]]
    ) -> None:
        for place, config in enumerate(settings, 1):
            wanted = NewTopic(topic, topic_partitions, _BROKER_DEFAULT, config=dict(config))
            answers = self._admin.create_topics([wanted], request_timeout=_CALL_TIMEOUT_S)
            try:
                answers[topic].result()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return
                if reason.code() in _REFUSED_SETTINGS and place < len(settings):
                    continue
                raise _refused(reason, topic) from error
            return


def _refused(reason: KafkaError, topic: str) -> TidegateError:
    attempt = f"cannot create topic {topic}"
    if is_denied(reason) or reason.retriable() or reason.code() == KafkaError._TRANSPORT:  # noqa: SLF001 - its public constant
        return kafka_failure(reason, attempt=attempt)
    hint = "Create it by hand, or allow this principal to create topics"
    return ConfigError(f"{attempt}: {reason.str()}", hint=hint)
