"""Kafka's clients: rejected options, errors with their fix, log lines, and reading from the start."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from tidegate.program.kafka_errors import is_decisive, is_denied, is_unsupported, kafka_failure
from tidegate.schemas.errors import ConfigError, UnreachableError
import socket
import threading
from contextlib import suppress
from confluent_kafka import Consumer, Producer
from tidegate.program.kafka_clients import admin_config, list_topics, make_client, require_own_prefix
from tidegate.schemas.topics import TopicNames
import logging
import time
import structlog
from confluent_kafka import Consumer
from tidegate.program.kafka_log import KafkaClientLog
from types import SimpleNamespace
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from tidegate.program.kafka_offsets import listed_offset
from confluent_kafka import KafkaError, KafkaException
from tidegate.program import from_beginning
from tidegate.program.from_beginning import consume_from_beginning
from typing import ClassVar
from confluent_kafka import KafkaError, Producer
from pydantic_settings import SettingsConfigDict
from tidegate.program import stream_start
from tidegate.program.settings_stream import StreamSettings
from tidegate.program.stream_start import recorded_filters, recorded_start, require_topic_names
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord, StreamStarted
from tidegate.schemas.progress_chunks import split
from tidegate.schemas.progress_codec import RECORD_SCHEMAS, encode_record
from tidegate.schemas.wire_format import frame


# kafka_errors


TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)

DECISIVE = [
    (KafkaError._SSL, "handshake failed", "TLS to Kafka failed: handshake", "ssl options"),
    (
        KafkaError._TRANSPORT,
        "Disconnected: might be caused by incorrect security.protocol configuration",
        "TLS to Kafka failed",
        "security.protocol",
    ),
    (
        KafkaError._TRANSPORT,
        "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?",
        "TLS to Kafka failed",
        "security.protocol",
    ),
    (KafkaError._AUTHENTICATION, "bad", "rejected the login: bad", "sasl.password"),
    (KafkaError.SASL_AUTHENTICATION_FAILED, "bad", "rejected the login", "sasl.username"),
    (KafkaError.UNSUPPORTED_SASL_MECHANISM, "bad", "rejected the login", "sasl.mechanism"),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, "no", "denies access to topics", "ACLs"),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, "no", "denies access to consumer groups", "ACLs"),
    (
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "no",
        "denies access to transactional ids",
        "ACLs",
    ),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no", "denies access to the cluster", "ACLs"),
    (KafkaError._RESOLVE, "unknown name", "cannot be resolved: unknown name", "DNS"),
]


@pytest.mark.parametrize(("code", "text", "error_text", "fix"), DECISIVE)
def test_a_decisive_error_names_cause_and_fix(code, text, error_text, fix):
    error = KafkaError(code, text)
    failure = kafka_failure(error, attempt="cannot do it", bootstrap_servers="b:1")
    assert is_decisive(error)
    # A name that cannot be resolved may be resolved later.
    assert failure.exit_code == (75 if code == KafkaError._RESOLVE else 2)
    assert str(failure).startswith("cannot do it: ")
    assert error_text in str(failure)
    assert fix in failure.hint
    assert "b:1" in str(failure)


@pytest.mark.parametrize(("code", "text", "error_text", "_fix"), DECISIVE)
def test_what_was_reported_explains_a_call_that_timed_out(code, text, error_text, _fix):
    reported = [KafkaError(KafkaError._ALL_BROKERS_DOWN), KafkaError(code, text)]
    assert error_text in str(kafka_failure(TIMED_OUT, reported=reported))


def test_logins_and_acls_are_settings_and_names_are_the_network():
    assert isinstance(kafka_failure(KafkaError(KafkaError._AUTHENTICATION)), ConfigError)
    assert isinstance(kafka_failure(KafkaError(KafkaError._RESOLVE)), UnreachableError)


def test_without_a_cause_no_broker_answers():
    failure = kafka_failure(TIMED_OUT, reported=[KafkaError(KafkaError._ALL_BROKERS_DOWN)])
    assert isinstance(failure, UnreachableError)
    assert "no Kafka broker answers (cause='_TIMED_OUT')" in str(failure)
    assert not is_decisive(TIMED_OUT)


def test_what_a_service_answers_is_not_called_no_answer():
    for code in (
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_REQUEST,
    ):
        failure = kafka_failure(KafkaError(code, "not here"), attempt="cannot do it")
        assert isinstance(failure, ConfigError)
        assert "cannot do it: the Kafka service does not support this request: not" in str(failure)
        assert is_unsupported(KafkaError(code))
    for code in (KafkaError.NOT_CONTROLLER, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG):
        failure = kafka_failure(KafkaError(code, "why"), bootstrap_servers="b:1")
        assert isinstance(failure, UnreachableError)
        assert "Kafka answered with an error: why" in str(failure)
        assert not is_unsupported(KafkaError(code))


def test_only_a_missing_acl_ends_a_program_that_runs():
    assert is_denied(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    for code in (KafkaError._RESOLVE, KafkaError._SSL, KafkaError._TRANSPORT):
        assert not is_denied(KafkaError(code))


@pytest.mark.parametrize(
    "cause", ["Broker transport failure", "Timed out", "Broker handle destroyed"]
)
def test_a_broker_that_leaves_in_the_middle_of_a_login_has_not_rejected_it(cause):
    text = (
        "sasl_ssl://127.0.0.1:40235/bootstrap: SASL SCRAM-SHA-512 mechanism handshake failed: "
        f"Local: {cause}: broker's supported mechanisms: (n/a) (after 0ms in state DOWN)"
    )
    error = KafkaError(KafkaError._AUTHENTICATION, text)
    assert not is_decisive(error)
    failure = kafka_failure(TIMED_OUT, reported=[error])
    assert isinstance(failure, UnreachableError)
    assert isinstance(kafka_failure(error), UnreachableError)


# kafka_clients


@pytest.mark.parametrize(
    ("kind", "options", "error_text"),
    [
        (Consumer, {"foo.bar": "hush"}, 'No such configuration property: "foo.bar"'),
        (Consumer, {"security.protocol": "hush"}, '"security.protocol"'),
        (Consumer, {"session.timeout.ms": "hush"}, '"session.timeout.ms"'),
        (Consumer, {"session.timeout.ms": "900000"}, "must be >= `session.timeout.ms`"),
        (
            Consumer,
            {"security.protocol": "ssl", "ssl.ca.location": "/hush", "log_level": 0},
            "ssl.ca.location failed",
        ),
        (
            Consumer,
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "hush"},
            "Unsupported SASL mechanism: ***",
        ),
        (
            Consumer,
            {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"},
            "sasl.username and sasl.password must be set",
        ),
        (Producer, {"transactional.id": "x", "message.timeout.ms": "hush"}, "message.timeout.ms"),
    ],
)
def test_a_rejected_option_is_named_without_its_value(kind, options, error_text):
    base = {"group.id": "g"} if kind is Consumer else {}
    with pytest.raises(ConfigError) as caught:
        make_client(kind, {**base, **options})
    assert caught.value.exit_code == 2
    assert str(caught.value).startswith("kafka_options: ")
    assert error_text in str(caught.value)
    assert "hush" not in str(caught.value)
    assert "CONFIGURATION.md" in caught.value.hint


def test_an_admin_client_is_quiet_and_without_a_logger():
    options = {"logger": object(), "log_level": "7", "client.id": "x"}
    assert admin_config("b:1", options) == {
        "bootstrap.servers": "b:1",
        "log_level": 0,
        "client.id": "x",
    }


def test_a_broker_that_does_not_answer_is_named(capfd):
    with pytest.raises(UnreachableError, match=r"no Kafka broker answers.*127\.0\.0\.1:1"):
        list_topics("127.0.0.1:1", timeout_s=0.2)
    assert capfd.readouterr().err == ""


def test_a_broker_whose_name_is_unknown_is_not_waited_for():
    with pytest.raises(UnreachableError, match="cannot be resolved"):
        list_topics("no-such-host.invalid:9092", timeout_s=60)


@pytest.fixture(params=[b"HTTP/1.0 400 no\r\n\r\n", b""], ids=["answers", "hangs up"])
def plain_listener(request):
    """Something on a port that speaks no TLS; returns its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(100)
                        client.sendall(request.param)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_tls_towards_a_listener_without_it_says_so(plain_listener):
    options = {"security.protocol": "ssl"}
    with pytest.raises(ConfigError, match="TLS to Kafka failed") as caught:
        list_topics(plain_listener, options, timeout_s=60)
    assert "security.protocol" in caught.value.hint


