"""Topics are created where they are missing, described where they exist, and never altered."""

import itertools
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import AclOperation, ResourceType
from structlog.testing import capture_logs

from tidegate.producer.core.queries import Consequence, consequence_of
from tidegate.producer.errors import TopicRefused
from tidegate.producer.kafka import message_limits, service_check
from tidegate.producer.kafka import topics as kafka_topics
from tidegate.producer.kafka.message_limits import PROGRESS_BYTES_MIN, KafkaMessageLimits
from tidegate.producer.kafka.topics import (
    KafkaDataTopics,
    KafkaTopics,
    PlannedTopics,
    StreamRemoval,
    TopicDescription,
)
from tidegate.schemas.errors import ConfigError, InvariantViolation, UnreachableError
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.topics import TopicNames

GONE = KafkaError(KafkaError._TRANSPORT)
STOP_WORKER = Consequence.STOP_WORKER
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
        self.topics, self.refusals, self.policies, self.created = {}, {}, {}, []
        self.silence = self.allowed_bytes = None
        self.refused_with = None  # where `max.message.bytes` is not `allowed_bytes`
        self.starts_in = 0  # so many topics are refused, because the broker has not started yet
        self.hidden_for = 0  # so many descriptions lack the new topics

    def list_topics(self, timeout):
        if self.silence is not None:
            raise KafkaException(self.silence)
        return SimpleNamespace(topics=dict.fromkeys(self.topics))

    def describe_topics(self, collection, request_timeout):
        answers, visible = {}, dict(self.topics)
        if self.created and self.hidden_for:
            self.hidden_for -= 1
            for topic in self.created:
                visible.pop(topic.topic, None)
        for name in collection.topic_names:
            answer = self.silence or KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            if name in visible and self.silence is None:
                answer = SimpleNamespace(partitions=[None] * visible[name], topic_id=f"id-{name}")
            answers[name] = promise(answer)
        return answers

    def describe_configs(self, resources, request_timeout):
        (resource,) = resources
        policy = self.policies[resource.name]
        if policy is ...:
            return {resource: promise({})}
        is_error = isinstance(policy, KafkaError)
        entries = policy if is_error else {"cleanup.policy": SimpleNamespace(value=policy)}
        return {resource: promise(entries)}

    def create_topics(self, wanted, request_timeout, validate_only=False):
        answers = {}
        for topic in wanted:
            refusal = self.refusals.get(topic.topic)
            if validate_only:
                answers[topic.topic] = promise(refusal)
                continue
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


NO_ACL = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no ACL")


def ensure(topics, *names, count=3):
    return topics.ensure_data(list(names), topic_partitions=count, replication=1)


DENIALS = [
    KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
]  # fmt: skip


