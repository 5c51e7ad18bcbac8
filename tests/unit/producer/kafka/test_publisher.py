"""What the client's answers mean; a scripted client stands for confluent-kafka's."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.kafka import publisher as kafka_publisher
from tidegate.producer.kafka import retries
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.messages import (
    FORM_REDRIVEN,
    ChangeMessage,
    ParkedChange,
    PublishableRecord,
)
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.partitioner import topic_partition_of
from tidegate.schemas.progress import TopicOffset

FENCED = KafkaError(KafkaError._FENCED, fatal=True)
BROKEN = KafkaError(KafkaError._FATAL, fatal=True)
ABORTABLE = KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True)
SILENT = KafkaError(KafkaError._TIMED_OUT, retriable=True)
HANGS = object()
PATIENCE_S = 20
RECORD = PublishableRecord(
    1,
    "t",
    "0",
    tuple(ChangeMessage("topic", b"k", b"v", bytes([n]), b"I", bytes(8)) for n in range(3)),
)


class Report:
    """A delivery report for an offset of topic partition 0."""

    def __init__(self, topic, offset):
        self.topic, self.partition, self.offset = (lambda: topic), (lambda: 0), (lambda: offset)
        self.key, self.value = (lambda: b"k"), (lambda: b"v")


class Limits:
    """What is known of the topics' limits; `now` is known after a refresh."""

    def __init__(self, smallest, largest, *now):
        self.smallest, self.largest = smallest, largest
        self.now = list(now)

    def bytes_max(self, topic):
        return self.smallest

    def refresh(self):
        if self.now:
            self.smallest = self.largest = self.now.pop(0)


class ScriptedClient:
    """Delivers one message for each poll; a call whose name is scripted raises what stands next."""

    def __init__(self, **script):
        self.script = {name: list(errors) for name, errors in script.items()}
        self.waiting = []
        self.calls = []
        self.places = []
        self.produced = []
        self.offset = 0
        self.report_errors = []
        """Of the reports to come; then there are none."""
        self.configs = []
        self.may_answer = threading.Event()

    def _do(self, name):
        self.calls.append(name)
        error = (self.script.get(name) or [None]).pop(0)
        if error is HANGS:
            self.may_answer.wait(PATIENCE_S)
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

    def produce(self, topic, value=b"", key=b"", partition=-1, on_delivery=None, **options):
        self._do("produce")
        self.produced.append((topic, value, options.get("headers")))
        self.places.append((topic, partition))
        self.waiting.append((topic, on_delivery))

    def poll(self, timeout):
        self._do("poll")
        if self.waiting:
            topic, on_delivery = self.waiting.pop(0)
            error = self.report_errors.pop(0) if self.report_errors else None
            on_delivery(error, Report(topic, self.offset))
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
    def make(client, limits=None, *, redrives=False, tombstones=False, **options):
        def connect(config):
            client.config = config
            client.configs.append(config)
            return client

        monkeypatch.setattr(kafka_publisher, "Producer", connect)
        publisher = KafkaPublisher(
            bootstrap_servers="x",
            transactional_id="t",
            transaction_timeout_ms=1_000,
            progress_topic="p",
            topic_partitions={"topic": 6, "dead": 2},
            dead_letter="dead",
            redrives=redrives,
            tombstones=tombstones,
            progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)),
            options=options,
            limits=limits,
        )
        publisher.start()
        assert publisher.begin(b"metadata") is None
        return publisher

    return make


def publish(publisher):
    """Produce the record and wait for its reports; return the first outcome."""
    outcome = publisher.publish_records(do.PublishRecords(4, "token", (RECORD,)))
    return publisher.await_delivery() if outcome is None else outcome


def test_keys_stay_where_the_recorded_number_of_topic_partitions_puts_them(publisher_on):
    client = ScriptedClient()
    publish(publisher_on(client))

    assert client.places == [("topic", topic_partition_of(b"k", 6))] * 3


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


def test_a_report_that_comes_late_says_nothing_about_the_next_transaction(publisher_on):
    client = ScriptedClient()
    publisher = publisher_on(client)
    publisher.publish_records(do.PublishRecords(4, "token", (RECORD,)))
    late = [on_delivery for _, on_delivery in client.waiting]
    publisher.abort("a slot was lost")
    client.waiting.clear()
    assert publisher.begin(b"metadata") is None
    for on_delivery in late:
        on_delivery(KafkaError(KafkaError._PURGE_INFLIGHT), Report("topic", -1))
        on_delivery(None, Report("topic", 1_000))

    assert publish(publisher) == on.Delivered({4: (TopicOffset("topic", 0, 2),)}, {})


