"""Limits of topics: the smallest of what topic and brokers allow, and defaults where hidden."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ResourceType
from structlog.testing import capture_logs

from tests.unit.producer.kafka.test_topics import promise
from tidegate.producer.kafka import message_limits
from tidegate.producer.kafka.message_limits import KafkaMessageLimits
from tidegate.schemas.errors import ConfigError, UnreachableError

TOPICS = ("p.a", "p.b", "p-progress")
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
SILENT = KafkaError(KafkaError._TIMED_OUT)
DEFAULT = 1_048_588


class Cluster:
    """Configurations by resource name; an error stands for a refusal."""

    def __init__(self):
        whole = {"max.message.bytes": DEFAULT, "segment.bytes": 1 << 30}
        self.configs = {name: dict(whole) for name in TOPICS}
        self.configs["1"] = {"socket.request.max.bytes": 100 << 20}
        self.configs["2"] = {"socket.request.max.bytes": 100 << 20}
        self.is_silent = False
        self.brokers = {1: None, 2: None}

    def connect(self, _config):
        return self

    def list_topics(self, timeout):
        if self.is_silent:
            raise KafkaException(SILENT)
        return SimpleNamespace(brokers=self.brokers)

    def describe_configs(self, resources, request_timeout):
        assert {one.restype for one in resources} <= {ResourceType.TOPIC, ResourceType.BROKER}
        return {one: promise(self._entries(self.configs[one.name])) for one in resources}

    def _entries(self, config):
        if isinstance(config, KafkaError):
            return config
        return {
            name: SimpleNamespace(value=None if value is None else str(value))
            for name, value in config.items()
        }


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    monkeypatch.setattr(message_limits, "AdminClient", made.connect)
    return made


@pytest.fixture
def limits(cluster):
    made = KafkaMessageLimits("x", TOPICS)
    made.refresh()
    return made


def test_a_topics_own_limit_counts(cluster, limits):
    cluster.configs["p.b"]["max.message.bytes"] = 5_000_000
    assert limits.bytes_max("p.b") == DEFAULT

    limits.refresh()
    assert [limits.bytes_max(name) for name in TOPICS] == [DEFAULT, 5_000_000, DEFAULT]
    assert (limits.smallest, limits.largest) == (DEFAULT, 5_000_000)


@pytest.mark.parametrize(
    ("resource", "config", "expected"),
    [
        ("p.a", {"segment.bytes": 14_000}, 14_000),
        ("2", {"socket.request.max.bytes": 500_000}, 500_000 - 16 * 1_024),
    ],
)
def test_the_smallest_of_several_limits_counts(cluster, limits, resource, config, expected):
    cluster.configs[resource].update(config)
    limits.refresh()

    assert limits.bytes_max("p.a") == expected


@pytest.mark.parametrize("hidden", ["p.a", "1"])
def test_what_may_not_be_described_has_kafkas_default(cluster, limits, hidden, caplog):
    cluster.configs["p.b"]["max.message.bytes"] = 5_000_000
    cluster.configs[hidden] = DENIED
    limits.refresh()

    assert limits.bytes_max("p.a") == DEFAULT
    assert limits.bytes_max("p.b") == 5_000_000


UNSUPPORTED = KafkaError(KafkaError._UNSUPPORTED_FEATURE, "DescribeConfigs")
NO_SUCH_REQUEST = KafkaError(KafkaError.INVALID_REQUEST)
NULLS = {"max.message.bytes": None, "segment.bytes": None, "socket.request.max.bytes": None}


@pytest.mark.parametrize("hidden", ["p.a", "1"])
@pytest.mark.parametrize(
    "config", [UNSUPPORTED, NO_SUCH_REQUEST, NULLS, {}, {"max.message.bytes": "many"}]
)
def test_what_a_service_does_not_say_has_kafkas_default(cluster, limits, hidden, config):
    cluster.configs["p.b"]["max.message.bytes"] = 5_000_000
    cluster.configs[hidden] = config
    with capture_logs() as lines:
        limits.refresh()
        limits.refresh()

    assert limits.bytes_max("p.a") == DEFAULT
    assert limits.bytes_max("p.b") == 5_000_000
    assert [one["of"] for one in lines] == [hidden]


def test_a_service_that_names_no_broker(cluster, limits):
    cluster.brokers = {}
    cluster.configs["p.b"]["max.message.bytes"] = 5_000_000
    limits.refresh()
    assert limits.bytes_max("p.b") == 5_000_000


def test_an_answer_that_may_pass_is_not_replaced_by_a_default(cluster, limits):
    cluster.configs["p.a"] = KafkaError(KafkaError.NOT_CONTROLLER, "moving")
    with pytest.raises(UnreachableError, match="Kafka answered with an error: moving"):
        limits.refresh()


def test_a_broker_that_does_not_answer_leaves_what_was_known(cluster, limits):
    cluster.configs["p.a"]["max.message.bytes"] = 2_000
    cluster.is_silent = True
    with pytest.raises(UnreachableError, match="cannot read the topics' limits"):
        limits.refresh()

    assert limits.bytes_max("p.a") == DEFAULT


def test_a_topic_that_takes_too_little_is_a_wrong_setting(limits):
    limits.require("p-progress", 512 * 1024)

    with pytest.raises(ConfigError, match="1048588 bytes at most") as caught:
        limits.require("p-progress", 2_000_000)
    assert "max.message.bytes" in caught.value.hint


def test_a_topic_that_appears_later_is_read_once_it_is_added(cluster, limits):
    cluster.configs["p.later"] = {"max.message.bytes": 5}
    assert limits.bytes_max("p.later") == DEFAULT

    for _ in range(2):
        limits.add("p.later")
    assert limits.bytes_max("p.later") == limits.smallest == 5
