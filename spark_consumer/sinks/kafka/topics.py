"""Topics of the ordered sink in Kafka: described, created, and read to their newest record.

A topic that exists is never altered.  The newest record of a compacted topic is just before its
end, so reading begins a little before that, and further back if there are only aborted
transactions.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from tidegate.program.kafka_clients import (
    admin_config,
    consume_from_beginning,
    listed_offset,
    make_client,
)
from tidegate.program.kafka_errors import AT_END, is_denied, kafka_failure, not_read_to_end
from tidegate.schemas.errors import ConfigError, TidegateError, UnreachableError
from tidegate.spark_consumer.sinks.kafka.port import TopicFacts

_CALL_TIMEOUT_S = 15.0
_POLL_S = 0.5
_BATCH_MAX = 100
_TAIL_OFFSETS = 1_000
_WINDOW_FACTOR = 10

_VISIBLE_EVERY_S = 0.05
_POLICY, _BYTES_MAX = "cleanup.policy", "max.message.bytes"
_OUTPUT_BYTES = (100 << 20, 20 << 20, 8 << 20, None)
"""Sizes of the output topic's largest message, in the order in which they are tried.

A record has longer headers here than in its data topic, where it may have had the largest size.
"""
_BYTES_MAX_DEFAULT = 1_048_588
"""Kafka's own, where the service does not show it."""
_REFUSED_SETTINGS = (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION)
_BROKER_DEFAULT = -1


class TopicReader:
    """Reads committed records, each time from the broker; open transactions are waited for.

    Calls raise UnreachableError if no broker answers or reading stops, and ConfigError for a
    login or a right that is missing.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, Any],
        *,
        patience_s: float,
        tail_offsets: int = _TAIL_OFFSETS,
    ) -> None:
        """Prepare; nothing is sent yet.

        `patience_s` is how long reading may stop, which is longer than a transaction that
        was left open lasts.  `tail_offsets` is where the search for the newest record begins,
        before the end.
        """
        self._bootstrap_servers = bootstrap_servers
        self._options = options
        self._patience_s = patience_s
        self._tail_offsets = tail_offsets

    def newest_value(self, topic: str) -> bytes | None:
        """Return the value of the last record of topic partition 0; None without a record."""
        ((begin, end),) = self._ends(topic, 1)
        window = self._tail_offsets
        while True:
            start = max(begin, end - window)
            newest = None
            for message in self._records(topic, 0, start=start, end=end):
                newest = message
            if newest is not None:
                return newest.value()
            if start <= begin:
                return None
            window *= _WINDOW_FACTOR

    def has_records(self, topic: str, topic_partitions: int) -> bool:
        """Whether a topic holds a record."""
        for number, (begin, end) in enumerate(self._ends(topic, topic_partitions)):
            with closing(self._records(topic, number, start=begin, end=end)) as records:
                if next(records, None) is not None:
                    return True
        return False

    def _ends(self, topic: str, topic_partitions: int) -> list[tuple[int, int]]:
        """Return the first offset and the end of each topic partition, open transactions too."""
        admin = make_client(AdminClient, admin_config(self._bootstrap_servers, self._options))
        places = [TopicPartition(topic, number) for number in range(topic_partitions)]
        try:
            begins, ends = (
                admin.list_offsets(
                    dict.fromkeys(places, spec),
                    isolation_level=IsolationLevel.READ_UNCOMMITTED,
                    request_timeout=_CALL_TIMEOUT_S,
                )
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            )
            return [
                (listed_offset(begins[place].result()), listed_offset(ends[place].result()))
                for place in places
            ]
        except KafkaException as error:
            raise kafka_failure(
                error.args[0], attempt=f"cannot find the end of topic {topic}"
            ) from error

    def _records(
        self, topic: str, number: int, *, start: int, end: int
    ) -> Generator[Message, None, None]:
        """Yield the committed records of a topic partition from an offset to an end."""
        if start >= end:
            return
        consumer = consume_from_beginning(
            topic,
            (),
            bootstrap_servers=self._bootstrap_servers,
            client_group=f"{topic}-reader",
            options=self._options,
        )
        try:
            consumer.assign([TopicPartition(topic, number, start)])
            moved_at, reported = time.monotonic(), None
            while True:
                for message in consumer.consume(_BATCH_MAX, _POLL_S):
                    error, offset = message.error(), message.offset() or 0
                    if error is None:
                        moved_at, reported = time.monotonic(), None
                        if offset >= end:
                            return
                        yield message
                    elif error.code() == AT_END and offset >= end:
                        return
                    elif is_denied(error):
                        raise kafka_failure(error, attempt=f"cannot read topic {topic}")
                    elif error.code() != AT_END:
                        reported = error
                if time.monotonic() - moved_at > self._patience_s:
                    subject = f"topic {topic}"
                    raise not_read_to_end(subject, topic=topic, reported=reported, end=end)
        finally:
            consumer.close()


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
        described = self._described(topic)
        if described is None:
            self._create(topic, topic_partitions=topic_partitions, settings=settings)
            give_up_at = time.monotonic() + _CALL_TIMEOUT_S
            while (described := self._described(topic)) is None:
                if time.monotonic() > give_up_at:
                    raise UnreachableError(
                        "a created topic is not visible in broker metadata",
                        hint="Check the brokers",
                        topic=topic,
                    )
                time.sleep(_VISIBLE_EVERY_S)
        topic_id, number = described
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
            settings = answers[resource].result()
        except KafkaException as error:
            raise kafka_failure(
                error.args[0], attempt=f"cannot read the settings of topic {topic}"
            ) from error
        policies, bytes_max = (
            ""
            if name not in settings or settings[name].value is None
            else str(settings[name].value)
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
            frozenset(policy.strip() for policy in policies.split(",")),
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
