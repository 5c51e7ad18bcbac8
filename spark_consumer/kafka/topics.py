"""The consumer's queries about topics: whether they exist, their ids, where they begin.

Spark would wait for a missing topic for minutes and then fail with a stack trace; here one sentence
names the fault.  A topic that is re-created under its name has another id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tidegate.lineage.subscription import Subscription
from tidegate.program.kafka_clients import (
    admin_config,
    list_topics,
    listed_offset,
    make_client,
    require_own_prefix,
)
from tidegate.program.kafka_errors import kafka_failure
from tidegate.program.status_server import Health
from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.core.retention import FirstRecord

_POLL_SECONDS = 2.0
_REPORT_SECONDS = 30.0
_UNTIL_A_WORKER = "The first worker creates them; if one runs, check prefix and bootstrap_servers"


def wait_for_topics(
    bootstrap_servers: str,
    subscription: Subscription,
    *,
    stop: threading.Event,
    health: Health,
    options: Mapping[str, str] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> bool:
    """Block until the topics exist without which Spark cannot start; return False if stopped.

    Logs the missing topics at once and every 30 seconds.  `options` are librdkafka's and may hold
    secrets; `now` returns seconds and never goes back.  Raises what `find_missing_topics` raises,
    but a broker that stops answering later is waited for as well.
    """
    log = structlog.get_logger("tidegate.spark_consumer")
    missing = find_missing_topics(bootstrap_servers, subscription, options=options)
    reported = float("-inf")
    error = ""
    while missing:
        health.step()
        health.set_not_ready(f"waiting for topics: {', '.join(missing)}")
        if now() - reported >= _REPORT_SECONDS:
            reported = now()
            if error:
                log.warning("waiting for Kafka", error=error, topics=missing)
            else:
                log.info("waiting for topics", topics=missing, hint=_UNTIL_A_WORKER)
        if stop.wait(_POLL_SECONDS):
            return False
        try:
            missing = find_missing_topics(bootstrap_servers, subscription, options=options)
            error = ""
        except UnreachableError as unreachable:
            error = str(unreachable)
    return not stop.is_set()


def find_missing_topics(
    bootstrap_servers: str,
    subscription: Subscription,
    *,
    options: Mapping[str, str] | None = None,
) -> Sequence[str]:
    """Return the topics that Spark needs and the broker does not have.

    Only the progress topic is needed: data topics are discovered while the query runs.  Raises
    UnreachableError if no broker answers, and ConfigError for options or a login that are rejected,
    or if this stream's prefix and another stream's are prefixes of each other.
    """
    topics = list_topics(bootstrap_servers, options)
    require_own_prefix(subscription.names, topics)
    return [subscription.progress_topic] if subscription.progress_topic not in topics else []


_DESCRIBE_TIMEOUT_S = 5.0


class LiveTopicIds:
    """Describes topics; a missing answer is left out, and the next batch tries again."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        """Prepare; nothing is sent yet.  Raises ConfigError for options that are rejected."""
        self._config = admin_config(bootstrap_servers, options)
        self._admin: AdminClient | None = make_client(AdminClient, self._config)

    def __call__(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Return the id of each topic, None for one that does not exist; blocks for some seconds.

        A topic is left out if no broker answers, or if the principal may not describe it.
        """
        log = structlog.get_logger("tidegate.spark_consumer")
        ids: dict[str, str | None] = {}
        try:
            self._admin = self._admin or make_client(AdminClient, self._config)
        except UnreachableError as error:  # no token for the login
            log.warning("topic description failed", topic=", ".join(topics), reason=str(error))
            return ids
        answers = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=_DESCRIBE_TIMEOUT_S
        )
        for topic, answer in answers.items():
            try:
                ids[topic] = str(answer.result().topic_id)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    ids[topic] = None
                    continue
                log.warning("topic description failed", topic=topic, reason=reason.str())
                # A client that saw a broker disconnect may never answer.
                self._admin = None
        return ids

    def close(self) -> None:
        """Close the client; a later call starts another one."""
        self._admin = None


def may_exist(topic: str, *, bootstrap_servers: str, options: Mapping[str, str]) -> bool:
    """Whether a topic exists, or no broker says that it does not; blocks for some seconds."""
    ids = LiveTopicIds(bootstrap_servers, options)([topic])
    return ids.get(topic, "unknown") is not None


_TIMEOUT_S = 10.0
_ANY_TIME = 0
_NO_OFFSET = -1


def first_records(
    bootstrap_servers: str, options: Mapping[str, str], subscription: Subscription
) -> dict[str, dict[int, FirstRecord]]:
    """Return the first record of each topic partition that the gate reads; blocks for seconds.

    Raises ConfigError for options or a login that are rejected, UnreachableError if no broker
    answers.
    """
    admin = make_client(AdminClient, admin_config(bootstrap_servers, options))
    try:
        topics = admin.list_topics(timeout=_TIMEOUT_S).topics
        places = [
            TopicPartition(topic, number)
            for topic, description in sorted(topics.items())
            if subscription.names.has_schemas(topic)
            for number in description.partitions
        ]
        begins = _offsets(admin, places, OffsetSpec.earliest())
        firsts = _offsets(admin, places, OffsetSpec.for_timestamp(_ANY_TIME))
        ends = _offsets(admin, places, OffsetSpec.latest())
    except KafkaException as error:
        raise kafka_failure(error.args[0], bootstrap_servers=bootstrap_servers) from error
    firsts_of: dict[str, dict[int, FirstRecord]] = {}
    for place, (offset, _) in begins.items():
        first_offset, timestamp_ms = firsts[place]
        time_ms = timestamp_ms if first_offset != _NO_OFFSET else None
        firsts_of.setdefault(place[0], {})[place[1]] = FirstRecord(offset, time_ms, ends[place][0])
    return firsts_of


def _offsets(
    admin: AdminClient, places: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[tuple[str, int], tuple[int, int]]:
    if not places:
        return {}
    answers = admin.list_offsets(dict.fromkeys(places, spec), request_timeout=_TIMEOUT_S)
    results = {(place.topic, place.partition): answer.result() for place, answer in answers.items()}
    return {place: (listed_offset(result), result.timestamp) for place, result in results.items()}
