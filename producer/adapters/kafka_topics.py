"""The topics of one prefix: made where they lack, described where they stand.

A topic that stands is never altered.  What must not change about it (its id, its number of topic
partitions) is returned, and compared with what the stream recorded when it started.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from tidegate.schemas.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["KafkaTopics", "TopicDescription"]

_CALL_TIMEOUT_S = 15.0
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_PROGRESS_SETTINGS = {
    "cleanup.policy": "compact",
    # A reader that returns after a day still finds every snapshot and marker it needs.
    "min.compaction.lag.ms": str(_DAY_MS),
    "delete.retention.ms": str(7 * _DAY_MS),
}


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What identifies a topic, and how it is divided."""

    topic: str
    topic_id: str
    topic_partitions: int


class KafkaTopics:
    """Creates and describes topics; raises UnreachableError if the broker does not answer."""

    def __init__(self, bootstrap_servers: str, *, options: Mapping[str, Any] | None = None) -> None:
        """Prepare; nothing is sent yet."""
        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, **(options or {})})

    def require_broker(self) -> None:
        """Raise UnreachableError unless a broker answers."""
        try:
            self._admin.list_topics(timeout=_CALL_TIMEOUT_S)
        except KafkaException as error:
            raise self._unreachable(error) from error

    def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Return those of the topics that exist."""
        names = list(topics)
        found: dict[str, TopicDescription] = {}
        answers = self._admin.describe_topics(
            TopicCollection(names), request_timeout=_CALL_TIMEOUT_S
        )
        for name, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._unreachable(error) from error
            topic_partitions = len(description.partitions)
            found[name] = TopicDescription(name, str(description.topic_id), topic_partitions)
        return found

    def ensure_progress(self, topic: str, *, slots: int, replication: int) -> TopicDescription:
        """Return the progress topic, made with `slots` topic partitions if it does not exist.

        Raises ConfigError if it exists with another number: tokens would change their slots.
        """
        description = self._ensure(
            {topic: NewTopic(topic, slots, replication, config=_PROGRESS_SETTINGS)}
        )[topic]
        if description.topic_partitions != slots:
            message = (
                f"topic {topic} has {description.topic_partitions} slots, the setting says {slots}"
            )
            hint = "Set `slots` to the topic's number; it can never change"
            raise ConfigError(message, hint=hint)
        return description

    def ensure_data(
        self, topics: Iterable[str], *, topic_partitions: int, replication: int
    ) -> dict[str, TopicDescription]:
        """Return the data topics, those that lack made with `topic_partitions` each."""
        return self._ensure(
            {topic: NewTopic(topic, topic_partitions, replication) for topic in topics}
        )

    def _ensure(self, wanted: dict[str, NewTopic]) -> dict[str, TopicDescription]:
        found = self.describe(wanted)
        missing = [topic for name, topic in wanted.items() if name not in found]
        if missing:
            self._create(missing)
        give_up_at = time.monotonic() + _CALL_TIMEOUT_S
        while len(found) < len(wanted) and time.monotonic() < give_up_at:
            found = self.describe(wanted)
            time.sleep(0.05)
        if len(found) < len(wanted):
            message = "topics that were made do not appear"
            raise UnreachableError(message, topics=sorted(wanted.keys() - found.keys()))
        return found

    def _create(self, topics: list[NewTopic]) -> None:
        answers = self._admin.create_topics(topics, request_timeout=_CALL_TIMEOUT_S)
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue  # another worker was quicker
                if reason.retriable() or reason.code() == KafkaError._TRANSPORT:  # noqa: SLF001
                    raise self._unreachable(error) from error
                message = f"topic {name} cannot be made: {reason.str()}"
                hint = "Create it by hand, or allow this principal to"
                raise ConfigError(message, hint=hint) from error

    def _unreachable(self, error: KafkaException) -> UnreachableError:
        message = f"no Kafka broker answers at {self._bootstrap_servers}"
        hint = "Check bootstrap_servers, and that the broker runs"
        return UnreachableError(message, hint=hint, cause=error.args[0].name())
