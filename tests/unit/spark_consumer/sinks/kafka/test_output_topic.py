"""What answers of Kafka's clients mean: scripted clients stand for confluent-kafka's."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.program import calls
from tidegate.program.kafka_errors import AT_END
from tidegate.schemas.errors import ConfigError, InvariantViolation, UnreachableError
from tidegate.spark_consumer.errors import ReleaseUnconfirmed, TopicWriterReplaced
from tidegate.spark_consumer.sinks.kafka import output_topic, topics
from tidegate.spark_consumer.sinks.kafka.output_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kafka.port import ReleaseRecord, TopicFacts
from tidegate.spark_consumer.sinks.kafka.topics import TopicReader, TopicSetup

FENCED = KafkaError(KafkaError._FENCED, fatal=True)

BROKEN = KafkaError(KafkaError._FATAL, fatal=True)

ABORTABLE = KafkaError(KafkaError.UNKNOWN_PRODUCER_ID, txn_requires_abort=True)

SILENT = KafkaError(KafkaError._TIMED_OUT, retriable=True)

DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True)

TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)

PURGED = KafkaError(KafkaError._PURGE_QUEUE)

HANGS = object()

PATIENCE_S = 20

RECORD = ReleaseRecord("q", 0, 0, 1, 1, "id", 1)


class Failed:
    """The message of a failed delivery."""

    key, value = (lambda self: b"key"), (lambda self: b"value")


class ScriptedClient:
    """Delivers one message for each poll; a call whose name is scripted raises what stands next."""

    def __init__(self, **script):
        self.script = {name: list(errors) for name, errors in script.items()}
        self.calls = []
        self.sent = []
        self.waiting = 0
        self.failures = []
        """Errors of the next deliveries."""
        self.may_answer = threading.Event()

    def _do(self, name):
        self.calls.append(name)
        error = (self.script.get(name) or [None]).pop(0)
        if error is HANGS:
            self.may_answer.wait(PATIENCE_S)
        elif isinstance(error, KafkaError):
            raise KafkaException(error)
        elif error is not None:
            raise error

    def __len__(self):
        return self.waiting

    def init_transactions(self, _timeout_s):
        self._do("init")

    def begin_transaction(self):
        self._do("begin")

    def produce(self, topic, value, key, partition, *, headers):
        self._do("produce")
        self.sent.append((topic, partition, key, value, headers))
        self.waiting += 1

    def poll(self, _timeout_s):
        self._do("poll")
        if self.waiting:
            self.waiting -= 1
            if self.failures and (error := self.failures.pop(0)) is not None:
                self.config["on_delivery"](error, Failed())

    def commit_transaction(self, _timeout_s):
        self._do("commit")

    def abort_transaction(self, _timeout_s):
        self._do("abort")

    def purge(self):
        self._do("purge")


class Clock:
    """Passes by a second with each look."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now

    def sleep(self, seconds):
        self.now += seconds


# ---------------------------------------------------------------- the producer
@pytest.fixture
def started(monkeypatch):
    """Make a topic whose producer is the client's."""

    def start(client, *, timeout_ms=60_000, begin=True, **options):
        def connect(config):
            client.config = config
            return client

        class Setup:
            def __init__(self, *_):
                pass

            def ensure_output(self, _topic, *, topic_partitions):
                return TopicFacts("id", topic_partitions, frozenset({"delete"})), 10_000

            def ensure_releases(self, _topic):
                return TopicFacts("id-2", 1, frozenset({"compact"}))

        monkeypatch.setattr(output_topic, "Producer", connect)
        monkeypatch.setattr(output_topic, "TopicSetup", Setup)
        monkeypatch.setattr(output_topic, "time", Clock())
        topic = KafkaOutputTopic(
            "all", bootstrap_servers="x", transaction_timeout_ms=timeout_ms, **options
        )
        topic.ensure()
        topic.start("id")
        if begin:
            topic.begin()
        return topic

    return start


def send(topic):
    topic.produce(0, b"key", b"value", [("h", b"1")])
    topic.produce_release(RECORD)
    topic.flush()
    topic.commit()


def sent_by(started, failures=(), **script):
    """Send a release with a client of this script; return the client."""
    client = ScriptedClient(**script)
    client.failures = list(failures)
    send(started(client))
    return client


def test_a_release_goes_to_both_topics_when_the_queue_has_room(started):
    client = sent_by(started, produce=[BufferError(), BufferError(), None])
    assert client.sent == [
        ("all", 0, b"key", b"value", [("h", b"1")]),
        ("all-releases", 0, b"q", RECORD.value, []),
    ]
    assert client.calls[:2] == ["init", "begin"]
    assert client.calls[-1] == "commit"