class TestCreation:
    def test_missing_data_topics_are_created_and_existing_ones_left_alone(self, broker, topics):
        broker.topics = {"a": 3, "d": 7}
        assert topics.describe(["a", "b"]) == {"a": described("a", 3)}
        found = ensure(topics, "a", "b", count=6)
        assert found == {"a": described("a", 3), "b": described("b", 6)}
        assert topics.ensure_dead_letter("d", replication=1) == described("d", 7)
        assert [(t.topic, t.num_partitions) for t in broker.created] == [("b", 6)]

    def test_planned_topics_are_described_or_refused_and_not_created(self, broker):
        broker.topics = {"a": 3}
        planned = PlannedTopics("broker:9092")
        found = ensure(planned, "a", "b", count=6)
        assert found == {"a": described("a", 3), "b": TopicDescription("b", "", 6)}
        calls = (
            lambda: ensure(planned, "a", "b"),
            lambda: planned.ensure_progress("b", slots=4, replication=3),
            lambda: planned.ensure_dead_letter("b", replication=3),
        )
        for code, call in itertools.product(DENIALS, calls):
            broker.refusals["b"] = KafkaError(code)
            with pytest.raises(ConfigError, match="cannot create topic b"):
                call()
        assert broker.created == []

    def test_the_progress_topic_is_compacted_late_and_dead_letters_are_kept(self, broker, topics):
        assert topics.ensure_progress("p", slots=16, replication=1) == described("p", 16)
        assert topics.ensure_dead_letter("d", replication=3) == described("d", 1)
        progress, dead_letter = broker.created
        assert progress.config["cleanup.policy"] == "compact"
        assert int(progress.config["min.compaction.lag.ms"]) == 86_400_000
        assert int(progress.config["max.message.bytes"]) >= PROGRESS_BYTES_MIN
        assert dead_letter.replication_factor == 3
        assert dead_letter.config == {
            "cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(100 << 20),
        }  # fmt: skip
        with pytest.raises(ConfigError, match="topic p has 16 slots, the setting says 8"):
            topics.ensure_progress("p", slots=8, replication=1)

    @pytest.mark.parametrize("code", [KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION])
    @pytest.mark.parametrize("bytes_max", [str(20 << 20), str(8 << 20), None])
    def test_a_dead_letter_topic_takes_what_the_broker_allows(
        self, broker, topics, code, bytes_max
    ):
        broker.allowed_bytes = bytes_max
        broker.refused_with = KafkaError(code, "too large")
        assert topics.ensure_dead_letter("d", replication=1) == described("d", 1)
        assert broker.created[-1].config.get("max.message.bytes") == bytes_max

    @pytest.mark.parametrize(
        "state",
        [
            {"refusals": {"a": KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)}},  # of another worker
            {"hidden_for": 3},
            {"starts_in": 3},
        ],
    )
    def test_a_created_topic_is_waited_for(self, broker, topics, state):
        vars(broker).update(state)
        assert ensure(topics, "a") == {"a": described("a", 3)}

    @pytest.mark.parametrize(
        ("state", "text"),
        [
            ({"hidden_for": 10**6}, r"not visible in broker metadata \(topics="),
            ({"refusals": {"a": NO_ACL}}, "cannot create topic a: no ACL"),
            ({"refusals": {"a": GONE}}, "no Kafka broker answers.*broker:9092"),
            ({"silence": GONE}, "no Kafka broker answers.*broker:9092"),
            ({"silence": NO_ACL}, "cannot describe topic a: Kafka denies access to"),
        ],
    )
    def test_what_cannot_be_created_or_seen_is_named(
        self, broker, topics, monkeypatch, state, text
    ):
        vars(broker).update(state)
        monkeypatch.setattr(kafka_topics, "_CALL_TIMEOUT_S", 0.0)
        kind = ConfigError if text.startswith("cannot") else UnreachableError
        with pytest.raises(kind, match=text):
            ensure(topics, "a")

    @pytest.mark.parametrize("is_later", [False, True])
    def test_a_replication_factor_beyond_the_brokers(self, broker, topics, monkeypatch, is_later):
        """All topics are refused; the topic of a later table waits for brokers."""
        broker.starts_in = 10**9
        monkeypatch.setattr(kafka_topics.time, "monotonic", itertools.count().__next__)
        if is_later:
            with pytest.raises(UnreachableError, match="fenced") as caught:
                later(topics).ensure("a", key_schema_id=1)
            assert caught.value.retriable
        else:
            with pytest.raises(ConfigError, match="fenced") as caught:
                ensure(topics, "a")
            assert "replication_factor" in caught.value.hint


class TestPolicy:
    @pytest.mark.parametrize("policy", ["delete", "compact,delete"])
    def test_a_progress_topic_whose_records_expire_is_refused(self, broker, topics, policy):
        broker.policies["p"] = "compact"
        topics.require_compacted("p")
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
    def test_a_policy_that_a_service_does_not_show_is_warned_of(self, broker, topics, policy):
        broker.policies["p"] = policy
        with capture_logs() as lines:
            topics.require_compacted("p")
        assert [(line["event"], line["topic"]) for line in lines] == [
            ("cleanup policy unknown", "p")
        ]

    def test_settings_that_may_not_be_read_are_a_missing_acl(self, broker, topics):
        broker.policies["p"] = NO_ACL
        with pytest.raises(ConfigError, match="cannot read the settings of topic p: Kafka denies"):
            topics.require_compacted("p")


def later(topics, counts=None, found=None, **options):
    made = KafkaDataTopics(
        topics, SimpleNamespace(add=str), {} if counts is None else counts,
        topic_partitions=3, replication=1, **options,
    )  # fmt: skip
    if found is not None:
        made.on_found = found.append
    return made


