"""Topics are created where they are missing, described where they exist, and never altered."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from tidegate.producer.core.query_failure import Consequence, consequence_of
from tidegate.producer.errors import TopicRefused
from tidegate.producer.kafka import topics as kafka_topics
from tidegate.producer.kafka.message_limits import PROGRESS_BYTES_MIN
from tidegate.producer.kafka.topics import (
    KafkaDataTopics,
    KafkaTopics,
    PlannedTopics,
    TopicDescription,
)
from tidegate.schemas.errors import ConfigError, InvariantViolation, UnreachableError
from tidegate.schemas.topics import TopicNames

GONE = KafkaError(KafkaError._TRANSPORT)
FENCED = KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")


def promise(result):
    """Return a finished future; an error is raised by it."""
    made = Future()
    if isinstance(result, KafkaError):
        made.set_exception(KafkaException(result))
    else:
        made.set_result(result)
    return made


class Broker:
    """Topics by name -> number of topic partitions; refusals by topic name."""

    def __init__(self):
        self.topics = {}
        self.refusals = {}
        self.silence = None
        self.created = []
        self.policies = {}
        self.allowed_bytes = None
        self.refused_with = None
        """The refusal of topics with another `max.message.bytes` than `allowed_bytes`."""
        self.starts_in = 0
        """How many topics are refused because the broker has not started yet."""
        self.hidden_for = 0
        """How many descriptions a new topic is missing from."""

    def list_topics(self, timeout):
        if self.silence is not None:
            raise KafkaException(self.silence)
        return SimpleNamespace(topics=dict.fromkeys(self.topics))

    def describe_topics(self, collection, request_timeout):
        answers = {}
        if self.created and self.hidden_for:
            self.hidden_for -= 1
            hidden = {topic.topic for topic in self.created}
        else:
            hidden = set()
        for name in collection.topic_names:
            known = self.topics.get(name) if name not in hidden else None
            if self.silence is not None:
                answers[name] = promise(self.silence)
            elif known is None:
                answers[name] = promise(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            else:
                described = SimpleNamespace(partitions=[None] * known, topic_id=f"id-{name}")
                answers[name] = promise(described)
        return answers

    def describe_configs(self, resources, request_timeout):
        (resource,) = resources
        policy = self.policies[resource.name]
        if isinstance(policy, KafkaError):
            return {resource: promise(policy)}
        entries = {} if policy is ... else {"cleanup.policy": SimpleNamespace(value=policy)}
        return {resource: promise(entries)}

    def create_topics(self, wanted, request_timeout, validate_only=False):
        answers = {}
        for topic in wanted:
            if validate_only:
                answers[topic.topic] = promise(self.refusals.get(topic.topic))
                continue
            refusal = self.refusals.get(topic.topic)
            if self.starts_in:
                self.starts_in -= 1
                refusal = FENCED
            if self.refused_with and topic.config.get("max.message.bytes") != self.allowed_bytes:
                refusal = self.refused_with
            self.created.append(topic)
            if refusal is None or refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                self.topics[topic.topic] = topic.num_partitions
            answers[topic.topic] = promise(refusal)
        return answers


@pytest.fixture
def broker(monkeypatch):
    made = Broker()
    monkeypatch.setattr(kafka_topics, "AdminClient", lambda _config: made)
    monkeypatch.setattr(
        kafka_topics, "TopicCollection", lambda names: SimpleNamespace(topic_names=names)
    )
    monkeypatch.setattr(kafka_topics.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(kafka_topics, "_CALL_TIMEOUT_S", 0.2)
    return made


@pytest.fixture
def topics(broker):
    return KafkaTopics("broker:9092")


def described(name, count):
    return TopicDescription(name, f"id-{name}", count)


def test_only_existing_topics_are_described(broker, topics):
    broker.topics = {"a": 3}

    assert topics.describe(["a", "b"]) == {"a": described("a", 3)}


def test_missing_data_topics_are_created_and_existing_ones_left_alone(broker, topics):
    broker.topics = {"a": 3}
    found = topics.ensure_data(["a", "b"], topic_partitions=6, replication=1)

    assert found == {"a": described("a", 3), "b": described("b", 6)}
    assert [(t.topic, t.num_partitions) for t in broker.created] == [("b", 6)]


def test_planned_topics_are_described_and_not_created(broker):
    broker.topics = {"a": 3}
    planned = PlannedTopics("broker:9092")

    assert planned.ensure_data(["a", "b"], topic_partitions=6, replication=1) == {
        "a": described("a", 3),
        "b": TopicDescription("b", "", 6),
    }
    assert broker.created == []


def test_what_brokers_would_not_create_is_refused_without_creating_it(broker):
    broker.topics = {"a": 3}
    planned = PlannedTopics("broker:9092")
    for code in (
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
    ):
        broker.refusals["b"] = KafkaError(code)
        with pytest.raises(ConfigError, match="cannot create topic b"):
            planned.ensure_data(["a", "b"], topic_partitions=6, replication=3)
        with pytest.raises(ConfigError, match="cannot create topic b"):
            planned.ensure_progress("b", slots=4, replication=3)
        with pytest.raises(ConfigError, match="cannot create topic b"):
            planned.ensure_dead_letter("b", replication=3)
    assert broker.created == []


def test_the_progress_topic_is_compacted_late(broker, topics):
    assert topics.ensure_progress("p", slots=16, replication=1) == described("p", 16)
    (created,) = broker.created
    assert created.config["cleanup.policy"] == "compact"
    assert int(created.config["min.compaction.lag.ms"]) == 86_400_000
    assert int(created.config["max.message.bytes"]) >= PROGRESS_BYTES_MIN


def test_a_compacted_progress_topic_is_accepted(broker, topics):
    broker.policies["p"] = "compact"

    topics.require_compacted("p")


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_progress_topic_whose_records_expire_is_refused_with_the_command(broker, topics, policy):
    broker.policies["p"] = policy

    with pytest.raises(ConfigError) as refused:
        topics.require_compacted("p")
    assert f"topic p: cleanup.policy is '{policy}', it must be 'compact'" in str(refused.value)
    assert (
        "kafka-configs.sh --bootstrap-server broker:9092 --alter --entity-type topics "
        "--entity-name p --add-config cleanup.policy=compact"
    ) in refused.value.hint


@pytest.mark.parametrize(
    "policy", [None, ..., KafkaError(KafkaError._UNSUPPORTED_FEATURE, "DescribeConfigs")]
)
def test_a_policy_that_a_service_does_not_show_is_warned_of(broker, topics, policy):
    broker.policies["p"] = policy
    with capture_logs() as lines:
        topics.require_compacted("p")
    assert [(one["event"], one["topic"]) for one in lines] == [("cleanup policy unknown", "p")]


def test_settings_that_may_not_be_read_are_a_missing_acl(broker, topics):
    broker.policies["p"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized")

    with pytest.raises(ConfigError, match="cannot read the settings of topic p: Kafka denies"):
        topics.require_compacted("p")


def test_the_dead_letter_topic_keeps_everything(broker, topics):
    assert topics.ensure_dead_letter("d", replication=3) == described("d", 1)
    (created,) = broker.created
    assert created.replication_factor == 3
    assert created.config == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "max.message.bytes": str(100 << 20),
    }


def test_an_existing_dead_letter_topic_is_left_alone(broker, topics):
    broker.topics["d"] = 7

    assert topics.ensure_dead_letter("d", replication=1) == described("d", 7)
    assert broker.created == []


@pytest.mark.parametrize("code", [KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION])
@pytest.mark.parametrize("bytes_max", [str(20 << 20), str(8 << 20), None])
def test_a_dead_letter_topic_is_as_large_as_the_broker_allows(broker, topics, code, bytes_max):
    broker.allowed_bytes = bytes_max
    broker.refused_with = KafkaError(code, "too large")

    assert topics.ensure_dead_letter("d", replication=1) == described("d", 1)
    assert broker.created[-1].config.get("max.message.bytes") == bytes_max


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_CONFIG])
def test_a_dead_letter_topic_that_is_refused_in_any_size_is_named(broker, topics, code):
    broker.refusals["d"] = KafkaError(code, "refused")

    with pytest.raises(ConfigError, match="cannot create topic d: refused"):
        topics.ensure_dead_letter("d", replication=1)
    assert len(broker.created) == (4 if code == KafkaError.INVALID_CONFIG else 1)


def test_another_number_of_slots_is_a_wrong_setting(broker, topics):
    broker.topics = {"p": 8}

    with pytest.raises(ConfigError, match="topic p has 8 slots, the setting says 16"):
        topics.ensure_progress("p", slots=16, replication=1)


def test_a_topic_that_another_worker_created_first_is_fine(broker, topics):
    broker.refusals["a"] = KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)

    assert topics.ensure_data(["a"], topic_partitions=3, replication=1) == {"a": described("a", 3)}


def test_a_created_topic_is_waited_for(broker, topics):
    broker.hidden_for = 3

    assert topics.ensure_data(["a"], topic_partitions=3, replication=1) == {"a": described("a", 3)}


def test_a_created_topic_that_stays_invisible_is_an_error(broker, topics, monkeypatch):
    broker.hidden_for = 1_000
    monkeypatch.setattr(kafka_topics, "_CALL_TIMEOUT_S", 0.0)

    with pytest.raises(UnreachableError, match=r"not visible in broker metadata \(topics=\['a'\]"):
        topics.ensure_data(["a"], topic_partitions=3, replication=1)


def test_a_refused_creation_names_topic_and_reason(broker, topics):
    broker.refusals["a"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no ACL")

    with pytest.raises(ConfigError, match="cannot create topic a: no ACL"):
        topics.ensure_data(["a"], topic_partitions=3, replication=1)


def test_a_broker_that_does_not_answer_is_named(broker, topics):
    broker.silence = GONE

    with pytest.raises(UnreachableError, match=r"no Kafka broker answers.*broker:9092"):
        topics.describe(["a"])


def test_a_topic_that_may_not_be_described_is_a_missing_acl(broker, topics):
    broker.silence = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized")

    with pytest.raises(ConfigError, match="cannot describe topic a: Kafka denies access to topics"):
        topics.describe(["a"])


def test_a_broker_that_goes_away_during_creation_is_named(broker, topics):
    broker.refusals["a"] = GONE

    with pytest.raises(UnreachableError, match="no Kafka broker answers"):
        topics.ensure_data(["a"], topic_partitions=3, replication=1)


def test_a_topic_that_appears_later_is_created_and_its_limit_read(broker, topics):
    added, counts, found = [], {"p.known": 4}, []
    later = KafkaDataTopics(
        topics, SimpleNamespace(add=added.append), counts, topic_partitions=3, replication=1
    )
    later.on_found = found.append
    broker.topics["p.old"] = 2
    later.ensure("p.new", key_schema_id=7)
    later.ensure("p.old", key_schema_id=8)

    assert broker.topics == {"p.old": 2, "p.new": 3}
    assert added == ["p.new", "p.old"]
    assert counts == {"p.known": 4, "p.new": 3, "p.old": 2}
    seen = [(one.topic, one.topic_partitions, one.key_schema_id) for one in found]
    assert seen == [("p.new", 3, 7), ("p.old", 2, 8)]
    assert [one.topic_id for one in found] == [
        topics.describe([topic])[topic].topic_id for topic in ("p.new", "p.old")
    ]


def test_a_topic_that_differs_in_case_only_is_not_created(broker, topics):
    broker.topics = {"p.Orders": 3, "P.items": 3, "p.items-x": 3}
    later = KafkaDataTopics(
        topics, SimpleNamespace(add=str), {}, topic_partitions=3, replication=1,
        names=TopicNames("p"),
    )  # fmt: skip
    later.on_found = str
    text, both = r"table orders: .* differs from p\.Orders in case only", ["p.Items", "p.orders"]
    with pytest.raises(TopicRefused, match=text):
        later.ensure("p.orders", key_schema_id=7)
    with pytest.raises(TopicRefused, match=text):
        topics.ensure_data(both, topic_partitions=3, replication=1, names=TopicNames("p"))
    assert broker.created == []
    later.ensure("p.Items", key_schema_id=7)
    later.ensure("p.Orders", key_schema_id=7)
    broker.silence = GONE
    with pytest.raises(UnreachableError, match="cannot list the topics"):
        later.ensure("p.Items", key_schema_id=7)


COLLIDES = "Topic 'p.new' collides with existing topics: p_new"


@pytest.mark.parametrize(
    ("code", "text", "hint"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "no ACL", "allow this principal to create topics"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no ACL", "Create it by hand"),
        (KafkaError.TOPIC_EXCEPTION, COLLIDES, "under another prefix"),
        (KafkaError.POLICY_VIOLATION, "at most 2 partitions", "as the policy demands"),
        (KafkaError.INVALID_PARTITIONS, "too many", "Create it by hand"),
        (KafkaError.UNKNOWN, "?", "Create it by hand"),
    ],
)
def test_a_topic_that_is_refused_for_good_concerns_what_it_is_for(broker, topics, code, text, hint):
    broker.refusals["p.new"] = KafkaError(code, text)
    found = []
    later = KafkaDataTopics(topics, SimpleNamespace(), {}, topic_partitions=3, replication=1)
    later.on_found = found.append

    with pytest.raises(TopicRefused, match=r"cannot create topic p\.new") as caught:
        later.ensure("p.new", key_schema_id=7)
    assert found == []
    assert text in str(caught.value)
    assert hint in caught.value.hint
    assert caught.value.fields == {"topic": "p.new"}
    assert consequence_of(caught.value, token="t") is Consequence.STOP_STREAM_PARTITION


def test_a_later_topic_that_may_not_be_described_concerns_what_it_is_for(broker, topics):
    broker.silence = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no ACL")
    later = KafkaDataTopics(topics, SimpleNamespace(), {}, topic_partitions=3, replication=1)
    with pytest.raises(TopicRefused, match=r"p\.new"):
        later.ensure("p.new", key_schema_id=7)
    broker.silence = KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "no such user")
    with pytest.raises(ConfigError) as caught:
        later.ensure("p.new", key_schema_id=7)
    assert consequence_of(caught.value, token="t") is Consequence.STOP_WORKER


@pytest.mark.parametrize(
    "code",
    [KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,
     KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER, KafkaError.NETWORK_EXCEPTION,
     KafkaError.BROKER_NOT_AVAILABLE, KafkaError.THROTTLING_QUOTA_EXCEEDED],
)  # fmt: skip
def test_a_creation_that_may_succeed_later_is_repeated(broker, topics, code):
    broker.refusals["p.new"] = KafkaError(code)
    later = KafkaDataTopics(topics, SimpleNamespace(), {}, topic_partitions=3, replication=1)
    with pytest.raises(UnreachableError) as caught:
        later.ensure("p.new", key_schema_id=7)
    assert consequence_of(caught.value, token="t") is Consequence.RETRY


def test_a_login_that_is_rejected_while_a_topic_is_created_concerns_the_worker(broker, topics):
    broker.refusals["p.new"] = KafkaError(KafkaError._AUTHENTICATION, "rejected")
    later = KafkaDataTopics(topics, SimpleNamespace(), {}, topic_partitions=3, replication=1)
    with pytest.raises(ConfigError) as caught:
        later.ensure("p.new", key_schema_id=7)
    assert not isinstance(caught.value, TopicRefused)


def test_a_later_topic_that_no_worker_would_record_is_a_bug(broker, topics):
    later = KafkaDataTopics(topics, SimpleNamespace(), {}, topic_partitions=3, replication=1)

    with pytest.raises(InvariantViolation, match="no worker is there to record it"):
        later.ensure("p.new", key_schema_id=7)


def test_topics_are_created_once_the_broker_has_started(broker, topics):
    broker.starts_in = 3

    assert topics.ensure_data(["a"], topic_partitions=3, replication=1) == {"a": described("a", 3)}


@pytest.fixture
def too_few_brokers(broker, monkeypatch):
    """All topics are refused, and time passes with every look at the clock."""
    broker.starts_in = 10**9
    clock = iter(range(10**9))
    monkeypatch.setattr(kafka_topics.time, "monotonic", lambda: next(clock))


@pytest.mark.usefixtures("too_few_brokers")
def test_a_replication_factor_beyond_the_brokers_is_an_error_of_the_settings(topics):
    with pytest.raises(ConfigError, match="fenced") as caught:
        topics.ensure_data(["a"], topic_partitions=3, replication=3)

    assert "replication_factor" in caught.value.hint


@pytest.mark.usefixtures("too_few_brokers")
def test_a_later_tables_topic_waits_for_brokers_that_are_missing(topics):
    data = KafkaDataTopics(topics, SimpleNamespace(), {}, topic_partitions=3, replication=3)

    with pytest.raises(UnreachableError, match="fenced") as caught:
        data.ensure("a", key_schema_id=1)

    assert caught.value.retriable