def test_options_cannot_change_what_exactly_once_needs(started):
    client = ScriptedClient()
    started(client, options={"enable.idempotence": False, "linger.ms": 50})
    config = client.config
    assert config["enable.idempotence"] is True
    assert (config["transactional.id"], config["linger.ms"]) == ("id", 50)
    assert config["delivery.report.only.error"] is True
    # What the topic takes is what the client sends.
    assert (config["message.max.bytes"], config["batch.size"]) == (10_000, 10_000)


def test_records_that_are_not_delivered_end_the_release(started):
    with pytest.raises(ReleaseUnconfirmed, match="time-out"):
        sent_by(started, produce=[BufferError()] * 100)
    client = ScriptedClient()
    topic = started(client)
    client.waiting = 1_000
    with pytest.raises(ReleaseUnconfirmed, match="were not delivered"):
        topic.flush()


@pytest.mark.parametrize("call", ["begin", "produce", "poll", "commit"])
def test_a_fenced_producer_means_that_another_run_has_taken_over(started, call):
    with pytest.raises(TopicWriterReplaced, match="another run") as caught:
        sent_by(started, **{call: [FENCED]})
    assert not caught.value.retriable
    for error in (ABORTABLE, BROKEN):
        with pytest.raises(ReleaseUnconfirmed):
            sent_by(started, **{call: [error]})


def test_a_producer_that_is_fenced_after_the_time_out_may_go_on(started):
    """Kafka fences the producer of a transaction that it has ended."""
    topic = started(ScriptedClient(commit=[FENCED]), timeout_ms=1)
    with pytest.raises(ReleaseUnconfirmed, match="outlived") as caught:
        topic.commit()
    assert caught.value.retriable


def test_the_cause_is_asked_for_where_an_error_says_only_that_all_has_ended(started):
    """A run that does not know that it was replaced would take the id from its successor."""
    for error in (BROKEN, PURGED):
        with pytest.raises(TopicWriterReplaced):
            sent_by(started, begin=[None, FENCED], produce=[error])
    for cause, raised in ((FENCED, TopicWriterReplaced), (DENIED, ConfigError)):
        with pytest.raises(raised, match=r"another run|denies access"):
            sent_by(started, [PURGED], begin=[None, cause])


def test_a_commit_is_repeated_until_it_has_an_answer(started):
    assert sent_by(started, commit=[SILENT, SILENT, None]).calls.count("commit") == 3
    client = ScriptedClient(commit=[SILENT] * 100)
    with pytest.raises(ReleaseUnconfirmed):
        send(started(client))
    assert 1 < client.calls.count("commit") < 100
    with pytest.raises(ConfigError, match="denies access"):
        sent_by(started, commit=[DENIED])


def test_a_commit_that_hangs_is_unconfirmed(started, monkeypatch):
    client = ScriptedClient(commit=[HANGS])
    topic = started(client)
    monkeypatch.setattr(output_topic, "_CALL_TIMEOUT_S", 0.01)
    monkeypatch.setattr(output_topic, "_HANGS_AFTER_S", 0.01)
    assert output_topic.call_bounded is calls.call_bounded
    with pytest.raises(ReleaseUnconfirmed, match="does not return"):
        topic.commit()
    client.may_answer.set()


def test_a_record_that_is_too_large_is_named(started):
    for queued in (TOO_LARGE, None):
        with pytest.raises(ConfigError, match="larger than the output topic takes") as caught:
            sent_by(started, [TOO_LARGE], produce=[queued])
        assert caught.value.fields == {"topic": "all", "bytes": 8, "bytes_max": 10_000}
        assert "max.message.bytes of topic all" in caught.value.hint


def test_a_failure_that_says_why_counts_more_until_its_transaction_ends(started):
    client = ScriptedClient()
    topic = started(client)
    for error in (None, PURGED, TOO_LARGE, PURGED):
        client.config["on_delivery"](error, Failed())
    with pytest.raises(ConfigError, match="larger"):
        topic.flush()
    topic.abort()
    topic.begin()
    send(topic)
    assert client.calls[-1] == "commit"


