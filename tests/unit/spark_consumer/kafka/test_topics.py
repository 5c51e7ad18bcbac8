"""What is asked of Kafka before and beside Spark: topics, their ids, and where they begin."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest
import structlog
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException

from tidegate.lineage.subscription import Subscription
from tidegate.program.kafka_clients import list_topics, make_client
from tidegate.program.status_server import Health
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.retention import FirstRecord
from tidegate.spark_consumer.kafka import topics as kafka
from tidegate.spark_consumer.kafka.client_options import (
    JAVA_OPTIONS,
    REFUSED_OPTIONS,
    SHARED_OPTIONS,
    TRANSLATED_OPTIONS,
    librdkafka_options,
    one_sided,
    refusals,
)
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka.topics import LiveTopicIds, may_exist
from tidegate.spark_consumer.spark.requirements import login_classes

SUBSCRIPTION = Subscription(TopicNames("bank"))


@pytest.fixture
def topics(monkeypatch):
    """Sets the topics that the broker knows."""

    seen = []

    def know(*names):
        def list_topics(address, options=None):
            seen.append((address, options))
            return frozenset(names)

        monkeypatch.setattr(kafka, "list_topics", list_topics)
        return seen

    return know


def test_a_missing_progress_topic_is_named(topics):
    seen = topics("bank-progress", "bank.accounts", "bankers-progress", "other.x-progress")
    options = {"sasl.password": "hush"}
    assert kafka.find_missing_topics("broker:9092", SUBSCRIPTION, options=options) == []
    assert seen == [("broker:9092", options)]
    topics("bank.accounts")
    assert kafka.find_missing_topics("broker:9092", SUBSCRIPTION) == ["bank-progress"]


def test_a_prefix_that_continues_another_prefix_is_refused_both_ways(topics):
    topics()
    with pytest.raises(ConfigError, match=r"bank\.europe-progress"):
        wait(Waiting(lambda: topics("bank.europe-progress")))  # also while it waits
    topics("bank.europe-progress", "bank-progress")
    for prefix, other in (("bank", "bank.europe"), ("bank.europe", "bank")):
        with pytest.raises(ConfigError, match=re.escape(f"['{other}-progress']")):
            kafka.find_missing_topics("broker:9092", Subscription(TopicNames(prefix)))


def test_a_broker_that_does_not_answer_at_first_ends_the_run(monkeypatch):
    monkeypatch.setattr(kafka, "list_topics", partial(list_topics, timeout_s=0.1))
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        kafka.wait_for_topics("127.0.0.1:1", SUBSCRIPTION, stop=threading.Event(), health=Health())


class Waiting:
    """A stop event and a clock in one: each wait takes its time and does the next planned thing."""

    def __init__(self, *actions):
        self.actions = list(actions)
        self.seconds = 1_000.0
        self.is_stopped = False

    def now(self):
        return self.seconds

    def is_set(self):
        return self.is_stopped

    def wait(self, timeout):
        self.seconds += timeout
        if self.actions:
            self.actions.pop(0)()
        return self.is_stopped

    def stop(self):
        self.is_stopped = True


def wait(waiting, health=None):
    with structlog.testing.capture_logs() as lines:
        are_there = kafka.wait_for_topics(
            "b:1", SUBSCRIPTION, stop=waiting, health=health or Health(), now=waiting.now
        )
    return are_there, lines


def test_topics_are_waited_for_until_they_exist_or_the_run_is_stopped(topics):
    topics("bank-progress")
    assert wait(Waiting()) == (True, [])
    stopped = Waiting()
    stopped.stop()
    assert wait(stopped) == (False, [])
    topics()
    waiting = Waiting()
    waiting.actions.append(waiting.stop)
    are_there, lines = wait(waiting)
    assert (are_there, len(lines)) == (False, 1)
    # Missing topics are named at once and every 30 seconds.
    nothing = [lambda: None] * 31  # two seconds each
    are_there, lines = wait(Waiting(*nothing, lambda: topics("bank-progress")))
    assert are_there
    line = {"event": "waiting for topics", "log_level": "info", "topics": ["bank-progress"]}
    hint = "The first worker creates them; if one runs, check prefix and bootstrap_servers"
    assert lines == [{**line, "hint": hint}] * 3


def test_a_run_that_waits_is_alive_and_not_ready(topics):
    topics()
    waiting = Waiting()
    health = Health(stalled_after_s=3, clock=waiting.now)
    seen = []
    look = [lambda: seen.append((health.fault, health.not_ready))] * 5
    wait(Waiting(*look, lambda: topics("bank-progress")), health)
    assert seen == [("", "waiting for topics: bank-progress")] * 5


def test_a_broker_that_stops_answering_is_waited_for_too(topics, monkeypatch):
    topics()

    def fail(*_arguments):
        raise UnreachableError("no Kafka broker answers")

    def stop_answering():
        monkeypatch.setattr(kafka, "list_topics", fail)

    nothing = [lambda: None] * 15
    are_there, lines = wait(Waiting(stop_answering, *nothing, lambda: topics("bank-progress")))
    assert are_there
    assert [line["event"] for line in lines] == ["waiting for topics", "waiting for Kafka"]
    assert "no Kafka broker answers" in lines[1]["error"]


# ---------------------------------------------------------------- ids
def answered(answer):
    future = Future()
    if isinstance(answer, int):
        future.set_exception(KafkaException(KafkaError(answer)))
    else:
        future.set_result(SimpleNamespace(topic_id=answer))
    return future


@pytest.fixture
def admins(monkeypatch):
    """Counts the clients that are made, and gives them their answers."""
    made = []

    class Admin:
        answers: ClassVar = {}

        def __init__(self, config):
            made.append(config)

        def describe_topics(self, topics, *, request_timeout):
            return {name: answered(answer) for name, answer in self.answers.items()}

    monkeypatch.setattr(kafka, "AdminClient", Admin)
    return Admin, made


def test_a_topic_that_does_not_exist_has_no_id_and_one_without_an_answer_is_left_out(admins):
    admin, made = admins
    admin.answers = {
        "bank.a": "one",
        "bank.b": KafkaError.UNKNOWN_TOPIC_OR_PART,
        "bank.c": KafkaError._TIMED_OUT,
    }
    ids = LiveTopicIds("broker:9092", {"client.id": "x"})
    with structlog.testing.capture_logs() as lines:
        assert ids(["bank.a", "bank.b", "bank.c"]) == {"bank.a": "one", "bank.b": None}
    assert [(line["event"], line["topic"]) for line in lines] == [
        ("topic description failed", "bank.c")
    ]
    # A client that has failed is replaced by another one.
    admin.answers = {"bank.a": "one"}
    assert ids(["bank.a"]) == ids(["bank.a"]) == {"bank.a": "one"}
    assert len(made) == 2
    assert {config["client.id"] for config in made} == {"x"}
    # A closed one is kept by nothing, and a later call starts another.
    client = weakref.ref(ids._admin)
    ids.close()
    assert client() is None
    assert ids(["bank.a"]) == {"bank.a": "one"}
    assert len(made) == 3


def test_a_topic_may_exist_unless_kafka_says_that_it_does_not(admins):
    admin, _ = admins
    for answer, expected in (
        ("one", True),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
        (KafkaError._TIMED_OUT, True),
    ):
        admin.answers = {"bank.a": answer}
        assert may_exist("bank.a", bootstrap_servers="broker:9092", options={}) is expected


def test_options_that_the_client_rejects_are_an_error_at_once():
    with pytest.raises(ConfigError):
        LiveTopicIds("broker:9092", {"no.such.option": "x"})


# ---------------------------------------------------------------- first records
BEGINS = {("bank.a", 0): 7, ("bank.a", 1): 0, ("bank-progress", 0): 0, ("other.a", 0): 3}

FIRSTS = {("bank.a", 0): (8, 5_000), ("bank.a", 1): (-1, -1), ("bank-progress", 0): (0, 1_000)}


def done(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.fixture
def admin(monkeypatch):
    class Admin:
        def __init__(self, config):
            self.config = config

        def list_topics(self, *, timeout):
            topics = {}
            for topic, number in BEGINS:
                topics.setdefault(topic, SimpleNamespace(partitions={})).partitions[number] = None
            return SimpleNamespace(topics=topics)

        def list_offsets(self, specs, *, request_timeout):
            answers = {}
            for place, spec in specs.items():
                name = (place.topic, place.partition)
                offset, timestamp = {
                    "TimestampSpec": lambda name: FIRSTS[name],
                    "EarliestSpec": lambda name: (BEGINS[name], -1),
                    "LatestSpec": lambda name: (BEGINS[name] + 100, -1),
                }[type(spec).__name__](name)
                answers[place] = done(SimpleNamespace(offset=offset, timestamp=timestamp))
            return answers

    monkeypatch.setattr(kafka, "AdminClient", Admin)
    return Admin


def test_offset_and_time_of_the_first_record_and_the_end_of_what_the_gate_reads(admin, monkeypatch):
    def found(names):
        return kafka.first_records("broker:9092", {}, Subscription(names))

    assert found(TopicNames("bank")) == {
        "bank.a": {0: FirstRecord(7, 5_000, 107), 1: FirstRecord(0, None, 100)},
        "bank-progress": {0: FirstRecord(0, 1_000, 100)},
    }
    # Topics of others are passed over, however they begin.
    for topic in ("bank-metrics", "bank.a.of.others", "bank-dead-letter", "bank_x-progress"):
        monkeypatch.setitem(BEGINS, (topic, 0), 3)
    assert found(TopicNames("bank")).keys() == {"bank.a", "bank-progress"}
    monkeypatch.setitem(FIRSTS, ("bank.a.of.others", 0), (3, 1))
    of_others = TopicNames("bank", "{prefix}.{table}.of.others")
    assert found(of_others).keys() == {"bank.a.of.others", "bank-progress"}

    def fail(self, *, timeout):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(admin, "list_topics", fail)
    with pytest.raises(UnreachableError, match="broker:9092"):
        found(TopicNames("bank"))


# ---------------------------------------------------------------- options of Java's client
LOGIN = {"sasl.mechanism": "plain", "sasl.username": "me", "sasl.password": "hush"}

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"

KEY = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n"

WHOLE = {
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": "hush",
    "ssl.certificate.pem": CERTIFICATE,
    "ssl.key.pem": KEY,
}


def refused_options(options):
    with pytest.raises(ConfigError) as caught:
        java_options(options)
    assert "hush" not in str(caught.value)
    assert "kafka_options" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        (
            {"client.id": "gate", "fetch.max.bytes": "1000000"},
            {"client.id": "gate", "fetch.max.bytes": "1000000"},
        ),
        (
            {**LOGIN, "sasl.password": 'a"b\\c; x', "security.protocol": "sasl_ssl"},
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                # A password cannot end its own quotes.
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
                ' required username="me" password="a\\"b\\\\c; x";',
            },
        ),
        (
            {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "me", "sasl.password": "hush"},
            {
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
                ' required username="me" password="hush";',
            },
        ),
        *(
            (
                {"ssl.endpoint.identification.algorithm": ours},
                {"ssl.endpoint.identification.algorithm": theirs},
            )
            for ours, theirs in (("none", ""), ("https", "https"))
        ),
    ],
)
def test_words_of_librdkafka_become_those_of_java(given, expected):
    assert java_options(given) == expected


def test_certificates_are_read_from_files_or_taken_as_they_are(tmp_path):
    authorities, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    authorities.write_text(CERTIFICATE)
    key.write_text(KEY)
    options = java_options(
        {
            "ssl.ca.location": str(authorities),
            "ssl.certificate.pem": CERTIFICATE,
            "ssl.key.location": str(key),
            "ssl.key.password": "hush",
        }
    )
    assert options == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": KEY,
        "ssl.key.password": "hush",
    }


def test_what_java_cannot_use_is_refused_by_its_option(tmp_path):
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    keys = ["hush", KEY.replace("PRIVATE", "RSA PRIVATE"), KEY.replace("PRIVATE", "EC PRIVATE")]
    whole_login = "sasl.mechanism, sasl.username and sasl.password"
    for options, text in (
        *(
            ({option: LOGIN[option] for option in LOGIN if option != name}, whole_login)
            for name in LOGIN
        ),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.method=oidc, kafka_login"),
        (
            {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.secret": "hush"},
            "needs sasl.oauthbearer.client.id and .client.secret",
        ),
        ({"ssl.ca.location": str(tmp_path / "none.pem")}, "ssl.ca.location"),
        ({"ssl.ca.location": str(store)}, "cannot be read as PEM"),
        ({"ssl.certificate.pem": CERTIFICATE}, "belong together"),
        ({"ssl.key.pem": KEY}, "belong together"),
        *(({"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": key}, "PKCS#8") for key in keys),
    ):
        assert text in refused_options(options)


BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"


def test_a_login_by_tokens_is_a_handler_in_java():
    assert java_options({"client.id": "gate"}, login="google") == {
        "client.id": "gate",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": BEARER,
        "sasl.login.callback.handler.class": (
            "com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler"
        ),
    }
    aws = java_options({"security.protocol": "sasl_plaintext"}, login="aws")
    assert aws == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": (
            "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
        ),
    }
    assert login_classes(aws) == (
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "software.amazon.msk.auth.iam.IAMLoginModule",
    )
    with pytest.raises(ConfigError, match=r"in Java, .* sasl\.login\.callback\.handler\.class"):
        java_options({}, login="own_tokens:fetch")
    handler = {"sasl.login.callback.handler.class": "bank.Tokens"}
    assert java_options(handler, login="own_tokens:fetch") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": BEARER,
        **handler,
    }
    role = {"sasl.jaas.config": 'a.b.IAMLoginModule required awsRoleArn="r";'}
    assert java_options(role, login="aws").items() >= role.items()


OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.oauthbearer.client.id": "fleet",
    "sasl.oauthbearer.client.secret": 'hu"sh',
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
}
OIDC_IN_JAVA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.login.callback.handler.class": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    ),
    "sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="fleet" clientSecret="hu\\"sh" scope="kafka"'
        ' extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1";'
    ),
}
PASSWORD_IN_JAVA = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="me" password="a\\"b\\\\c; x";'
    ),
}


def test_a_login_by_oidc_is_understood_in_the_words_of_either_client():
    assert java_options(OIDC) == OIDC_IN_JAVA
    assert java_options(OIDC_IN_JAVA) == OIDC_IN_JAVA
    assert librdkafka_options(OIDC) == OIDC
    assert librdkafka_options(OIDC_IN_JAVA) == OIDC
    make_client(
        KafkaConsumer, {**librdkafka_options(OIDC_IN_JAVA), "group.id": "g", "log_level": 0}
    )


def test_a_password_in_javas_words_is_understood_by_librdkafka():
    assert java_options(PASSWORD_IN_JAVA) == PASSWORD_IN_JAVA
    assert librdkafka_options(PASSWORD_IN_JAVA) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": 'a"b\\c; x',
    }
    unquoted = {"sasl.jaas.config": "a.b.ScramLoginModule required username=me password=hush;"}
    assert librdkafka_options(unquoted) == {"sasl.username": "me", "sasl.password": "hush"}


def test_stores_in_javas_words_are_understood_by_librdkafka_or_refused():
    pem = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": KEY,
        "ssl.endpoint.identification.algorithm": "",
    }
    assert java_options(pem) == pem
    assert librdkafka_options(pem) == {
        "ssl.ca.pem": CERTIFICATE,
        "ssl.certificate.pem": CERTIFICATE,
        "ssl.key.pem": KEY,
        "ssl.endpoint.identification.algorithm": "none",
    }
    store = {"ssl.truststore.location": "/jks", "ssl.truststore.password": "hush"}
    with pytest.raises(ValueError, match=r"set ssl\.ca\.location beside it"):
        librdkafka_options(store)
    assert librdkafka_options({**store, "ssl.truststore.type": "pem"}) == {
        "ssl.ca.location": "/jks"
    }
    assert librdkafka_options({**store, "ssl.ca.location": "/pem"}) == {"ssl.ca.location": "/pem"}
    key = {"ssl.keystore.location": "/p12", "ssl.keystore.password": "hush"}
    assert librdkafka_options(key) == java_options(key) == key


@pytest.mark.parametrize(
    "text",
    ["", "hush", "a.B required", 'a.B needed x="hush";', 'x="hush"; a.B required;'],
)
def test_a_login_that_java_would_not_take_is_refused_without_its_text(text):
    with pytest.raises(ValueError, match=r"sasl\.jaas\.config: must be") as caught:
        librdkafka_options({"sasl.jaas.config": text})
    assert "hush" not in str(caught.value)


def test_a_login_of_java_alone_needs_another_one_for_librdkafka():
    own = {"sasl.jaas.config": 'bank.Module required secret="hush";', "sasl.mechanism": "BANK"}
    with pytest.raises(
        ValueError, match=r"bank\.Module is a login of Java.* set kafka_login"
    ) as got:
        librdkafka_options(own)
    assert "hush" not in str(got.value)
    assert librdkafka_options(own, has_login=True) == {"sasl.mechanism": "BANK"}
    assert java_options(own) == own


def test_each_option_is_in_one_place_and_what_one_client_gets_is_named():
    places = (SHARED_OPTIONS, TRANSLATED_OPTIONS, JAVA_OPTIONS, REFUSED_OPTIONS.keys())
    assert sum(map(len, places)) == len(frozenset().union(*places))
    allowed = SHARED_OPTIONS | TRANSLATED_OPTIONS | JAVA_OPTIONS
    assert refusals(dict.fromkeys(allowed)) == []
    given = dict.fromkeys(["client.id", "max.poll.records", "socket.timeout.ms", "sasl.username"])
    assert one_sided(given) == (["max.poll.records"], ["socket.timeout.ms"])
    assert "max.poll.records" not in librdkafka_options({"max.poll.records": "1"})
    assert java_options({"socket.timeout.ms": "1", "max.poll.records": "1"}) == {
        "max.poll.records": "1"
    }


@pytest.mark.parametrize("name", sorted(SHARED_OPTIONS))
def test_librdkafka_knows_what_both_clients_get(name):
    try:
        KafkaConsumer({"group.id": "g", "logger": logging.getLogger("x"), name: "not-a-value"})
    except KafkaException as error:
        assert "No such" not in str(error)  # noqa: PT017 - a value may be right by chance


@pytest.mark.parametrize("name", sorted(TRANSLATED_OPTIONS | SHARED_OPTIONS | JAVA_OPTIONS))
def test_no_option_that_java_knows_is_dropped_in_silence(name, tmp_path):
    other = KEY.replace("hush", "other")
    file = tmp_path / "other.pem"
    file.write_text(other)
    whole = OIDC if "oauthbearer" in name else WHOLE
    without = {option: value for option, value in whole.items() if option != name}
    for former, alias in (
        ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
        ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
    ):
        if alias == name:
            del without[former]
    if name == "sasl.oauthbearer.method":
        assert "oidc, kafka_login" in refused_options({**OIDC, name: "default"})
        return
    if name == "sasl.mechanisms":
        del without["sasl.mechanism"]
    value = "SCRAM-SHA-256"
    if name.endswith(".pem"):
        value = other
    if name.endswith(".location"):
        without.pop(name.replace(".location", ".pem"), None)
        value = str(file)
    assert java_options({**without, name: value}) != java_options(whole)