class TestLater:
    def test_a_topic_that_appears_later_is_created_or_taken_as_it_is(self, broker, topics):
        counts, found = {"p.known": 4}, []
        broker.topics["p.old"] = 2
        made = later(topics, counts, found)
        made.ensure("p.new", key_schema_id=7)
        made.ensure("p.old", key_schema_id=8)
        assert broker.topics == {"p.old": 2, "p.new": 3}
        assert counts == {"p.known": 4, "p.new": 3, "p.old": 2}
        assert found == [
            DataTopic("p.new", "id-p.new", 3, 7), DataTopic("p.old", "id-p.old", 2, 8),
        ]  # fmt: skip
        with pytest.raises(InvariantViolation, match="no worker is there to record it"):
            later(topics).ensure("p.new", key_schema_id=7)

    def test_a_topic_that_differs_in_case_only_is_not_created(self, broker, topics):
        broker.topics = {"p.Orders": 3, "P.items": 3, "p.items-x": 3}
        names, both = TopicNames("p"), ["p.Items", "p.orders"]
        made = later(topics, found=[], names=names)
        text = r"table orders: .* differs from p\.Orders in case only"
        with pytest.raises(TopicRefused, match=text):
            made.ensure("p.orders", key_schema_id=7)
        with pytest.raises(TopicRefused, match=text):
            topics.ensure_data(both, topic_partitions=3, replication=1, names=names)
        assert broker.created == []
        made.ensure("p.Items", key_schema_id=7)
        made.ensure("p.Orders", key_schema_id=7)
        broker.silence = GONE
        with pytest.raises(UnreachableError, match="cannot list the topics"):
            made.ensure("p.Items", key_schema_id=7)

    COLLIDES = "Topic 'p.new' collides with existing topics: p_new"

    @pytest.mark.parametrize(
        ("code", "text", "hint"),
        [
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, "no ACL", "allow this principal to create"),
            (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no ACL", "Create it by hand"),
            (KafkaError.TOPIC_EXCEPTION, COLLIDES, "under another prefix"),
            (KafkaError.POLICY_VIOLATION, "at most 2 partitions", "as the policy demands"),
            (KafkaError.INVALID_PARTITIONS, "too many", "Create it by hand"),
            (KafkaError.UNKNOWN, "?", "Create it by hand"),
        ],
    )
    def test_a_topic_that_is_refused_concerns_its_changes(self, broker, topics, code, text, hint):
        broker.refusals["p.new"] = KafkaError(code, text)
        found = []
        with pytest.raises(TopicRefused, match=r"cannot create topic p\.new") as caught:
            later(topics, found=found).ensure("p.new", key_schema_id=7)
        assert found == []
        assert text in str(caught.value)
        assert hint in caught.value.hint
        assert caught.value.fields == {"topic": "p.new"}
        assert consequence_of(caught.value, token="t") is Consequence.STOP_STREAM_PARTITION

    @pytest.mark.parametrize(
        ("state", "consequence"),
        [
            ({"silence": NO_ACL}, Consequence.STOP_STREAM_PARTITION),
            ({"silence": KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED)}, STOP_WORKER),
            ({"refusals": {"p.new": KafkaError(KafkaError._AUTHENTICATION)}}, STOP_WORKER),
            *[
                ({"refusals": {"p.new": KafkaError(code)}}, Consequence.RETRY)
                for code in (
                    KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,
                    KafkaError.REQUEST_TIMED_OUT, KafkaError.NOT_CONTROLLER,
                    KafkaError.THROTTLING_QUOTA_EXCEEDED,
                )
            ],
        ],
    )  # fmt: skip
    def test_another_error_ends_it_or_is_repeated(self, broker, topics, state, consequence):
        vars(broker).update(state)
        with pytest.raises((ConfigError, TopicRefused, UnreachableError)) as caught:
            later(topics).ensure("p.new", key_schema_id=7)
        assert consequence_of(caught.value, token="t") is consequence


LIMITED = ("p.a", "p.b", "p-progress")
CONFIG_DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
SILENT = KafkaError(KafkaError._TIMED_OUT)
DEFAULT = 1_048_588