def test_a_start_is_repeated_until_the_coordinator_answers(started):
    client = ScriptedClient(init=[SILENT, SILENT, None])
    topic = started(client)
    assert client.calls == ["init", "init", "init", "begin"]
    # An abort raises nothing, and a topic that is not started is refused.
    client.script["abort"] = [FENCED]
    topic.abort()
    assert client.calls[-2:] == ["purge", "abort"]
    topic.close()
    topic.abort()
    with pytest.raises(InvariantViolation, match="not started"):
        topic.begin()


def test_a_start_that_fails_for_good_says_so(started):
    for error, raised in (
        (SILENT, UnreachableError),
        (BROKEN, UnreachableError),
        (DENIED, ConfigError),
        (KafkaError(KafkaError._UNSUPPORTED_FEATURE, "no transactions"), ConfigError),
        (KafkaError(KafkaError.UNSUPPORTED_VERSION, "none", retriable=True), ConfigError),
    ):
        with pytest.raises(raised, match="init_transactions failed"):
            started(ScriptedClient(init=[error] * 1_000))
    refused = KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(ConfigError, match="ordered_topic_timeout_ms") as error:
        started(ScriptedClient(init=[refused]))
    assert "transaction.max.timeout.ms" in str(error.value)


# ---------------------------------------------------------------- the newest record
class Message:
    def __init__(self, offset, value=None, error=None):
        self.offset, self.value, self.error = (lambda: offset), (lambda: value), (lambda: error)


class Broker:
    """Offsets of one topic: `records` are those that are committed, by topic partition."""

    def __init__(self, *records, begin=0, end=10):
        self.records, self.begin, self.end = records, begin, end
        self.stable_end = end
        self.starts = []
        self.closed = 0
        self.error = None

    # ------------------------------------------------------------ the admin client

    def list_offsets(self, places, *, isolation_level, request_timeout):
        assert isolation_level.name == "READ_UNCOMMITTED"
        kinds = {type(spec).__name__ for spec in places.values()}
        offset = self.begin if kinds == {"EarliestSpec"} else self.end
        return {place: SimpleNamespace(result=lambda: self.answer(offset)) for place in places}

    def answer(self, offset):
        if isinstance(self.error, KafkaError) and self.error.code() == KafkaError._TIMED_OUT:
            raise KafkaException(self.error)
        return SimpleNamespace(offset=offset)

    # ------------------------------------------------------------ the consumer

    def assign(self, places):
        (place,) = places
        self.starts.append((place.partition, place.offset))
        self.left = [
            Message(offset, value)
            for offset, value in self.records[place.partition]
            if place.offset <= offset < self.stable_end
        ]
        self.left.append(Message(self.stable_end, error=KafkaError(AT_END)))

    def consume(self, number, _timeout_s):
        if self.error is not None:
            return [Message(0, error=self.error)]
        found, self.left = self.left[:1], self.left[1:]
        return found

    def close(self):
        self.closed += 1


@pytest.fixture
def reader_of(monkeypatch):
    def make(broker, tail_offsets=1_000):
        monkeypatch.setattr(topics, "AdminClient", lambda _config: broker)
        monkeypatch.setattr(topics, "consume_from_beginning", lambda *_, **__: broker)
        monkeypatch.setattr(topics, "time", Clock())
        return TopicReader("x", {}, patience_s=20.0, tail_offsets=tail_offsets)

    return make


@pytest.mark.parametrize(
    ("broker", "value", "starts"),
    [
        (Broker([(2, b"a"), (4, b"b"), (7, b"c")]), b"c", [(0, 0)]),
        # Reading begins near the end, and goes back where nothing there was committed.
        (Broker([(0, b"a"), (96, b"b")], end=100), b"b", [(0, 90)]),
        (Broker([(3, b"a")], begin=2, end=1_000), b"a", [(0, 990), (0, 900), (0, 2)]),
        (Broker([], end=10), None, [(0, 0)]),
        (Broker([], begin=10, end=10), None, []),
    ],
)
def test_the_last_committed_record_is_the_newest(reader_of, broker, value, starts):
    assert reader_of(broker, tail_offsets=10).newest_value("t") == value
    assert broker.starts == starts
    assert broker.closed == len(starts)


