"""What the client's answers mean; a scripted client stands for confluent-kafka's."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.adapters import kafka_publisher
from tidegate.producer.adapters.kafka_publisher import KafkaPublisher
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.schemas.errors import UnreachableError
from tidegate.schemas.progress import TopicOffset

FENCED = KafkaError(KafkaError._FENCED, fatal=True)
BROKEN = KafkaError(KafkaError._FATAL, fatal=True)
ABORTABLE = KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True)
SILENT = KafkaError(KafkaError._TIMED_OUT, retriable=True)
HANGS = object()
PATIENCE_S = 20
RECORD = PublishableRecord(
    1, "t", "0", tuple(ChangeMessage("topic", b"k", b"v", bytes([n]), b"I") for n in range(3))
)


class Report:
    """A delivery report for an offset of topic partition 0."""

    def __init__(self, topic, offset):
        self.topic, self.partition, self.offset = (lambda: topic), (lambda: 0), (lambda: offset)


class ScriptedClient:
    """Delivers one message for each poll; a call whose name is scripted raises what stands next."""

    def __init__(self, **script):
        self.script = {name: list(errors) for name, errors in script.items()}
        self.waiting = []
        self.calls = []
        self.offset = 0
        self.let_go = threading.Event()

    def _do(self, name):
        self.calls.append(name)
        error = (self.script.get(name) or [None]).pop(0)
        if error is HANGS:
            self.let_go.wait(PATIENCE_S)
            return
        if isinstance(error, KafkaError):
            raise KafkaException(error)
        if error is not None:
            raise error

    def __len__(self):
        return len(self.waiting)

    def init_transactions(self, timeout):
        self._do("init")

    def begin_transaction(self):
        self._do("begin")

    def produce(self, topic, *, on_delivery, **_):
        self._do("produce")
        self.waiting.append((topic, on_delivery))

    def poll(self, timeout):
        self._do("poll")
        if self.waiting:
            topic, on_delivery = self.waiting.pop(0)
            on_delivery(None, Report(topic, self.offset))
            self.offset += 1
        return 1

    def send_offsets_to_transaction(self, places, metadata, timeout):
        self._do("send_offsets")

    def commit_transaction(self, timeout):
        self._do("commit")

    def abort_transaction(self, timeout):
        self._do("abort")

    def purge(self):
        self._do("purge")


@pytest.fixture
def publisher_on(monkeypatch):
    def make(client):
        def connect(config):
            client.config = config
            return client

        monkeypatch.setattr(kafka_publisher, "Producer", connect)
        publisher = KafkaPublisher(
            bootstrap_servers="x",
            transactional_id="t",
            transaction_timeout_ms=1_000,
            progress_topic="p",
            key_schema_id=1,
            record_schema_id=2,
        )
        publisher.start()
        assert publisher.begin(b"metadata") is None
        return publisher

    return make


def publish(publisher):
    """Produce the record and wait for its reports; return the first outcome."""
    outcome = publisher.publish_records(do.PublishRecords(4, "token", (RECORD,)))
    return publisher.await_delivery() if outcome is None else outcome


def test_reports_tell_the_last_offset(publisher_on):
    publisher = publisher_on(ScriptedClient())

    assert publish(publisher) == on.Delivered({4: (TopicOffset("topic", 0, 2),)}, {})


def test_a_fence_met_while_waiting_for_reports_is_a_fence(publisher_on):
    """The client raises it out of the call that serves reports; what is left is never served."""
    client = ScriptedClient(poll=[None, FENCED], abort=[FENCED])

    assert publish(publisher_on(client)) == on.ProducerFenced()
    assert len(client) == 2


def test_a_fence_met_while_waiting_for_room_is_a_fence(publisher_on):
    client = ScriptedClient(produce=[None, BufferError(), BufferError()], poll=[None, FENCED])

    assert publish(publisher_on(client)) == on.ProducerFenced()


def test_a_full_queue_is_waited_for(publisher_on):
    client = ScriptedClient(produce=[None, BufferError(), BufferError()])

    assert isinstance(publish(publisher_on(client)), on.Delivered)


def test_reports_that_do_not_come_abort(publisher_on, monkeypatch):
    monkeypatch.setattr(kafka_publisher, "_CALL_TIMEOUT_S", 0.0)
    client = ScriptedClient()
    publisher = publisher_on(client)
    outcome = publish(publisher)

    assert isinstance(outcome, on.TransactionAborted)
    assert "3 messages without a report" in outcome.reason
    assert renews(publisher, client)


def renews(publisher, client):
    """Whether the next transaction begins with a new producer."""
    client.calls.clear()
    client.waiting.clear()
    assert publisher.begin(b"metadata") is None
    return client.calls == ["init", "begin"]


def test_a_refusal_of_the_group_is_no_reason_for_a_new_producer(publisher_on):
    client = ScriptedClient(send_offsets=[ABORTABLE])
    publisher = publisher_on(client)
    assert isinstance(publisher.send_offsets(((0, 1),)), on.TransactionAborted)

    assert not renews(publisher, client)


@pytest.mark.parametrize("call", ["produce", "send_offsets", "commit"])
def test_an_error_of_the_producer_is_a_reason_for_a_new_one(publisher_on, call):
    """After a broker was away, a fence of the former one would wait for its time-out each time."""
    lost = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, txn_requires_abort=True)
    client = ScriptedClient(**{call: [lost]})
    publisher = publisher_on(client)
    outcome = publish(publisher)
    if isinstance(outcome, on.Delivered):
        outcome = publisher.send_offsets(((0, 1),)) or publisher.commit()
    assert isinstance(outcome, on.TransactionAborted)

    assert renews(publisher, client)
    assert not renews(publisher, client)


@pytest.mark.parametrize(
    ("code", "expected"), [(KafkaError._ALL_BROKERS_DOWN, True), (KafkaError._TRANSPORT, False)]
)
def test_who_has_seen_all_brokers_gone_is_renewed(publisher_on, code, expected):
    client = ScriptedClient()
    publisher = publisher_on(client)
    client.config["error_cb"](KafkaError(code))

    assert renews(publisher, client) == expected


@pytest.mark.parametrize(
    ("error", "abort", "expected"),
    [
        (FENCED, None, on.ProducerFenced),
        (BROKEN, None, on.CommitOutcomeUnknown),
        (ABORTABLE, None, on.TransactionAborted),
        (ABORTABLE, FENCED, on.ProducerFenced),
        (ABORTABLE, BROKEN, on.CommitOutcomeUnknown),
    ],
)
@pytest.mark.parametrize("call", ["produce", "send_offsets", "commit"])
def test_an_error_ends_the_transaction_as_its_kind_says(publisher_on, call, error, abort, expected):
    publisher = publisher_on(ScriptedClient(**{call: [error], "abort": [abort]}))
    outcome = publish(publisher)
    if isinstance(outcome, on.Delivered):
        outcome = publisher.send_offsets(((0, 1),)) or publisher.commit()

    assert isinstance(outcome, expected)


def test_a_silent_broker_is_told_as_such(publisher_on):
    publisher = publisher_on(ScriptedClient(commit=[SILENT]))

    assert isinstance(publisher.commit(), on.CommitUnanswered)
    assert publisher.commit() == on.TransactionCommitted()


def test_a_producer_is_made_as_soon_as_the_broker_answers(publisher_on, monkeypatch):
    client = ScriptedClient(init=[SILENT, SILENT])
    publisher_on(client)
    assert client.calls.count("init") == 3

    monkeypatch.setattr(kafka_publisher, "_INIT_PATIENCE_S", -1.0)
    with pytest.raises(UnreachableError, match="no transactional producer"):
        publisher_on(ScriptedClient(init=[SILENT]))


def test_without_membership_nothing_begins(publisher_on):
    client = ScriptedClient()
    publisher = publisher_on(client)

    assert isinstance(publisher.begin(None), on.TransactionAborted)
    assert client.calls == ["init", "begin"]


def test_the_name_of_a_fence_is_the_same_for_client_and_broker(publisher_on):
    by_broker = KafkaError(KafkaError.PRODUCER_FENCED, fatal=True)

    assert publisher_on(ScriptedClient(commit=[by_broker])).commit() == on.ProducerFenced()


@pytest.mark.parametrize("call", ["send_offsets", "commit", "abort"])
def test_a_call_that_does_not_return_is_left_behind(publisher_on, monkeypatch, call):
    monkeypatch.setattr(kafka_publisher, "_CALL_TIMEOUT_S", 0.0)
    monkeypatch.setattr(kafka_publisher, "_HANGS_AFTER_S", 0.05)
    client = ScriptedClient(**{call: [HANGS]})
    publisher = publisher_on(client)
    publisher._patience_s = 0.0
    outcome = {
        "send_offsets": lambda: publisher.send_offsets(((0, 1),)),
        "commit": publisher.commit,
        "abort": lambda: publisher.abort("a slot was lost"),
    }[call]()
    client.let_go.set()

    assert isinstance(outcome, on.CommitOutcomeUnknown)
    assert "does not return" in outcome.reason


def test_a_producer_that_cannot_be_had_in_time_is_an_error(publisher_on, monkeypatch):
    monkeypatch.setattr(kafka_publisher, "_CALL_TIMEOUT_S", 0.0)
    monkeypatch.setattr(kafka_publisher, "_HANGS_AFTER_S", 0.05)
    client = ScriptedClient(init=[HANGS])

    with pytest.raises(UnreachableError, match="does not return"):
        publisher_on(client)
    client.let_go.set()