class Configs:
    """Configurations by resource name; an error stands for a refusal."""

    def __init__(self):
        self.configs = {
            name: {"max.message.bytes": DEFAULT, "segment.bytes": 1 << 30} for name in LIMITED
        }
        self.brokers = {1: None, 2: None}
        for broker in "12":
            self.configs[broker] = {"socket.request.max.bytes": 100 << 20}
        self.is_silent = False

    def connect(self, _config):
        return self

    def list_topics(self, timeout):
        if self.is_silent:
            raise KafkaException(SILENT)
        return SimpleNamespace(brokers=self.brokers)

    def describe_configs(self, resources, request_timeout):
        assert {resource.restype for resource in resources} <= {
            ResourceType.TOPIC,
            ResourceType.BROKER,
        }
        return {
            resource: promise(self._entries(self.configs[resource.name])) for resource in resources
        }

    def _entries(self, config):
        if isinstance(config, KafkaError):
            return config
        texts = {name: None if one is None else str(one) for name, one in config.items()}
        return {name: SimpleNamespace(value=text) for name, text in texts.items()}


UNSUPPORTED = KafkaError(KafkaError._UNSUPPORTED_FEATURE, "DescribeConfigs")
NO_SUCH_REQUEST = KafkaError(KafkaError.INVALID_REQUEST)
NULLS = {"max.message.bytes": None, "segment.bytes": None, "socket.request.max.bytes": None}


class TestLimits:
    @pytest.fixture
    def configs(self, monkeypatch):
        made = Configs()
        monkeypatch.setattr(message_limits, "AdminClient", made.connect)
        return made

    @pytest.fixture
    def limits(self, configs):
        made = KafkaMessageLimits("x", LIMITED)
        made.refresh()
        return made

    def test_a_topics_own_limit_counts(self, configs, limits):
        configs.configs["p.b"]["max.message.bytes"] = 5_000_000
        configs.brokers = {}  # a service that names none
        assert limits.bytes_max("p.b") == DEFAULT
        limits.refresh()
        assert [limits.bytes_max(name) for name in LIMITED] == [DEFAULT, 5_000_000, DEFAULT]
        assert (limits.smallest, limits.largest) == (DEFAULT, 5_000_000)
        configs.configs["p.later"] = {"max.message.bytes": 5}
        assert limits.bytes_max("p.later") == DEFAULT
        for _ in range(2):
            limits.add("p.later")
        assert limits.bytes_max("p.later") == limits.smallest == 5

    @pytest.mark.parametrize(
        ("resource", "config", "expected"),
        [
            ("p.a", {"segment.bytes": 14_000}, 14_000),
            ("2", {"socket.request.max.bytes": 500_000}, 500_000 - 16 * 1_024),
        ],
    )
    def test_the_smallest_of_all_limits_counts(self, configs, limits, resource, config, expected):
        configs.configs[resource].update(config)
        limits.refresh()
        assert limits.bytes_max("p.a") == expected

    @pytest.mark.parametrize("hidden", ["p.a", "1"])
    @pytest.mark.parametrize(
        "config",
        [CONFIG_DENIED, UNSUPPORTED, NO_SUCH_REQUEST, NULLS, {}, {"max.message.bytes": "many"}],
    )
    def test_what_a_service_does_not_say_has_kafkas_default(self, configs, limits, hidden, config):
        configs.configs["p.b"]["max.message.bytes"] = 5_000_000
        configs.configs[hidden] = config
        with capture_logs() as lines:
            limits.refresh()
            limits.refresh()
        assert (limits.bytes_max("p.a"), limits.bytes_max("p.b")) == (DEFAULT, 5_000_000)
        assert [line["of"] for line in lines] == [hidden]

    def test_an_answer_that_may_pass_leaves_what_was_known(self, configs, limits):
        configs.configs["p.b"]["max.message.bytes"] = 2_000
        configs.configs["p.a"] = KafkaError(KafkaError.NOT_CONTROLLER, "moving")
        with pytest.raises(UnreachableError, match="Kafka answered with an error: moving"):
            limits.refresh()
        configs.is_silent = True
        with pytest.raises(UnreachableError, match="cannot read the topics' limits"):
            limits.refresh()
        assert limits.bytes_max("p.b") == DEFAULT

    def test_a_topic_that_takes_too_little_is_a_wrong_setting(self, limits):
        limits.require("p-progress", 512 * 1024)
        with pytest.raises(ConfigError, match="1048588 bytes at most") as caught:
            limits.require("p-progress", 2_000_000)
        assert "max.message.bytes" in caught.value.hint


ANSWERS = {
    "open": SimpleNamespace(authorized_operations=[AclOperation.WRITE, AclOperation.DESCRIBE]),
    "closed": SimpleNamespace(authorized_operations=[AclOperation.DESCRIBE]),
    "no authorizer": SimpleNamespace(authorized_operations=None),
    "silent": KafkaError(KafkaError._TIMED_OUT),
}