def test_a_prefix_that_continues_another_streams_is_refused():
    topics = ["orders.eu-progress", "orders.items"]
    require_own_prefix(TopicNames("payments"), topics)
    with pytest.raises(ConfigError, match=r"prefix: 'orders'.*orders\.eu-progress") as caught:
        require_own_prefix(TopicNames("orders"), topics)
    assert caught.value.exit_code == 2


# kafka_log


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    return KafkaClientLog(interval_s=60, clock=clock)


@pytest.fixture
def lines():
    with structlog.testing.capture_logs() as captured:
        yield captured


def say(log, kind, text="down", level=logging.ERROR):
    log.log(level, "%s [%s] %s", kind, "worker-1", text)


def test_a_line_has_its_kind_and_level(log, lines):
    say(log, "FAIL")
    say(log, "OFFSET", level=logging.INFO)
    assert lines[0] == {
        "event": "Kafka client",
        "log_level": "warning",
        "kind": "FAIL",
        "client": "worker-1",
        "text": "down",
        "left_out": 0,
    }
    assert lines[1]["log_level"] == "info"


def test_two_hundred_lines_of_a_kind_are_one_a_minute(log, lines, clock):
    for _ in range(200):
        say(log, "FAIL")
        clock.seconds += 0.5
    assert [line["left_out"] for line in lines] == [0, 119]


