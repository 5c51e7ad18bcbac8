"""What the client's answers mean; a scripted client stands for confluent-kafka's."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.program import bounded_call
from tidegate.schemas.errors import ConfigError, InvariantViolation, UnreachableError
from tidegate.spark_consumer.errors import ReleaseUnconfirmed, TopicWriterReplaced
from tidegate.spark_consumer.sinks.kafka import kafka_topic
from tidegate.spark_consumer.sinks.kafka.kafka_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kafka.port import TopicFacts
from tidegate.spark_consumer.sinks.kafka.release_record import ReleaseRecord

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
        """Of the deliveries to come."""
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

        monkeypatch.setattr(kafka_topic, "Producer", connect)
        monkeypatch.setattr(kafka_topic, "TopicSetup", Setup)
        monkeypatch.setattr(kafka_topic, "time", Clock())
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


def test_a_release_goes_to_both_topics(started):
    client = ScriptedClient()
    topic = started(client)
    send(topic)
    assert client.sent == [
        ("all", 0, b"key", b"value", [("h", b"1")]),
        ("all-releases", 0, b"q", RECORD.value, []),
    ]
    assert client.calls[:2] == ["init", "begin"]
    assert client.calls[-1] == "commit"


def test_options_cannot_change_what_exactly_once_needs(started):
    client = ScriptedClient()
    topic = started(client, options={"enable.idempotence": False, "linger.ms": 50})
    config = client.config
    assert config["enable.idempotence"] is True
    assert (config["transactional.id"], config["linger.ms"]) == ("id", 50)
    assert config["delivery.report.only.error"] is True
    # What the topic takes is what the client sends.
    assert (config["message.max.bytes"], config["batch.size"]) == (10_000, 10_000)
    topic.close()


def test_a_full_queue_is_waited_for(started):
    client = ScriptedClient(produce=[BufferError(), BufferError(), None])
    send(started(client))
    assert [sent[0] for sent in client.sent] == ["all", "all-releases"]


def test_a_queue_that_stays_full_ends_the_release(started):
    client = ScriptedClient(produce=[BufferError()] * 100)
    with pytest.raises(ReleaseUnconfirmed, match="time-out"):
        send(started(client))


def test_records_that_are_not_delivered_end_the_release(started):
    client = ScriptedClient()
    topic = started(client)
    client.waiting = 1_000
    with pytest.raises(ReleaseUnconfirmed, match="were not delivered"):
        topic.flush()


@pytest.mark.parametrize("call", ["begin", "produce", "poll", "commit"])
def test_a_fenced_producer_means_that_another_run_has_taken_over(started, call):
    script = {call: [FENCED]}
    with pytest.raises(TopicWriterReplaced, match="another run") as caught:
        send(started(ScriptedClient(**script)))
    assert not caught.value.retriable


def test_a_producer_that_is_fenced_after_the_time_out_may_go_on(started):
    """Kafka fences the producer of a transaction that it has ended."""
    topic = started(ScriptedClient(commit=[FENCED]), timeout_ms=1)
    with pytest.raises(ReleaseUnconfirmed, match="outlived") as caught:
        topic.commit()
    assert caught.value.retriable


@pytest.mark.parametrize("error", [BROKEN, PURGED])
def test_the_cause_is_asked_for_where_an_error_says_only_that_all_has_ended(started, error):
    """A run that does not know that it was replaced would take the id from its successor."""
    with pytest.raises(TopicWriterReplaced):
        send(started(ScriptedClient(begin=[None, FENCED], produce=[error])))


def test_the_cause_is_asked_for_where_records_were_purged(started):
    client = ScriptedClient(begin=[None, FENCED])
    client.failures = [PURGED]
    with pytest.raises(TopicWriterReplaced):
        send(started(client))


def test_records_that_were_purged_for_a_missing_right_name_it(started):
    client = ScriptedClient(begin=[None, DENIED])
    client.failures = [PURGED]
    with pytest.raises(ConfigError, match="denies access"):
        send(started(client))


@pytest.mark.parametrize("call", ["begin", "produce", "poll", "commit"])
@pytest.mark.parametrize("error", [ABORTABLE, BROKEN])
def test_an_ended_transaction_is_unconfirmed(started, call, error):
    script = {call: [error]}
    with pytest.raises(ReleaseUnconfirmed):
        send(started(ScriptedClient(**script)))


def test_a_commit_without_an_answer_is_repeated(started):
    client = ScriptedClient(commit=[SILENT, SILENT, None])
    send(started(client))
    assert client.calls.count("commit") == 3


def test_a_commit_that_never_has_an_answer_is_unconfirmed(started):
    client = ScriptedClient(commit=[SILENT] * 100)
    with pytest.raises(ReleaseUnconfirmed):
        send(started(client))
    assert 1 < client.calls.count("commit") < 100


def test_a_commit_that_hangs_is_unconfirmed(started, monkeypatch):
    client = ScriptedClient(commit=[HANGS])
    topic = started(client)
    monkeypatch.setattr(kafka_topic, "_CALL_TIMEOUT_S", 0.01)
    monkeypatch.setattr(kafka_topic, "_HANGS_AFTER_S", 0.01)
    assert kafka_topic.call_bounded is bounded_call.call_bounded
    with pytest.raises(ReleaseUnconfirmed, match="does not return"):
        topic.commit()
    client.may_answer.set()


@pytest.mark.parametrize("place", ["queue", "broker"])
def test_a_record_that_is_too_large_is_named(started, place):
    client = ScriptedClient(produce=[TOO_LARGE if place == "queue" else None])
    client.failures = [TOO_LARGE]
    with pytest.raises(ConfigError, match="larger than the output topic takes") as caught:
        send(started(client))
    assert caught.value.fields == {"topic": "all", "bytes": 8, "bytes_max": 10_000}
    assert "max.message.bytes of topic all" in caught.value.hint


def test_a_failure_that_says_why_counts_more_than_those_that_follow_it(started):
    client = ScriptedClient()
    topic = started(client)
    on_delivery = client.config["on_delivery"]
    for error in (None, PURGED, TOO_LARGE, PURGED):
        on_delivery(error, Failed())
    with pytest.raises(ConfigError, match="larger"):
        topic.flush()


def test_a_failure_is_forgotten_with_its_transaction(started):
    client = ScriptedClient()
    topic = started(client)
    client.config["on_delivery"](ABORTABLE, Failed())
    topic.abort()
    topic.begin()
    send(topic)
    assert client.calls[-1] == "commit"


def test_a_right_that_is_missing_is_the_settings_fault(started):
    with pytest.raises(ConfigError, match="denies access"):
        send(started(ScriptedClient(commit=[DENIED])))


def test_a_start_is_repeated_until_the_coordinator_answers(started):
    client = ScriptedClient(init=[SILENT, SILENT, None])
    started(client)
    assert client.calls == ["init", "init", "init", "begin"]


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (SILENT, UnreachableError),
        (BROKEN, UnreachableError),
        (DENIED, ConfigError),
        (KafkaError(KafkaError._UNSUPPORTED_FEATURE, "no transactions"), ConfigError),
        (
            KafkaError(KafkaError.UNSUPPORTED_VERSION, "no transactions", retriable=True),
            ConfigError,
        ),
    ],
)
def test_a_start_that_fails_for_good_says_so(started, error, raised):
    with pytest.raises(raised, match="init_transactions failed"):
        started(ScriptedClient(init=[error] * 1_000))


def test_a_time_out_that_brokers_do_not_allow_is_the_settings_fault(started):
    refused = KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(ConfigError, match="ordered_topic_timeout_ms") as error:
        started(ScriptedClient(init=[refused]))
    assert "transaction.max.timeout.ms" in str(error.value)


def test_an_abort_raises_nothing(started):
    client = ScriptedClient(abort=[FENCED])
    topic = started(client)
    topic.abort()
    assert client.calls[-2:] == ["purge", "abort"]
    topic.close()
    topic.abort()


def test_a_topic_that_is_not_started_is_refused(started):
    topic = started(ScriptedClient(), begin=False)
    topic.close()
    with pytest.raises(InvariantViolation, match="not started"):
        topic.begin()