class AccessAdmin:
    """Answers what `ANSWERS` holds."""

    def __init__(self, config):
        assert config["bootstrap.servers"] == "x"

    def describe_topics(self, collection, **options):
        assert options["include_authorized_operations"]
        return {name: promise(ANSWERS[name]) for name in collection.topic_names}


@pytest.mark.parametrize(
    ("options", "denied"), [({}, ["closed"]), ({"right": "READ"}, ["open", "closed"])]
)
def test_topics_without_a_right_are_named(monkeypatch, options, denied):
    monkeypatch.setattr(service_check, "AdminClient", AccessAdmin)
    found = service_check.denied_topics(ANSWERS, bootstrap_servers="x", options={}, **options)
    assert found == denied


class Service:
    """Stands for the client of a Kafka service, and for its transactional producer."""

    def __init__(self, config=None, *, topic_id="id-1", configs=None, refusal=None):
        self.topic_id, self.refusal = topic_id, refusal
        self.configs = {"a": 1} if configs is None else configs

    def list_topics(self, timeout):
        return SimpleNamespace(brokers={7: None})

    def describe_topics(self, collection, request_timeout):
        return {"t": promise(self.topic_id)}

    def describe_configs(self, resources, request_timeout):
        (node,) = resources
        assert (node.restype, node.name) == (ResourceType.BROKER, "7")
        return {node: promise(self.configs)}

    def init_transactions(self, timeout):
        if self.refusal is not None:
            raise KafkaException(self.refusal)


def parts_missing_in(monkeypatch, topics=("t",), **changes):
    found = changes.pop("topic_id", "id-1")
    topic_id = found if isinstance(found, KafkaError) else SimpleNamespace(topic_id=found)
    service = Service(topic_id=topic_id, **changes)
    monkeypatch.setattr(service_check, "AdminClient", lambda _config: service)
    return service_check.missing_parts("x", options={}, topics=topics)


def test_what_a_service_lacks_is_named(monkeypatch):
    assert parts_missing_in(monkeypatch) == []
    (zero,) = parts_missing_in(monkeypatch, topic_id=str(Uuid(0, 0)))
    assert zero.startswith("topic ids are zero: a topic that is deleted and re-created")
    assert parts_missing_in(monkeypatch, (), topic_id=str(Uuid(0, 0))) == []
    for configs, text in (
        (KafkaError(KafkaError.UNSUPPORTED_VERSION), "UNSUPPORTED_VERSION"),
        ({}, "the answer is empty"),
    ):
        (missing,) = parts_missing_in(monkeypatch, configs=configs)
        assert missing.startswith(f"DescribeConfigs is missing ({text})")


def test_what_is_denied_or_not_answered_is_not_missing(monkeypatch):
    for code in (KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError._TIMED_OUT):
        assert parts_missing_in(monkeypatch, configs=KafkaError(code)) == []
        assert parts_missing_in(monkeypatch, topic_id=KafkaError(code)) == []


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError.UNSUPPORTED_VERSION, ConfigError, "transactions refused: .*kafka-services"),
        (KafkaError.UNKNOWN, UnreachableError, "transactions refused for x-w1"),
        (KafkaError.INVALID_CONFIG, ConfigError, "transactions refused: "),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ConfigError,
            "transactions refused for x-w1: Kafka denies access to transactional ids",
        ),
        (KafkaError._TIMED_OUT, UnreachableError, "no Kafka broker answers"),
    ],
)
def test_a_service_that_refuses_transactions_is_named(monkeypatch, code, kind, text):
    producer = Service(refusal=KafkaError(code))
    monkeypatch.setattr(service_check, "Producer", lambda _config: producer)
    with pytest.raises(kind, match=text):
        require_transactions(producer)
    for refusal in (None, KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT)):
        producer.refusal = refusal
        require_transactions(producer)


def require_transactions(_producer):
    service_check.require_transactions(
        "x", options={"logger": None}, transactional_id="x-w1", timeout_ms=60_000
    )


def test_a_service_that_refuses_compaction_is_named(broker):
    reason = KafkaError(KafkaError.INVALID_CONFIG, "cleanup.policy=compact is not supported")
    broker.refusals["bank-progress"] = reason
    for topics in (KafkaTopics("x"), PlannedTopics("x")):
        with pytest.raises(TopicRefused, match=r"compaction refused: .* not supported") as caught:
            topics.ensure_progress("bank-progress", slots=4, replication=1)
        assert "cleanup.policy, min.compaction.lag.ms" in caught.value.hint