def test_reports_that_do_not_come_abort(publisher_on, monkeypatch):
    monkeypatch.setattr(kafka_publisher, "_CALL_TIMEOUT_S", 0.0)
    client = ScriptedClient()
    publisher = publisher_on(client)
    outcome = publish(publisher)

    assert isinstance(outcome, on.TransactionAborted)
    assert "3 messages without a report" in outcome.reason
    assert renews(publisher, client)


TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True)


def test_a_refused_message_ends_the_wait_and_is_classified(publisher_on):
    client = ScriptedClient()
    client.report_errors = [None, TOO_LARGE]
    publisher = publisher_on(client)
    outcome = publish(publisher)

    assert isinstance(outcome, on.TransactionAborted)
    assert len(client) == 1, "the third report was waited for"
    assert outcome.failure == on.DeliveryFailure(
        on.DeliveryFault.TOO_LARGE, "MSG_SIZE_TOO_LARGE", 4, "topic", "k",
        RECORD.messages[0].size_bytes, commit_timestamp_us=1,
    )  # fmt: skip
    assert renews(publisher, client)


def test_a_message_that_the_client_refuses_is_classified(publisher_on):
    outcome = publish(publisher_on(ScriptedClient(produce=[None, TOO_LARGE])))

    assert isinstance(outcome, on.TransactionAborted)
    assert outcome.failure.fault is on.DeliveryFault.TOO_LARGE
    assert outcome.failure.commit_timestamp_us == 1


def test_a_failure_that_may_pass_is_classified_as_such(publisher_on):
    client = ScriptedClient()
    client.report_errors = [KafkaError(KafkaError._MSG_TIMED_OUT)]
    outcome = publish(publisher_on(client))

    assert outcome.failure.fault is on.DeliveryFault.TRANSIENT
    assert outcome.failure.reason == "_MSG_TIMED_OUT"


def test_what_purged_the_messages_is_asked_of_the_client(publisher_on, monkeypatch):
    """A topic that the transaction cannot be extended to: the reports say `purged` only."""
    asked = []

    def denied(topics, **_):
        asked.extend(topics)
        return ["topic"]

    monkeypatch.setattr(kafka_publisher, "denied_topics", denied)
    client = ScriptedClient(begin=[None, DENIED], abort=[BROKEN])
    client.report_errors = [PURGED]
    outcome = publish(publisher_on(client))

    assert isinstance(outcome, on.CommitOutcomeUnknown), "the client could not abort"
    assert (outcome.failure.fault, outcome.failure.reason) == (
        on.DeliveryFault.DENIED, "TOPIC_AUTHORIZATION_FAILED",
    )  # fmt: skip
    assert asked == ["topic"]


def test_a_produce_after_the_transaction_failed_reports_why_it_failed(publisher_on):
    """From then on the client takes no message, and says no more than that."""
    client = ScriptedClient(produce=[None, KafkaError(KafkaError._STATE)])
    client.report_errors = [TOO_LARGE]
    outcome = publish(publisher_on(client))

    assert outcome.failure.fault is on.DeliveryFault.TOO_LARGE


def test_a_produce_that_is_quicker_than_the_reports_says_why_the_transaction_failed(publisher_on):
    """The client takes no message before its reports have come: purging makes them come."""

    class PurgesLate(ScriptedClient):
        def poll(self, timeout):
            return super().poll(timeout) if "purge" in self.calls else self._do("poll")

    refuses = KafkaError(KafkaError._STATE)
    client = PurgesLate(produce=[None, refuses], begin=[None, TOO_LARGE], abort=[BROKEN])
    client.report_errors = [PURGED]
    outcome = publish(publisher_on(client))

    assert outcome.failure.fault is on.DeliveryFault.TOO_LARGE


def test_a_fence_that_the_abort_meets_is_a_fence(publisher_on):
    client = ScriptedClient(abort=[FENCED])
    client.report_errors = [TOO_LARGE]

    assert publish(publisher_on(client)) == on.ProducerFenced()


@pytest.mark.parametrize(
    ("limits", "options", "expected"),
    [
        (Limits(2_000, 5_000_000), {}, (5_000_000, 2_000)),
        (Limits(2_000_000, 5_000_000), {}, (5_000_000, 1_000_000)),
        (Limits(2_000, 5_000_000), {"batch.size": 100}, (5_000_000, 100)),
        (Limits(90, 90), {}, (1_000, 90)),
        (Limits(1 << 40, 1 << 40), {}, (1_000_000_000, 1_000_000)),
        (None, {}, (None, None)),
    ],
)
def test_the_clients_limits_are_those_of_the_topics(publisher_on, limits, options, expected):
    client = ScriptedClient()
    publisher_on(client, limits, **options)
    found = client.config.get("message.max.bytes"), client.config.get("batch.size")

    assert found == expected