def test_another_kind_is_not_held_back(log, lines):
    say(log, "FAIL")
    say(log, "SSL")
    assert [line["kind"] for line in lines] == ["FAIL", "SSL"]


def test_any_other_call_is_a_line_too(log, lines):
    log.log(logging.ERROR, "plain %s", "text")
    assert lines[0]["text"] == "plain text"


def test_a_real_clients_lines_come_here_and_not_to_standard_error(log, lines, capfd):
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "logger": log})
    give_up_at = time.monotonic() + 10
    while not lines and time.monotonic() < give_up_at:
        consumer.poll(0.05)
    consumer.close()
    assert "127.0.0.1:1" in lines[0]["text"]
    assert capfd.readouterr().err == ""


# kafka_offsets


@pytest.mark.parametrize("offset", [0, 7, -1])
def test_what_kafka_answers_is_returned(offset):
    assert listed_offset(SimpleNamespace(offset=offset)) == offset


def test_an_answer_without_an_offset_is_an_error_that_may_be_retried():
    with pytest.raises(KafkaException) as caught:
        listed_offset(SimpleNamespace(offset=OFFSET_INVALID))
    assert caught.value.args[0].code() == KafkaError.OFFSET_NOT_AVAILABLE


# from_beginning


NOT_YET_KNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
GROUP_DENIED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
WRONG_LOGIN = KafkaError(KafkaError._AUTHENTICATION, "wrong password")


class Consumer:
    """Begins at what `answers` say, one after the other, and then at 0."""

    answers: list[object]
    reports: list[KafkaError]
    made: list["Consumer"]

    def __init__(self, config):
        self.config = config
        self.is_closed = False
        self.made.append(self)

    def get_watermark_offsets(self, place, timeout):
        assert 0 < timeout < 60
        answer = self.answers.pop(0) if self.answers else (0, place.partition)
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return answer

    def consume(self, _count, timeout):
        assert timeout == 0
        return [SimpleNamespace(error=lambda error=error: error) for error in self.reports]

    def assign(self, places):
        self.assigned = [(place.topic, place.partition, place.offset) for place in places]

    def close(self):
        self.is_closed = True


@pytest.fixture(autouse=True)
def kafka(monkeypatch):
    Consumer.answers, Consumer.reports, Consumer.made = [], [], []
    monkeypatch.setattr(from_beginning, "Consumer", Consumer)
    monkeypatch.setattr(from_beginning.time, "sleep", lambda _seconds: None)
    return Consumer


def opened(*numbers, **more):
    return consume_from_beginning("p", numbers, bootstrap_servers="x", client_group="g", **more)


def test_it_reads_committed_records_from_the_beginning_and_joins_nothing(kafka):
    kafka.answers = [(0, 9), (7, 9)]
    consumer = opened(
        2, 3, options={"group.id": "others", "client.rack": "r"}, sizes={"fetch.max.bytes": 7}
    )

    assert consumer.assigned == [("p", 2, 0), ("p", 3, 7)]
    assert consumer.config["isolation.level"] == "read_committed"
    assert consumer.config["enable.auto.commit"] is False
    assert consumer.config["enable.partition.eof"] is True
    assert consumer.config["group.id"] == "g"
    assert consumer.config["client.rack"] == "r"
    assert consumer.config["fetch.max.bytes"] == 7


def test_an_offset_that_is_gone_is_an_error_and_never_a_new_beginning():
    consumer = opened(0, options={"auto.offset.reset": "earliest"})

    assert consumer.config["auto.offset.reset"] == "error"


def test_a_leader_that_does_not_know_a_new_topic_yet_is_asked_again(kafka):
    kafka.answers = [NOT_YET_KNOWN, None, KafkaError(KafkaError.UNKNOWN), (4, 9)]
    kafka.reports = [GROUP_DENIED]  # the client looks for the group's coordinator

    assert opened(0).assigned == [("p", 0, 4)]


@pytest.mark.parametrize(
    ("answer", "report", "text"),
    [(DENIED, None, "denies access to topics"), (None, WRONG_LOGIN, "rejected the login")],
)
def test_what_does_not_pass_is_raised_at_once(kafka, answer, report, text):
    kafka.answers = [answer, (4, 9)]
    kafka.reports = [] if report is None else [report]

    with pytest.raises(ConfigError, match=text):
        opened(0)
    assert kafka.made[0].is_closed


