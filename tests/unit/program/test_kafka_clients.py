"""Kafka's clients: rejected options, errors with their fix, log lines, reading a topic."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import nullcontext, suppress
from types import SimpleNamespace
from typing import ClassVar

import pytest
import structlog
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer
from pydantic_settings import SettingsConfigDict

from tidegate.program import kafka_clients, stream_start
from tidegate.program.kafka_clients import (
    KafkaClientLog,
    admin_config,
    consume_from_beginning,
    list_topics,
    listed_offset,
    make_client,
    require_own_prefix,
)
from tidegate.program.kafka_errors import is_decisive, is_denied, is_unsupported, kafka_failure
from tidegate.program.settings_stream import StreamSettings
from tidegate.program.stream_start import recorded_filters, recorded_start, require_topic_names
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    StreamStarted,
)
from tidegate.schemas.progress_chunks import split
from tidegate.schemas.progress_codec import RECORD_SCHEMAS, encode_record
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame

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
        *(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"),
        *("denies access to transactional ids", "ACLs"),
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
    kind = UnreachableError if code == KafkaError._RESOLVE else ConfigError
    assert type(failure) is kind
    assert str(failure).startswith("cannot do it: ")
    assert error_text in str(failure)
    assert fix in failure.hint
    assert "b:1" in str(failure)
    # It explains a call that timed out.
    reported = [KafkaError(KafkaError._ALL_BROKERS_DOWN), error]
    assert error_text in str(kafka_failure(TIMED_OUT, reported=reported))


def test_without_a_cause_no_broker_answers_and_only_a_missing_acl_ends_a_program():
    failure = kafka_failure(TIMED_OUT, reported=[KafkaError(KafkaError._ALL_BROKERS_DOWN)])
    assert isinstance(failure, UnreachableError)
    assert "no Kafka broker answers (cause='_TIMED_OUT')" in str(failure)
    assert not is_decisive(TIMED_OUT)
    codes = ("GROUP_AUTHORIZATION_FAILED", "_RESOLVE", "_SSL", "_TRANSPORT")
    denied = [is_denied(KafkaError(getattr(KafkaError, code))) for code in codes]
    assert denied == [True, False, False, False]


UNSUPPORTED = "cannot do it: the Kafka service does not support this request: why"
ANSWERED = "cannot do it: Kafka answered with an error: why"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError._UNSUPPORTED_FEATURE, ConfigError, UNSUPPORTED),
        (KafkaError._NOT_IMPLEMENTED, ConfigError, UNSUPPORTED),
        (KafkaError.UNSUPPORTED_VERSION, ConfigError, UNSUPPORTED),
        (KafkaError.INVALID_REQUEST, ConfigError, UNSUPPORTED),
        (KafkaError.NOT_CONTROLLER, UnreachableError, ANSWERED),
        (KafkaError.POLICY_VIOLATION, UnreachableError, ANSWERED),
        (KafkaError.INVALID_CONFIG, UnreachableError, ANSWERED),
    ],
)
def test_what_a_service_answers_is_not_called_no_answer(code, kind, text):
    failure = kafka_failure(KafkaError(code, "why"), attempt="cannot do it")
    assert isinstance(failure, kind)
    assert text in str(failure)
    assert is_unsupported(KafkaError(code)) == (kind is ConfigError)


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
    for failure in (kafka_failure(TIMED_OUT, reported=[error]), kafka_failure(error)):
        assert isinstance(failure, UnreachableError)


SASL = {"security.protocol": "sasl_plaintext"}


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
        (Consumer, {**SASL, "sasl.mechanism": "hush"}, "Unsupported SASL mechanism: ***"),
        (
            Consumer,
            {**SASL, "sasl.mechanism": "PLAIN"},
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
    wanted = {"bootstrap.servers": "b:1", "log_level": 0, "client.id": "x"}
    assert admin_config("b:1", options) == wanted


@pytest.mark.parametrize(
    ("address", "timeout_s", "text"),
    [
        ("127.0.0.1:1", 0.2, r"no Kafka broker answers.*127\.0\.0\.1:1"),
        # A name that is unknown is not waited for.
        ("no-such-host.invalid:9092", 60, "cannot be resolved"),
    ],
)
def test_a_broker_that_does_not_answer_is_named(capfd, address, timeout_s, text):
    with pytest.raises(UnreachableError, match=text):
        list_topics(address, timeout_s=timeout_s)
    assert capfd.readouterr().err == ""


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


@pytest.fixture
def lines():
    with structlog.testing.capture_logs() as captured:
        yield captured


def test_the_lines_of_a_kind_are_one_a_minute(lines):
    now_s = [0.0]
    log = KafkaClientLog(interval_s=60, clock=lambda: now_s[0])

    def say(kind, level=logging.ERROR):
        log.log(level, "%s [%s] %s", kind, "worker-1", "down")

    for _ in range(200):
        say("FAIL")
        now_s[0] += 0.5
    line = {"event": "Kafka client", "kind": "FAIL", "client": "worker-1", "text": "down"}
    assert lines == [
        {**line, "log_level": "warning", "left_out": left_out} for left_out in (0, 119)
    ]
    # Another kind is not held back, and any other call is a line too.
    say("OFFSET", logging.INFO)
    log.log(logging.ERROR, "plain %s", "text")
    assert (lines[2]["kind"], lines[2]["log_level"]) == ("OFFSET", "info")
    assert lines[3]["text"] == "plain text"


def test_a_real_clients_lines_come_here_and_not_to_standard_error(lines, capfd):
    log = KafkaClientLog(interval_s=60)
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "logger": log})
    give_up_at = time.monotonic() + 10
    while not lines and time.monotonic() < give_up_at:
        consumer.poll(0.05)
    consumer.close()
    assert "127.0.0.1:1" in lines[0]["text"]
    assert capfd.readouterr().err == ""


def test_an_answer_without_an_offset_is_an_error_that_may_be_retried():
    for offset in (0, 7, -1):
        assert listed_offset(SimpleNamespace(offset=offset)) == offset
    with pytest.raises(KafkaException) as caught:
        listed_offset(SimpleNamespace(offset=OFFSET_INVALID))
    assert caught.value.args[0].code() == KafkaError.OFFSET_NOT_AVAILABLE


NOT_YET_KNOWN = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
GROUP_DENIED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
WRONG_LOGIN = KafkaError(KafkaError._AUTHENTICATION, "wrong password")


class FakeConsumer:
    """Begins at what `answers` say, one after the other, and then at 0."""

    answers: list[object]
    reports: list[KafkaError]
    made: list[FakeConsumer]

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


@pytest.fixture
def kafka(monkeypatch):
    FakeConsumer.answers, FakeConsumer.reports, FakeConsumer.made = [], [], []
    monkeypatch.setattr(kafka_clients, "Consumer", FakeConsumer)
    monkeypatch.setattr(kafka_clients.time, "sleep", lambda _seconds: None)
    return FakeConsumer


def opened(*numbers, **more):
    return consume_from_beginning("p", numbers, bootstrap_servers="x", client_group="g", **more)


def test_it_reads_committed_records_from_the_beginning_and_joins_nothing(kafka):
    kafka.answers = [(0, 9), (7, 9)]
    options = {"group.id": "others", "client.rack": "r", "auto.offset.reset": "earliest"}
    consumer = opened(2, 3, options=options, sizes={"fetch.max.bytes": 7})
    assert consumer.assigned == [("p", 2, 0), ("p", 3, 7)]
    expected = {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "group.id": "g",
        "client.rack": "r",
        "fetch.max.bytes": 7,
        # An offset that is gone is an error and never a new beginning.
        "auto.offset.reset": "error",
    }
    assert {name: consumer.config[name] for name in expected} == expected


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
    monkeypatch.setattr(kafka_clients, "_PATIENCE_S", 0.0)
    kafka.answers = [NOT_YET_KNOWN, (4, 9)]
    with pytest.raises(UnreachableError, match="cannot read topic p"):
        opened(0)
    assert kafka.made[0].is_closed


VERSION = 2
FILTERS = ("exclude_insert=true", "producer.topic_template={prefix}-{table}")
CHILDREN = tuple(ChildPartition(f"t{number}", ("",), 0) for number in range(3))


class PrefixSettings(StreamSettings):
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

    def recorded(self, read):
        return read(
            "bank-progress",
            bootstrap_servers=self.address,
            options={},
            schema_of=RECORD_SCHEMAS.__getitem__,
        )

    def require_names(self, **changes):
        settings = PrefixSettings.load(
            None, bootstrap_servers=self.address, registry_url="http://r", prefix="bank", **changes
        )
        require_topic_names(settings, RECORD_SCHEMAS.__getitem__)


@pytest.fixture
def broker(monkeypatch):
    monkeypatch.setattr(stream_start, "_POLL_S", 0.05)
    broker = Broker()
    yield broker
    broker.client.flush(0)
    del broker.client


def test_a_topic_without_a_stream_has_no_filters_and_other_records_are_an_error(broker):
    assert broker.recorded(recorded_filters) is broker.recorded(recorded_start) is None
    broker.put(None)  # removes an earlier record, for compaction
    broker.write(PartitionAnnounced(ChildPartition("t", ("",), 0), ""))
    assert broker.recorded(recorded_filters) is None
    broker.require_names()
    broker.put(b"of another program")
    with pytest.raises(SchemaError):
        broker.recorded(recorded_filters)


def test_the_filters_are_those_of_the_first_chunk_and_fix_the_names(broker):
    chunks = split(started(CHILDREN), items_max=1)
    assert len(chunks) == len(CHILDREN)
    broker.write(*chunks)
    assert broker.recorded(recorded_filters) == FILTERS
    assert broker.recorded(recorded_start) == chunks[0]
    broker.require_names(topic_template="{prefix}-{table}")
    with pytest.raises(ConfigError, match="topic_template: the stream was begun with") as caught:
        broker.require_names()
    assert caught.value.exit_code == 2


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
    ("codes", "kind"),
    [
        ([KafkaError.TOPIC_AUTHORIZATION_FAILED], ConfigError),
        ([KafkaError._TRANSPORT], UnreachableError),
        # The client asks for the coordinator of the group that it is named after.
        ([KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._PARTITION_EOF], None),
    ],
)
def test_a_topic_that_cannot_be_read_is_named_and_no_right_to_a_group_is_needed(
    monkeypatch, codes, kind
):
    client = Client(*codes)
    monkeypatch.setattr(stream_start, "consume_from_beginning", lambda *_, **__: client)
    monkeypatch.setattr(stream_start, "_PATIENCE_S", 0.1)
    text = "bank-progress" if kind is not UnreachableError else "bank-progress.*cause="
    refusal = nullcontext() if kind is None else pytest.raises(kind, match=text)
    with refusal:
        found = recorded_filters("bank-progress", bootstrap_servers="b", options={}, schema_of=dict)
        assert found is None
    assert client.is_closed


def test_the_time_to_find_the_beginning_is_not_taken_from_the_time_to_read(monkeypatch):
    now_s, client = [0.0], Client(KafkaError._PARTITION_EOF)

    def open_slowly(*_, **__):
        now_s[0] += 29.0
        return client

    def consume(*_):
        now_s[0] += 2.0
        return [client] if now_s[0] > 32 else []

    client.consume = consume
    monkeypatch.setattr(stream_start, "consume_from_beginning", open_slowly)
    monkeypatch.setattr(stream_start.time, "monotonic", lambda: now_s[0])
    assert recorded_start("p", bootstrap_servers="b", options={}, schema_of=dict) is None
