"""The topics of one prefix: created where they are missing, described where they exist.

An existing topic is never altered.  Its fixed properties (its id, its number of topic partitions)
are returned, for comparison with those that the stream recorded at its start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tidegate.producer.errors import TopicRefused
from tidegate.producer.kafka.admin import CALL_TIMEOUT_S
from tidegate.producer.ports import MessageLimits
from tidegate.program.kafka_clients import (
    admin_config,
    list_topics,
    make_client,
    require_own_prefix,
)
from tidegate.program.kafka_errors import is_unsupported, kafka_failure
from tidegate.schemas.errors import ConfigError, InvariantViolation, UnreachableError
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.topics import TopicNames, topics_of_one_name

_log = structlog.get_logger()
_CALL_TIMEOUT_S = 15.0
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_POLICY = "cleanup.policy"
_COMPACT = "compact"
_PROGRESS_SETTINGS = {
    _POLICY: _COMPACT,
    # A reader that was down for a day still finds every snapshot and marker that it needs.
    "min.compaction.lag.ms": str(_DAY_MS),
    "delete.retention.ms": str(7 * _DAY_MS),
    # Snapshots need half of it, whatever the brokers' default is.
    "max.message.bytes": str(1 << 20),
}


_DEAD_LETTER_SETTINGS = {_POLICY: "delete", "retention.ms": "-1"}
_DEAD_LETTER_BYTES = (100 << 20, 20 << 20, 8 << 20, None)
"""The largest message of the dead-letter topic, in the order in which they are tried: the default
size of a request, then limits of managed Kafka; the last resort is the broker's default."""
_BROKER_PAUSE_S = 0.5
"""Between two attempts to create topics while brokers are missing."""
_TEMPORARY = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
)
"""Answers to the creation of a topic after which the next attempt may succeed; `retriable` of an
error concerns only transactions."""
_CREATION_HINT = "Create it by hand, or allow this principal to create topics"
_CREATION_HINTS = {
    KafkaError.TOPIC_EXCEPTION: (
        "Kafka treats '.' and '_' in names as the same: publish one of the two tables in a stream "
        "of its own, under another prefix (tables_left_out here, tables there). A stream that has "
        'begun goes on without the later table with poison = "park"'
    ),
    KafkaError.POLICY_VIOLATION: (
        "A policy of the brokers refuses it: create it by hand as the policy demands, or set "
        "topic_partitions and replication_factor to what it allows"
    ),
}
_OTHER_CASE_HINT = (
    "Spanner compares names without case, and so do many stores of outputs: give the table its "
    "former name (ALTER TABLE RENAME TO), or publish it in a stream of its own, under another "
    'prefix; this stream goes on without it with poison = "park"'
)
_COMPACTION_HINT = (
    f"A progress topic needs {', '.join(_PROGRESS_SETTINGS)}; "
    "docs/reference/kafka-services.md says which Kafka services take them"
)
_REFUSED_SETTINGS = (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's identity and its number of topic partitions."""

    topic: str
    topic_id: str
    topic_partitions: int


class KafkaTopics:
    """Creates and describes topics; failed calls raise the error of `kafka_failure`."""

    _only_asks = False
    """Whether brokers only validate the creation of a topic."""

    def __init__(self, bootstrap_servers: str, *, options: Mapping[str, Any] | None = None) -> None:
        """Prepare; nothing is sent yet."""
        self._bootstrap_servers = bootstrap_servers
        self._admin = make_client(AdminClient, admin_config(bootstrap_servers, options))

    def describe(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        """Return the descriptions of the topics that exist."""
        names = list(topics)
        descriptions: dict[str, TopicDescription] = {}
        answers = self._admin.describe_topics(
            TopicCollection(names), request_timeout=_CALL_TIMEOUT_S
        )
        for name, answer in answers.items():
            try:
                description = answer.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise self._failure(error, f"cannot describe topic {name}") from error
            topic_partitions = len(description.partitions)
            descriptions[name] = TopicDescription(name, str(description.topic_id), topic_partitions)
        return descriptions

    def ensure_progress(self, topic: str, *, slots: int, replication: int) -> TopicDescription:
        """Return the progress topic; create it with `slots` topic partitions if it is missing.

        Raises ConfigError if it exists with another number, because tokens would change their
        slots; and TopicRefused if the brokers reject its settings.
        """
        new_topic = NewTopic(topic, slots, replication, config=_PROGRESS_SETTINGS)
        try:
            description = self._ensure({topic: new_topic})[topic]
        except ConfigError as error:
            if _code_behind(error) != KafkaError.INVALID_CONFIG:
                raise
            raise TopicRefused(
                f"compaction refused: {error.message}", hint=_COMPACTION_HINT, topic=topic
            ) from error
        if description.topic_partitions != slots:
            raise ConfigError(
                f"topic {topic} has {description.topic_partitions} slots, the setting says {slots}",
                hint="Set `slots` to the topic's number; it can never change",
            )
        return description

    def require_compacted(self, topic: str) -> None:
        """Raise ConfigError if the broker deletes old records of an existing progress topic.

        Compaction keeps the newest record of each key; deletion by age or size would remove
        snapshots and announcements that have no successor.  If a Kafka service does not show the
        policy, a warning is logged: a slot that lost records that its owner needs stops that
        worker.
        """
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        answers = self._admin.describe_configs([resource], request_timeout=_CALL_TIMEOUT_S)
        try:
            entry = answers[resource].result().get(_POLICY)
            policy, cause = None if entry is None else entry.value, "it has no value"
        except KafkaException as error:
            policy, cause = None, error.args[0].str()
            if not is_unsupported(error.args[0]):
                raise self._failure(error, f"cannot read the settings of topic {topic}") from error
        if policy is None:
            _log.warning("cleanup policy unknown", topic=topic, cause=cause)
            return
        if policy != _COMPACT:
            raise ConfigError(
                f"topic {topic}: {_POLICY} is {policy!r}, it must be {_COMPACT!r}",
                hint=(
                    f"Run kafka-configs.sh --bootstrap-server {self._bootstrap_servers} --alter "
                    f"--entity-type topics --entity-name {topic} --add-config {_POLICY}={_COMPACT}"
                ),
            )

    def ensure_dead_letter(self, topic: str, *, replication: int) -> TopicDescription:
        """Return the dead-letter topic; create it if it is missing.

        It keeps its records without a limit in time, and accepts messages as large as the broker
        allows.  An existing topic may have any number of topic partitions.
        """
        for bytes_max in _DEAD_LETTER_BYTES:
            size = {} if bytes_max is None else {"max.message.bytes": str(bytes_max)}
            settings = {**_DEAD_LETTER_SETTINGS, **size}
            new_topics = {topic: NewTopic(topic, 1, replication, config=settings)}
            try:
                return self._ensure(new_topics)[topic]
            except ConfigError as error:
                if bytes_max is None or _code_behind(error) not in _REFUSED_SETTINGS:
                    raise
        raise InvariantViolation("the last attempt to create a topic returned nothing")

    def ensure_backfills(self, topic: str, *, replication: int) -> TopicDescription:
        """Return the topic with the requests for backfills; create it if it is missing."""
        new_topic = NewTopic(topic, 1, replication, config={_POLICY: _COMPACT})
        return self._ensure({topic: new_topic})[topic]

    def ensure_data(
        self,
        topics: Iterable[str],
        *,
        topic_partitions: int,
        replication: int,
        names: TopicNames | None = None,
    ) -> dict[str, TopicDescription]:
        """Return the data topics; create missing ones with `topic_partitions` each.

        With the stream's `names`, raises TopicRefused before it creates a topic whose name differs
        only in case from that of another table.
        """
        topics = list(topics)
        if names is not None:
            self._require_other_names(topics, names)
        return self._ensure(
            {topic: NewTopic(topic, topic_partitions, replication) for topic in topics}
        )

    def _require_other_names(self, topics: Iterable[str], names: TopicNames) -> None:
        try:
            visible = self._admin.list_topics(timeout=_CALL_TIMEOUT_S).topics
        except KafkaException as error:
            raise self._failure(error, "cannot list the topics") from error
        for topic, other in topics_of_one_name(topics, filter(names.is_data, visible)).items():
            raise TopicRefused(
                f"table {names.table(topic)}: its topic {topic} differs from {other} in case only",
                hint=_OTHER_CASE_HINT,
                topic=topic,
            )

    def _ensure(self, new_topics: dict[str, NewTopic]) -> dict[str, TopicDescription]:
        descriptions = self._create_missing(new_topics)
        give_up_at = time.monotonic() + _CALL_TIMEOUT_S
        while len(descriptions) < len(new_topics) and time.monotonic() < give_up_at:
            descriptions = self.describe(new_topics)
            time.sleep(0.05)
        if len(descriptions) < len(new_topics):
            raise UnreachableError(
                "created topics are not visible in broker metadata",
                topics=sorted(new_topics.keys() - descriptions.keys()),
            )
        return descriptions

    def _create_missing(self, new_topics: Mapping[str, NewTopic]) -> dict[str, TopicDescription]:
        """Create missing topics; return the topics that existed before."""
        descriptions = self.describe(new_topics)
        missing = [topic for name, topic in new_topics.items() if name not in descriptions]
        give_up_at = time.monotonic() + _CALL_TIMEOUT_S
        while missing and not self._create(missing, is_last=time.monotonic() >= give_up_at):
            time.sleep(_BROKER_PAUSE_S)
        return descriptions

    def _create(self, topics: list[NewTopic], *, is_last: bool) -> bool:
        """Create topics; return whether they exist now, or will.

        Brokers that start, or restart, do not count yet for the replication factor: that is an
        error only in the last attempt.
        """
        answers = self._admin.create_topics(
            topics, request_timeout=_CALL_TIMEOUT_S, validate_only=self._only_asks
        )
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue  # another worker created it first
                # A code below it is the client's own: no broker has rejected the topic.
                if reason.code() < KafkaError.UNKNOWN or reason.code() in _TEMPORARY:
                    raise self._failure(error, f"cannot create topic {name}") from error
                hint = _CREATION_HINTS.get(reason.code(), _CREATION_HINT)
                if reason.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    if not is_last:
                        return False
                    hint = "Start the missing brokers, or set replication_factor to their number"
                raise TopicRefused(
                    f"cannot create topic {name}: {reason.str()}", hint=hint, topic=name
                ) from error
        return True

    def _failure(self, error: KafkaException, attempt: str) -> ConfigError | UnreachableError:
        return kafka_failure(
            error.args[0], bootstrap_servers=self._bootstrap_servers, attempt=attempt
        )


class PlannedTopics(KafkaTopics):
    """Creates nothing: a missing topic is described as it would be created, without an id.

    A topic that the brokers would not create is rejected as if it were to be created.
    """

    _only_asks = True

    def _ensure(self, new_topics: dict[str, NewTopic]) -> dict[str, TopicDescription]:
        planned = {
            name: TopicDescription(name, "", topic.num_partitions)
            for name, topic in new_topics.items()
        }
        return planned | self._create_missing(new_topics)


def _code_behind(error: ConfigError) -> int | None:
    """Return the code of the Kafka error that caused an error; None if there is none."""
    cause: Any = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None


class KafkaDataTopics:
    """Creates the topics of tables that appear while a worker runs; port: `ports.DataTopics`."""

    def __init__(
        self,
        topics: KafkaTopics,
        limits: MessageLimits,
        counts: MutableMapping[str, int],
        *,
        topic_partitions: int,
        replication: int,
        names: TopicNames | None = None,
    ) -> None:
        """Start with the settings of new topics, and the stream's names as in `ensure_data`.

        `limits` gets each topic's limit, `counts` the number of its topic partitions.
        """
        self._names = names
        self._topics = topics
        self._limits = limits
        self._counts = counts
        self.on_found: Callable[[DataTopic], None] | None = None
        """Gets each topic's description; set before the first `ensure`."""
        self._topic_partitions = topic_partitions
        self._replication = replication

    def ensure(self, topic: str, *, key_schema_id: int) -> None:
        """Create the topic if it is missing; the admin client may be used by any thread.

        Raises the errors of `KafkaTopics.ensure_data`, but TopicRefused for a missing right on this
        topic; too few brokers are not an error of the settings, because there were enough when the
        worker started.
        """
        try:
            description = self._topics.ensure_data(
                [topic],
                topic_partitions=self._topic_partitions,
                replication=self._replication,
                names=self._names,
            )[topic]
        except ConfigError as error:
            code = _code_behind(error)
            if code == KafkaError.INVALID_REPLICATION_FACTOR:
                raise UnreachableError(error.message, hint=error.hint) from error
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise TopicRefused(error.message, hint=error.hint, topic=topic) from error
            raise
        if self.on_found is None:
            raise InvariantViolation(
                "a later table was found, and no worker is there to record it", topic=topic
            )
        self._counts.setdefault(topic, description.topic_partitions)
        self._limits.add(topic)
        self.on_found(
            DataTopic(topic, description.topic_id, description.topic_partitions, key_schema_id)
        )


_GONE_S = 60.0
_LOOK_S = 0.2
_IS_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)


class StreamRemoval:
    """Finds and removes a stream's topics and groups; for one thread.

    Raises the errors of `kafka_failure`.
    """

    def __init__(
        self, names: TopicNames, bootstrap_servers: str, options: Mapping[str, Any]
    ) -> None:
        """Prepare; nothing is sent yet."""
        self._names = names
        self._servers, self._options = bootstrap_servers, options
        self._admin = make_client(AdminClient, admin_config(bootstrap_servers, options))

    def topics(self) -> list[str]:
        """Return the stream's existing topics: data, progress, dead letters and requests.

        Raises ConfigError if some of them could belong to another stream.
        """
        names = self._names
        visible = list_topics(self._servers, self._options)
        require_own_prefix(names, visible)
        further = (names.dead_letter, names.backfills)
        return sorted(topic for topic in visible if topic in further or names.has_schemas(topic))

    def groups(self) -> list[str]:
        """Return the fleet's group and the groups of its workers' names, if they exist."""
        answer = self._admin.list_consumer_groups(request_timeout=CALL_TIMEOUT_S)
        try:
            groups = answer.result()
        except KafkaException as error:
            raise self._failure(error, "cannot list the consumer groups") from error
        for unlisted in groups.errors or ():  # groups may be missing, and would be left behind
            raise self._failure(unlisted, "cannot list the consumer groups") from unlisted
        group = self._names.group
        return sorted(
            listing.group_id
            for listing in groups.valid
            if listing.group_id == group or listing.group_id.startswith(f"{group}-")
        )

    def remove(self, topics: Sequence[str], groups: Sequence[str]) -> None:
        """Remove topics and groups, and wait until the topics are gone; missing ones are ignored.

        Raises UnreachableError for topics that remain.
        """
        if topics:
            self._check_answers(
                self._admin.delete_topics(list(topics), request_timeout=CALL_TIMEOUT_S),
                "cannot delete topic",
            )
        if groups:
            self._check_answers(
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

    def _check_answers(self, answers: Mapping[str, Any], attempt: str) -> None:
        for name, answer in answers.items():
            try:
                answer.result()
            except KafkaException as error:
                if error.args[0].code() not in _IS_GONE:
                    raise self._failure(error, f"{attempt} {name}") from error

    def _failure(self, error: KafkaException, attempt: str) -> Exception:
        return kafka_failure(error.args[0], bootstrap_servers=self._servers, attempt=attempt)