def test_limits_that_change_make_a_new_client(publisher_on):
    client, limits = ScriptedClient(), Limits(2_000, 2_000)
    publisher = publisher_on(client, limits)
    assert not renews(publisher, client)
    limits.largest = 9_000

    assert renews(publisher, client)
    assert client.config["message.max.bytes"] == 9_000
    assert not renews(publisher, client)


def test_a_message_that_is_too_large_is_a_reason_to_read_the_limits_again(publisher_on):
    """A batch that exceeds a limit which was lowered: the next client makes smaller ones."""
    client, limits = ScriptedClient(), Limits(9_000, 9_000, 2_000)
    client.report_errors = [TOO_LARGE]
    publisher = publisher_on(client, limits)

    assert publish(publisher).failure.limit_bytes == 2_000
    assert renews(publisher, client)
    assert client.config["batch.size"] == 2_000


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
def test_a_producer_that_lost_all_brokers_is_replaced(publisher_on, code, expected):
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


def test_a_commit_without_an_answer_may_be_retried(publisher_on):
    publisher = publisher_on(ScriptedClient(commit=[SILENT]))

    assert isinstance(publisher.commit(), on.CommitUnanswered)
    assert publisher.commit() == on.TransactionCommitted()


def test_initialising_is_retried_until_the_broker_answers(publisher_on, monkeypatch):
    monkeypatch.setattr(retries, "PAUSE_S", 0.0)
    client = ScriptedClient(init=[SILENT, SILENT])
    publisher_on(client)
    assert client.calls.count("init") == 3

    monkeypatch.setattr(retries, "PATIENCE_S", -1.0)
    with pytest.raises(UnreachableError, match="init_transactions failed"):
        publisher_on(ScriptedClient(init=[SILENT]))


@pytest.mark.parametrize(
    "code",
    [KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION, KafkaError.INVALID_REQUEST],
)
def test_a_service_without_transactions_is_a_fault_of_the_settings(publisher_on, code):
    client = ScriptedClient(init=[KafkaError(code, "no transactions", retriable=True)])
    with pytest.raises(ConfigError, match=r"does not support this request.*#kafka-services"):
        publisher_on(client)
    assert client.calls.count("init") == 1


def test_a_time_out_that_brokers_do_not_allow_is_a_fault_of_the_settings(publisher_on):
    client = ScriptedClient(init=[KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT)])
    with pytest.raises(ConfigError, match=r"transaction_timeout_ms: .*transaction\.max"):
        publisher_on(client)


def test_without_a_membership_the_transaction_is_aborted(publisher_on):
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
    client.may_answer.set()

    assert isinstance(outcome, on.CommitOutcomeUnknown)
    assert "does not return" in outcome.reason


def test_an_initialisation_that_hangs_is_an_error(publisher_on, monkeypatch):
    monkeypatch.setattr(kafka_publisher, "_CALL_TIMEOUT_S", 0.0)
    monkeypatch.setattr(kafka_publisher, "_HANGS_AFTER_S", 0.05)
    client = ScriptedClient(init=[HANGS])

    with pytest.raises(UnreachableError, match="does not return"):
        publisher_on(client)
    client.may_answer.set()


def test_a_closed_publisher_releases_its_client_whose_reports_were_not_polled():
    """The fixture that counts open clients fails this test if the client stays."""
    publisher = KafkaPublisher(
        bootstrap_servers="x",
        transactional_id="t",
        transaction_timeout_ms=1_000,
        progress_topic="p",
        topic_partitions={"topic": 6},
        progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)),
    )
    publisher._producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1, "log_level": 0}
    )
    publisher.publish_records(do.PublishRecords(0, "token", (RECORD,)))

    publisher.close()
    publisher.close()

    with pytest.raises(UnreachableError, match="not started"):
        publisher.commit()


PARKED = ParkedChange("topic", b"k", b"order", b"U", b"{}", b"record", "SchemaError", "text", "s")
MARKER = PARKED._replace(form=FORM_REDRIVEN, content=b"")