VISIBLE = {
    "bank-progress", "bank-dead-letter", "bank-backfill-requests", "bank.Users", "bank.shop.Items",
    "bank2.Users", "bank-other", "bank.a.b.c", "other.Users", "bank",
}  # fmt: skip
OF_THE_STREAM = [
    "bank-backfill-requests", "bank-dead-letter", "bank-progress", "bank.Users", "bank.shop.Items",
]  # fmt: skip


class Admin:
    """Deletes at once, unless it is to fail or to leave topics behind."""

    def __init__(self, visible):
        self.visible, self.codes, self.stay, self.deleted = visible, {}, set(), []
        self.unlisted = []

    def list_consumer_groups(self, **_):
        names = ("bank-fleet", "bank-fleet-w1", "bank-fleets", "readers")
        valid = [SimpleNamespace(group_id=name) for name in names]
        return promise(SimpleNamespace(valid=valid, errors=self.unlisted))

    def delete_topics(self, topics, **_):
        self.visible -= set(topics) - self.stay
        return self._answers(topics)

    def delete_consumer_groups(self, groups, **_):
        return self._answers(groups)

    def _answers(self, names):
        self.deleted += names
        errors = {name: KafkaError(code) for name, code in self.codes.items()}
        return {name: promise(errors.get(name)) for name in names}


class TestRemoval:
    @pytest.fixture
    def admin(self):
        return Admin(set(VISIBLE))

    @pytest.fixture
    def removal(self, admin, monkeypatch):
        monkeypatch.setattr(kafka_topics, "make_client", lambda *_: admin)
        monkeypatch.setattr(kafka_topics, "list_topics", lambda *_: frozenset(admin.visible))
        monkeypatch.setattr(kafka_topics, "_LOOK_S", 0.001)
        monkeypatch.setattr(kafka_topics, "_GONE_S", 0.05)
        return StreamRemoval(TopicNames("bank"), "b:1", {})

    def test_topics_and_groups_of_the_prefix_are_removed(self, removal, admin):
        other = StreamRemoval(TopicNames("bank", "{prefix}-{table}"), "b:1", {})
        assert other.topics() == [*OF_THE_STREAM[:2], "bank-other", "bank-progress"]
        assert removal.topics() == OF_THE_STREAM
        assert removal.groups() == ["bank-fleet", "bank-fleet-w1"]
        admin.codes["bank.Users"] = KafkaError.UNKNOWN_TOPIC_OR_PART
        admin.codes["bank-fleet"] = KafkaError.GROUP_ID_NOT_FOUND
        removal.remove(removal.topics(), removal.groups())
        assert admin.deleted == [*OF_THE_STREAM, "bank-fleet", "bank-fleet-w1"]
        assert removal.topics() == []

    def test_groups_that_a_broker_does_not_list_are_not_taken_for_missing(self, removal, admin):
        """The offsets of a group that stays are past the end of the next stream's slots."""
        admin.unlisted = [KafkaException(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS))]
        with pytest.raises(UnreachableError, match="cannot list the consumer groups"):
            removal.groups()

    def test_topics_that_a_template_makes_unclear_stay(self, removal, admin):
        admin.visible |= {"bank-eu-progress", "bank-eu.Items"}
        assert removal.topics() == OF_THE_STREAM
        other = StreamRemoval(TopicNames("bank", "{prefix}-{table}"), "b:1", {})
        with pytest.raises(ConfigError, match="prefix of another stream") as caught:
            other.topics()
        assert "another topic_template than {prefix}-{table}" in caught.value.hint
        admin.visible |= {"bank.eu-progress", "bank.eu.Items"}
        with pytest.raises(ConfigError, match="prefix of another stream"):
            removal.topics()

    def test_a_missing_right_and_topics_that_stay_are_named(self, removal, admin):
        admin.stay = {"bank.Users"}
        with pytest.raises(UnreachableError, match=r"still there.*bank\.Users"):
            removal.remove(removal.topics(), [])
        admin.codes["bank.Users"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(ConfigError, match=r"cannot delete topic bank\.Users"):
            removal.remove(removal.topics(), [])