def test_an_open_transaction_is_waited_for_and_reported(reader_of):
    broker = Broker([(2, b"a"), (8, b"b")])
    broker.stable_end = 5
    consume = broker.consume

    def consume_and_settle(number, timeout_s):
        if not broker.left and broker.stable_end == 5:
            broker.stable_end = 10
            broker.left = [Message(8, b"b"), Message(10, error=KafkaError(AT_END))]
        return consume(number, timeout_s)

    broker.consume = consume_and_settle
    assert reader_of(broker).newest_value("t") == b"b"
    stays_open = Broker([(2, b"a")])
    stays_open.stable_end = 5
    with pytest.raises(UnreachableError, match="cannot be read to its end") as caught:
        reader_of(stays_open).newest_value("t")
    assert caught.value.fields == {"topic": "t", "end": 10}
    assert stays_open.closed == 1
    # A record after the end is not read.
    later = Broker([(2, b"a"), (10, b"b")], end=10)
    later.stable_end = 11
    assert reader_of(later).newest_value("t") == b"a"


def test_any_committed_record_counts(reader_of):
    for records, expected in (
        ([[], []], False), ([[], [(3, b"a")]], True), ([[(1, b"a")], []], True),
    ):  # fmt: skip
        broker = Broker(*records)
        assert reader_of(broker).has_records("t", 2) is expected
        assert broker.closed == len(broker.starts)


def test_a_topic_that_cannot_be_read_is_named(reader_of):
    denied, away, silent = (KafkaError(code) for code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT, KafkaError._TIMED_OUT
    ))  # fmt: skip
    for error, raised, text in (
        (denied, ConfigError, "cannot read topic t"),
        (away, UnreachableError, "cannot be read to its end .*cause="),
        (silent, UnreachableError, "cannot find the end of topic t"),
    ):
        broker = Broker([(2, b"a")])
        broker.error = error
        with pytest.raises(raised, match=text):
            reader_of(broker).newest_value("t")


# ---------------------------------------------------------------- topics are created
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
        monkeypatch.setattr(topics, "AdminClient", lambda _config: admin)
        monkeypatch.setattr(topics, "TopicCollection", lambda names: SimpleNamespace(names=names))
        monkeypatch.setattr(topics, "_CALL_TIMEOUT_S", 0.2)
        return TopicSetup("x", {})

    return make


def test_a_missing_output_topic_takes_large_records(setup_on):
    admin = ScriptedAdmin()
    facts, bytes_max = setup_on(admin).ensure_output("all", topic_partitions=6)
    assert (facts, bytes_max) == (TopicFacts("id of all", 6, frozenset({"delete"})), 1_234)
    settings = {"cleanup.policy": "delete", "max.message.bytes": "104857600"}
    assert admin.wanted == [("all", 6, settings)]
    # A limit that the brokers refuse is lowered.
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


def test_a_topic_that_exists_or_another_run_creates_is_taken_and_not_altered(setup_on):
    admin = ScriptedAdmin(policy="compact, delete")
    admin.topics["all"] = 3
    facts, _ = setup_on(admin).ensure_output("all", topic_partitions=1)
    assert facts == TopicFacts("id of all", 3, frozenset({"compact", "delete"}))
    assert admin.wanted == []
    admin = ScriptedAdmin(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
    admin.appears_after = 3
    facts, _ = setup_on(admin).ensure_output("all", topic_partitions=1)
    assert facts.topic_partitions == 1
    admin = ScriptedAdmin()
    admin.bytes_max = None
    assert setup_on(admin).ensure_output("all", topic_partitions=1)[1] == 1_048_588


UNSUPPORTED = KafkaError(KafkaError._UNSUPPORTED_FEATURE, "DescribeConfigs")


@pytest.mark.parametrize(
    ("refusal", "fields", "raised", "text"),
    [
        (None, {"appears_after": 1_000}, UnreachableError, "not visible"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, {}, ConfigError, "denies access"),
        (KafkaError.POLICY_VIOLATION, {}, ConfigError, "cannot create topic all: "),
        (KafkaError._TRANSPORT, {}, UnreachableError, "no Kafka broker answers"),
        (None, {"description": SILENT}, UnreachableError, "cannot describe topic all"),
        (None, {"policy": DENIED}, ConfigError, "cannot read the settings of topic all"),
        # The policy decides what is deleted, so that nothing is assumed.
        (None, {"policy": None}, ConfigError, "does not show its cleanup.policy"),
        (None, {"policy": UNSUPPORTED}, ConfigError, "does not support"),
    ],
)
def test_a_topic_that_cannot_be_made_says_what_to_do(setup_on, refusal, fields, raised, text):
    admin = ScriptedAdmin(*([] if refusal is None else [KafkaError(refusal)] * 4))
    vars(admin).update(fields)
    with pytest.raises(raised, match=text):
        setup_on(admin).ensure_output("all", topic_partitions=1)
    assert bool(admin.wanted) is ("description" not in fields)
