"""Topics are described, created where they are missing, and never altered; a scripted admin."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.sinks.kafka import topic_setup
from tidegate.spark_consumer.sinks.kafka.port import TopicFacts
from tidegate.spark_consumer.sinks.kafka.topic_setup import TopicSetup

MISSING = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class Answer:
    def __init__(self, result):
        self._result = result

    def result(self):
        if isinstance(self._result, KafkaError):
            raise KafkaException(self._result)
        return self._result


class ScriptedAdmin:
    """Holds topics; `refusals` are the answers to attempts to create one."""

    def __init__(self, *refusals, policy="delete"):
        self.refusals = list(refusals)
        self.policy = policy
        self.topics = {}
        self.wanted = []
        self.appears_after = 0
        self.description = None
        self.bytes_max = "1234"

    def describe_topics(self, topics, *, request_timeout):
        (name,) = (one for one in ("all", "all-releases") if one in self.asked(topics))
        if self.description is not None:
            return {name: Answer(self.description)}
        number = self.topics.get(name)
        if number is None or self.appears_after > 0:
            self.appears_after -= number is not None
            return {name: Answer(MISSING)}
        return {name: Answer(SimpleNamespace(topic_id=f"id of {name}", partitions=[0] * number))}

    def asked(self, topics):
        return topics.names

    def create_topics(self, wanted, *, request_timeout):
        (new,) = wanted
        self.wanted.append((new.topic, new.num_partitions, new.config))
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is None or refusal.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            self.topics[new.topic] = new.num_partitions
        return {new.topic: Answer(refusal)}

    def describe_configs(self, resources, *, request_timeout):
        if isinstance(self.policy, KafkaError):
            return {resources[0]: Answer(self.policy)}
        entries = {"cleanup.policy": self.policy, "max.message.bytes": self.bytes_max}
        return {
            resources[0]: Answer(
                {name: SimpleNamespace(value=value) for name, value in entries.items()}
            )
        }


@pytest.fixture
def setup_on(monkeypatch):
    def make(admin):
        monkeypatch.setattr(topic_setup, "AdminClient", lambda _config: admin)
        monkeypatch.setattr(
            topic_setup, "TopicCollection", lambda names: SimpleNamespace(names=names)
        )
        monkeypatch.setattr(topic_setup, "_CALL_TIMEOUT_S", 0.2)
        return TopicSetup("x", {})

    return make


def test_a_missing_output_topic_takes_large_records(setup_on):
    admin = ScriptedAdmin()
    facts, bytes_max = setup_on(admin).ensure_output("all", topic_partitions=6)
    assert facts == TopicFacts("id of all", 6, frozenset({"delete"}))
    assert bytes_max == 1_234
    settings = {"cleanup.policy": "delete", "max.message.bytes": "104857600"}
    assert admin.wanted == [("all", 6, settings)]


def test_a_limit_that_the_brokers_refuse_is_lowered(setup_on):
    refusal = KafkaError(KafkaError.INVALID_CONFIG)
    admin = ScriptedAdmin(refusal, KafkaError(KafkaError.POLICY_VIOLATION), refusal)
    setup_on(admin).ensure_output("all", topic_partitions=1)
    limits = [config.get("max.message.bytes") for _, _, config in admin.wanted]
    assert limits == ["104857600", "20971520", "8388608", None]


def test_a_missing_releases_topic_is_compacted(setup_on):
    admin = ScriptedAdmin(policy="compact")
    facts = setup_on(admin).ensure_releases("all-releases")
    assert facts == TopicFacts("id of all-releases", 1, frozenset({"compact"}))
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert admin.wanted == [("all-releases", 1, settings)]


def test_a_topic_that_exists_is_described_and_not_altered(setup_on):
    admin = ScriptedAdmin(policy="compact, delete")
    admin.topics["all"] = 3
    facts, _ = setup_on(admin).ensure_output("all", topic_partitions=1)
    assert facts == TopicFacts("id of all", 3, frozenset({"compact", "delete"}))
    assert admin.wanted == []


def test_a_topic_that_another_run_creates_first_is_taken(setup_on):
    admin = ScriptedAdmin(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
    admin.appears_after = 3
    facts, _ = setup_on(admin).ensure_output("all", topic_partitions=1)
    assert facts.topic_partitions == 1


def test_a_created_topic_that_never_appears_is_reported(setup_on):
    admin = ScriptedAdmin()
    admin.appears_after = 1_000
    with pytest.raises(UnreachableError, match="not visible"):
        setup_on(admin).ensure_output("all", topic_partitions=1)


@pytest.mark.parametrize(
    ("code", "raised", "text"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigError, "denies access"),
        (KafkaError.POLICY_VIOLATION, ConfigError, "cannot create topic all: "),
        (KafkaError._TRANSPORT, UnreachableError, "no Kafka broker answers"),
    ],
)
def test_a_refused_creation_says_what_to_do(setup_on, code, raised, text):
    with pytest.raises(raised, match=text):
        setup_on(ScriptedAdmin(*[KafkaError(code)] * 4)).ensure_output("all", topic_partitions=1)


def test_a_description_that_fails_is_no_missing_topic(setup_on):
    admin = ScriptedAdmin()
    admin.description = KafkaError(KafkaError._TIMED_OUT)
    with pytest.raises(UnreachableError, match="cannot describe topic all"):
        setup_on(admin).ensure_output("all", topic_partitions=1)
    assert admin.wanted == []


def test_settings_that_may_not_be_read_are_reported(setup_on):
    admin = ScriptedAdmin(policy=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ConfigError, match="cannot read the settings of topic all"):
        setup_on(admin).ensure_output("all", topic_partitions=1)


def test_a_service_that_does_not_show_settings_is_named(setup_on):
    """The policy decides what is deleted, so that nothing is assumed; the size has a default."""
    for policy, text in (
        (None, "does not show its cleanup.policy"),
        (KafkaError(KafkaError._UNSUPPORTED_FEATURE, "DescribeConfigs"), "does not support"),
    ):
        with pytest.raises(ConfigError, match=text):
            setup_on(ScriptedAdmin(policy=policy)).ensure_output("all", topic_partitions=1)
    admin = ScriptedAdmin()
    admin.bytes_max = None
    assert setup_on(admin).ensure_output("all", topic_partitions=1)[1] == 1_048_588
