"""Topics are created where they are missing, described where they exist, and never altered."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.kafka import topics as kafka_topics
from tidegate.producer.kafka.message_limits import PROGRESS_BYTES_MIN
from tidegate.producer.kafka.topics import KafkaDataTopics, KafkaTopics, TopicDescription
from tidegate.schemas.errors import ConfigError, UnreachableError

GONE = KafkaError(KafkaError._TRANSPORT)


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
        self.hidden_for = 0
        """How many descriptions a new topic is missing from."""

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
        return {resource: promise({"cleanup.policy": SimpleNamespace(value=policy)})}

    def create_topics(self, wanted, request_timeout):
        answers = {}
        for topic in wanted:
            refusal = self.refusals.get(topic.topic)
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


def test_settings_that_may_not_be_read_are_a_missing_acl(broker, topics):
    broker.policies["p"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not authorized")

    with pytest.raises(ConfigError, match="cannot read the settings of topic p: Kafka denies"):
        topics.require_compacted("p")


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
    added, counts = [], {"p.known": 4}
    later = KafkaDataTopics(
        topics, SimpleNamespace(add=added.append), counts, topic_partitions=3, replication=1
    )
    broker.topics["p.old"] = 2
    later.ensure("p.new")
    later.ensure("p.old")

    assert broker.topics == {"p.old": 2, "p.new": 3}
    assert added == ["p.new", "p.old"]
    assert counts == {"p.known": 4, "p.new": 3, "p.old": 2}


def test_a_later_topic_that_may_not_be_created_is_named(broker, topics):
    broker.refusals["p.new"] = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    later = KafkaDataTopics(topics, SimpleNamespace(), {}, topic_partitions=3, replication=1)

    with pytest.raises(ConfigError, match=r"p\.new"):
        later.ensure("p.new")
