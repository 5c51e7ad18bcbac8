"""Removes what a stream has in Kafka: its topics, and the offsets of its groups."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.producer.kafka.admin import CALL_TIMEOUT_S
from tidegate.program.kafka_clients import (
    admin_config,
    list_topics,
    make_client,
    require_own_prefix,
)
from tidegate.program.kafka_errors import kafka_failure
from tidegate.schemas.errors import UnreachableError
from tidegate.schemas.topics import TopicNames

_GONE_S = 60.0
_LOOK_S = 0.2
_IS_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)


class StreamRemoval:
    """Finds and removes; for one thread.  Raises what `kafka_failure` returns."""

    def __init__(
        self, names: TopicNames, bootstrap_servers: str, options: Mapping[str, Any]
    ) -> None:
        """Prepare; nothing is sent yet."""
        self._names = names
        self._servers, self._options = bootstrap_servers, options
        self._admin = make_client(AdminClient, admin_config(bootstrap_servers, options))

    def topics(self) -> list[str]:
        """Return the stream's topics that exist: data, progress, dead letters and requests.

        Raises ConfigError if some could be another stream's.
        """
        names = self._names
        visible = list_topics(self._servers, self._options)
        require_own_prefix(names, visible)
        others = (names.dead_letter, names.backfills)
        return sorted(one for one in visible if one in others or names.has_schemas(one))

    def groups(self) -> list[str]:
        """Return the fleet's group and the registers of its workers, as far as they exist."""
        answer = self._admin.list_consumer_groups(request_timeout=CALL_TIMEOUT_S)
        try:
            found = answer.result()
        except KafkaException as error:
            raise self._failure(error, "cannot list the consumer groups") from error
        group = self._names.group
        return sorted(
            one.group_id
            for one in found.valid
            if one.group_id == group or one.group_id.startswith(f"{group}-")
        )

    def remove(self, topics: Sequence[str], groups: Sequence[str]) -> None:
        """Remove topics and groups, and wait until the topics are gone; what is gone is no error.

        Raises UnreachableError for topics that stay.
        """
        if topics:
            self._each(
                self._admin.delete_topics(list(topics), request_timeout=CALL_TIMEOUT_S),
                "cannot delete topic",
            )
        if groups:
            self._each(
                self._admin.delete_consumer_groups(list(groups), request_timeout=CALL_TIMEOUT_S),
                "cannot delete the consumer group",
            )
        give_up_at = time.monotonic() + _GONE_S
        while left := set(topics).intersection(list_topics(self._servers, self._options)):
            if time.monotonic() > give_up_at:
                raise UnreachableError(
                    "topics are still there after they were deleted", topics=sorted(left)
                )
            time.sleep(_LOOK_S)

    def _each(self, answers: Mapping[str, Any], attempt: str) -> None:
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() not in _IS_GONE:
                    raise self._failure(error, f"{attempt} {name}") from error

    def _failure(self, error: KafkaException, attempt: str) -> Exception:
        return kafka_failure(error.args[0], bootstrap_servers=self._servers, attempt=attempt)