def test_a_leader_that_never_answers_is_named(kafka, monkeypatch):
    monkeypatch.setattr(from_beginning, "_PATIENCE_S", 0.0)
    kafka.answers = [NOT_YET_KNOWN, (4, 9)]

    with pytest.raises(UnreachableError, match="cannot read topic p"):
        opened(0)
    assert kafka.made[0].is_closed


# stream_start


VERSION = 2
FILTERS = ("exclude_insert=true", "producer.topic_template={prefix}-{table}")
CHILDREN = tuple(ChildPartition(f"t{number}", ("",), 0) for number in range(3))


class Settings(StreamSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_SETTINGS_")
    help_command: ClassVar[str] = "settings --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset()


def started(children=()):
    return StreamStarted("s", "GOOGLE_STANDARD_SQL", 0, None, "g", 1, "id", (), children, FILTERS)


class Broker:
    """A broker with one progress topic."""

    def __init__(self):
        options = {"bootstrap.servers": "-", "test.mock.num.brokers": 1, "log_level": 0}
        self.client = Producer(options)
        (broker,) = self.client.list_topics("bank-progress", timeout=30).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def write(self, *bodies):
        for body in bodies:
            record = encode_record(ProgressRecord("e", "w", body, VERSION))
            self.put(frame(VERSION, record))

    def put(self, value):
        self.client.produce("bank-progress", key=b"k", value=value, partition=0)
        assert self.client.flush(30) == 0

    def filters(self):
        return recorded_filters(
            "bank-progress",
            bootstrap_servers=self.address,
            options={},
            schema_of=RECORD_SCHEMAS.__getitem__,
        )

    def start(self):
        return recorded_start(
            "bank-progress",
            bootstrap_servers=self.address,
            options={},
            schema_of=RECORD_SCHEMAS.__getitem__,
        )

    def settings(self, **changes):
        return Settings.load(
            None, bootstrap_servers=self.address, registry_url="http://r", prefix="bank", **changes
        )


@pytest.fixture
def broker(monkeypatch):
    monkeypatch.setattr(stream_start, "_POLL_S", 0.05)
    broker = Broker()
    yield broker
    broker.client.flush(0)
    del broker.client


def test_a_topic_without_a_stream_has_no_filters(broker):
    assert broker.filters() is broker.start() is None
    broker.put(None)  # removes an earlier record, for compaction
    broker.write(PartitionAnnounced(ChildPartition("t", ("",), 0), ""))
    assert broker.filters() is None
    require_topic_names(broker.settings(), RECORD_SCHEMAS.__getitem__)


def test_the_filters_are_those_of_the_first_chunk(broker):
    chunks = split(started(CHILDREN), items_max=1)
    assert len(chunks) == len(CHILDREN)
    broker.write(*chunks)
    assert broker.filters() == FILTERS
    assert broker.start() == chunks[0]


def test_other_names_than_those_of_the_stream_are_refused(broker):
    broker.write(started())
    require_topic_names(
        broker.settings(topic_template="{prefix}-{table}"), RECORD_SCHEMAS.__getitem__
    )
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with") as caught:
        require_topic_names(broker.settings(), RECORD_SCHEMAS.__getitem__)
    assert caught.value.exit_code == 2


def test_a_record_that_is_not_one_of_a_stream_is_an_error(broker):
    broker.put(b"of another program")
    with pytest.raises(SchemaError):
        broker.filters()


class Client:
    """Answers with errors, the last one again and again."""

    def __init__(self, *codes):
        self._codes = list(codes)
        self.is_closed = False

    def consume(self, *_):
        return [self]

    def error(self):
        return KafkaError(self._codes.pop(0) if self._codes[1:] else self._codes[0])

    def value(self):
        return b"text of the error"

    def close(self):
        self.is_closed = True


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConfigError),
        (KafkaError._TRANSPORT, UnreachableError),
    ],
)
def test_a_topic_that_cannot_be_read_is_named(monkeypatch, code, kind):
    client = Client(code)
    monkeypatch.setattr(stream_start, "consume_from_beginning", lambda *_, **__: client)
    monkeypatch.setattr(stream_start, "_PATIENCE_S", 0.1)
    with pytest.raises(kind, match="bank-progress"):
        recorded_filters("bank-progress", bootstrap_servers="b", options={}, schema_of=dict)
    assert client.is_closed


def test_no_right_to_a_group_is_needed(monkeypatch):
    """The client asks for the coordinator of the group that it is named after."""
    client = Client(KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._PARTITION_EOF)
    monkeypatch.setattr(stream_start, "consume_from_beginning", lambda *_, **__: client)
    found = recorded_filters("bank-progress", bootstrap_servers="b", options={}, schema_of=dict)
    assert found is None
    assert client.is_closed
