"""The ids that topics have in Kafka: a topic that is re-created under its name has another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tidegate.program.kafka_clients import admin_config, make_client
from tidegate.schemas.errors import UnreachableError

_TIMEOUT_S = 5.0


class LiveTopicIds:
    """Describes topics; an answer that does not come is left out, and the next batch asks again."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        """Prepare; nothing is sent yet.  Raises ConfigError for options that are rejected."""
        self._config = admin_config(bootstrap_servers, options)
        self._admin: AdminClient | None = make_client(AdminClient, self._config)

    def __call__(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Return the id of each topic, None for one that does not exist; blocks for some seconds.

        A topic is left out if no broker answers, or if the principal may not describe it.
        """
        log = structlog.get_logger("tidegate.spark_consumer")
        found: dict[str, str | None] = {}
        try:
            self._admin = self._admin or make_client(AdminClient, self._config)
        except UnreachableError as error:  # there is no token for its login
            log.warning("topic description failed", topic=", ".join(topics), reason=str(error))
            return found
        answers = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=_TIMEOUT_S
        )
        for topic, answer in answers.items():
            try:
                found[topic] = str(answer.result().topic_id)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    found[topic] = None
                    continue
                log.warning("topic description failed", topic=topic, reason=reason.str())
                # A client that saw a broker disconnect may never answer.
                self._admin = None
        return found

    def close(self) -> None:
        """Close the client; a later call starts another one."""
        self._admin = None


def may_exist(topic: str, *, bootstrap_servers: str, options: Mapping[str, str]) -> bool:
    """Whether a topic exists, or no broker says that it does not; blocks for some seconds."""
    ids = LiveTopicIds(bootstrap_servers, options)([topic])
    return ids.get(topic, "unknown") is not None