def test_parked_changes_follow_their_records_messages(publisher_on):
    client = ScriptedClient()
    publisher = publisher_on(client)
    records = (RECORD._replace(parked=(PARKED, MARKER)), RECORD)

    assert publisher.publish_records(do.PublishRecords(1, "k", records)) is None
    assert [topic for topic, _, _ in client.produced] == ["topic"] * 3 + ["dead"] * 2 + [
        "topic"
    ] * 3
    assert client.produced[3] == ("dead", b"{}", PARKED.headers)
    assert client.produced[4] == ("dead", None, MARKER.headers)
    assert client.places[3] == ("dead", topic_partition_of(b"k", 2))
    delivered = publisher.await_delivery()
    assert {place.topic for place in delivered.written[1]} == {"topic"}


def test_a_parked_change_that_is_refused_aborts_the_transaction(publisher_on):
    client = ScriptedClient(produce=[None, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)])
    publisher = publisher_on(client)
    record = RECORD._replace(messages=RECORD.messages[:1], parked=(PARKED,))

    outcome = publisher.publish_records(do.PublishRecords(1, "k", (record, RECORD)))
    assert isinstance(outcome, on.TransactionAborted)
    assert (outcome.failure.topic, outcome.failure.fault) == ("dead", on.DeliveryFault.TOO_LARGE)
    assert outcome.failure.commit_timestamp_us == RECORD.commit_timestamp_us


@pytest.mark.parametrize("redrives", [False, True])
def test_a_tombstone_without_headers_follows_each_delete_and_moves_the_vector(
    publisher_on, redrives
):
    client = ScriptedClient(produce=[None, BufferError("full"), None, None])
    publisher = publisher_on(client, redrives=redrives, tombstones=True)
    other, gone = (message._replace(key=b"x") for message in RECORD.messages[:2])
    gone = gone._replace(mod=b"D")
    record = RECORD._replace(messages=(gone, other, gone))
    publisher.publish_records(do.PublishRecords(0, "k", (record,)))

    assert [value for _, value, _ in client.produced] == [b"v", None, b"v", b"v", None]
    assert client.produced[1] == client.produced[4] == ("topic", None, None)
    assert set(client.places) == {("topic", topic_partition_of(b"x", 6))}
    assert publisher.await_delivery().written == {0: (TopicOffset("topic", 0, 4),)}


def test_a_parked_delete_has_no_tombstone(publisher_on):
    client = ScriptedClient()
    publisher = publisher_on(client, tombstones=True)
    change = ParkedChange("topic", b"k", b"order", b"D", b"v", b"message", "r", "", "t")
    publisher.publish_records(do.PublishRecords(0, "t", (RECORD._replace(parked=(change,)),)))

    assert [value for _, value, _ in client.produced] == [b"v", b"v", b"v", b"v"]


def test_a_tombstone_that_is_refused_aborts_the_transaction(publisher_on):
    client = ScriptedClient(produce=[None, KafkaError(KafkaError.INVALID_RECORD)])
    publisher = publisher_on(client, tombstones=True)
    gone = RECORD.messages[0]._replace(mod=b"D")
    outcome = publisher.publish_records(
        do.PublishRecords(0, "t", (RECORD._replace(messages=(gone,)),))
    )

    assert isinstance(outcome, on.TransactionAborted)
    assert outcome.failure.fault is on.DeliveryFault.INVALID
    assert outcome.failure.commit_timestamp_us == RECORD.commit_timestamp_us


@pytest.mark.parametrize("redrives", [False, True])
def test_only_changes_that_are_put_back_say_so(publisher_on, redrives):
    client = ScriptedClient()
    publisher = publisher_on(client, redrives=redrives)

    publisher.publish_records(do.PublishRecords(1, "k", (RECORD._replace(parked=(MARKER,)),)))
    more = [("redriven", b"1")] if redrives else []
    message = RECORD.messages[0]
    assert client.produced[0][2] == [*message.headers, *more]
    assert client.produced[-1][2] == MARKER.headers


@pytest.mark.parametrize(
    "code", [KafkaError.INVALID_TXN_STATE, KafkaError.UNKNOWN, KafkaError._STATE]
)
def test_a_commit_error_that_is_neither_fatal_nor_retriable_leaves_the_outcome_open(
    publisher_on, code
):
    """Asking again would end the same way, and nothing says whether the commit took place."""
    client = ScriptedClient(commit=[KafkaError(code, "refused")])
    publisher = publisher_on(client)
    publish(publisher)

    outcome = publisher.commit()
    assert isinstance(outcome, on.CommitOutcomeUnknown)
    assert "refused" in outcome.reason
