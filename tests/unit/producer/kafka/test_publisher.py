"""What the client's answers mean to the publisher; a scripted client stands for Kafka's."""

import threading
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka import murmur2 as partitioner
from tidegate.producer.kafka import publisher as kafka_publisher
from tidegate.producer.kafka.delivery import DeliveryReports, Refusals, RefusedMessage, fault_of
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.messages import FORM_REDRIVEN, ChangeMessage, ParkedChange, PublishableRecord
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.partitioner import topic_partition_of
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TopicOffset,
)

FENCED = KafkaError(KafkaError._FENCED, fatal=True)
BROKEN = KafkaError(KafkaError._FATAL, fatal=True)
ABORTABLE = KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True)
SILENT = KafkaError(KafkaError._TIMED_OUT, retriable=True)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, txn_requires_abort=True)
FAILED = KafkaError(KafkaError._STATE)
HANGS = object()
PATIENCE_S = 20
MESSAGES = [ChangeMessage("topic", b"k", b"v", bytes([n]), b"I", bytes(8)) for n in range(3)]
RECORD = PublishableRecord(1, "t", "0", tuple(MESSAGES))


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
        self.waiting, self.calls, self.places, self.produced = [], [], [], []
        self.offset = 0
        self.report_errors = []  # of the reports to come; then there are none
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


def new_publisher(**options):
    return KafkaPublisher(
        bootstrap_servers="x", transactional_id="t", transaction_timeout_ms=1_000,
        progress_topic="p", topic_partitions={"topic": 6, "dead": 2},
        progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)), **options,
    )  # fmt: skip


@pytest.fixture
def publisher_on(monkeypatch):
    def make(client, limits=None, *, redrives=False, tombstones=False, **options):
        def connect(config):
            client.config = config
            return client

        monkeypatch.setattr(kafka_publisher, "Producer", connect)
        publisher = new_publisher(
            dead_letter="dead", redrives=redrives, tombstones=tombstones, options=options,
            limits=limits,
        )  # fmt: skip
        publisher.start()
        assert publisher.begin(b"metadata") is None
        return publisher

    return make


def publish(publisher):
    """Produce the record and wait for its reports; return the first outcome."""
    outcome = publisher.publish_records(do.PublishRecords(4, "token", (RECORD,)))
    return publisher.await_delivery() if outcome is None else outcome


def renews(publisher, client):
    """Whether the next transaction begins with a new producer."""
    client.calls.clear()
    client.waiting.clear()
    assert publisher.begin(b"metadata") is None
    return client.calls == ["init", "begin"]


class Report:
    """A report as the client gives it; None stands for what it could not tell."""

    def __init__(self, topic, offset, topic_partition=0, *, value=b"v"):
        self.topic, self.partition = (lambda: topic), (lambda: topic_partition)
        self.offset, self.key, self.value = (lambda: offset), (lambda: b"k"), (lambda: value)


DELIVERED = on.Delivered({4: (TopicOffset("topic", 0, 2),)}, {})


def finish(publisher):
    """Publish, fence and commit; return the first outcome."""
    outcome = publish(publisher)
    if isinstance(outcome, on.Delivered):
        outcome = publisher.send_offsets(((0, 1),)) or publisher.commit()
    return outcome


class TestDelivery:
    def test_keys_stay_where_the_recorded_number_of_topic_partitions_puts_them(self, publisher_on):
        client = ScriptedClient()
        assert publish(publisher_on(client)) == DELIVERED
        assert client.places == [("topic", topic_partition_of(b"k", 6))] * 3

    def test_a_full_queue_is_waited_for(self, publisher_on):
        client = ScriptedClient(produce=[None, BufferError(), BufferError()])
        assert isinstance(publish(publisher_on(client)), on.Delivered)

    def test_a_fence_met_while_waiting_is_a_fence(self, publisher_on):
        """The client raises it out of the call that serves reports; the rest is never served."""
        client = ScriptedClient(poll=[None, FENCED], abort=[FENCED])
        assert publish(publisher_on(client)) == on.ProducerFenced()
        assert len(client) == 2
        full = [None, BufferError(), BufferError()]
        client = ScriptedClient(produce=full, poll=[None, FENCED])
        assert publish(publisher_on(client)) == on.ProducerFenced()

    def test_a_report_that_comes_late_says_nothing_about_the_next_transaction(self, publisher_on):
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

    def test_reports_that_do_not_come_abort(self, publisher_on, monkeypatch):
        monkeypatch.setattr(kafka_publisher, "_CALL_TIMEOUT_S", 0.0)
        client = ScriptedClient()
        publisher = publisher_on(client)
        outcome = publish(publisher)
        assert isinstance(outcome, on.TransactionAborted)
        assert "3 messages without a report" in outcome.reason
        assert renews(publisher, client)


class TestRefused:
    @pytest.mark.parametrize(
        ("script", "reports", "fault"),
        [
            ({}, [None, TOO_LARGE], on.DeliveryFault.TOO_LARGE),
            ({"produce": [None, TOO_LARGE]}, [], on.DeliveryFault.TOO_LARGE),
            ({}, [KafkaError(KafkaError._MSG_TIMED_OUT)], on.DeliveryFault.TRANSIENT),
            # After it has failed, the client takes no message and says no more than that.
            ({"produce": [None, FAILED]}, [TOO_LARGE], on.DeliveryFault.TOO_LARGE),
        ],
        ids=["report", "client", "may pass", "a later produce"],
    )
    def test_a_refused_message_is_classified_at_once(self, publisher_on, script, reports, fault):
        client = ScriptedClient(**script)
        client.report_errors = list(reports)
        publisher = publisher_on(client)
        outcome = publish(publisher)
        assert isinstance(outcome, on.TransactionAborted)
        assert (outcome.failure.fault, outcome.failure.topic) == (fault, "topic")
        assert outcome.failure.commit_timestamp_us == 1
        assert outcome.failure.size_bytes == RECORD.messages[0].size_bytes
        assert len(client) <= 2, "the third report was waited for"
        assert renews(publisher, client)

    def test_what_purged_the_messages_is_asked_of_the_client(self, publisher_on, monkeypatch):
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

    def test_a_cause_that_cannot_be_looked_up_aborts_all_the_same(self, publisher_on, monkeypatch):
        failure = UnreachableError("there is no token for the login")
        monkeypatch.setattr(kafka_publisher, "denied_topics", mock.Mock(side_effect=failure))
        client = ScriptedClient(begin=[None, DENIED])
        client.report_errors = [PURGED]
        outcome = publish(publisher_on(client))
        assert isinstance(outcome, on.TransactionAborted)
        assert (outcome.failure.fault, outcome.failure.topic) == (on.DeliveryFault.DENIED, "topic")

    def test_a_produce_before_the_reports_says_why_the_transaction_failed(self, publisher_on):
        """The client takes no message before its reports have come: purging makes them come."""

        class PurgesLate(ScriptedClient):
            def poll(self, timeout):
                return super().poll(timeout) if "purge" in self.calls else self._do("poll")

        client = PurgesLate(produce=[None, FAILED], begin=[None, TOO_LARGE], abort=[BROKEN])
        client.report_errors = [PURGED]
        outcome = publish(publisher_on(client))
        assert outcome.failure.fault is on.DeliveryFault.TOO_LARGE

    def test_a_message_that_is_too_large_is_a_reason_to_read_the_limits_again(self, publisher_on):
        """A batch that exceeds a limit which was lowered: the next client makes smaller ones."""
        client, limits = ScriptedClient(), Limits(9_000, 9_000, 2_000)
        client.report_errors = [TOO_LARGE]
        publisher = publisher_on(client, limits)
        assert publish(publisher).failure.limit_bytes == 2_000
        assert renews(publisher, client)
        assert client.config["batch.size"] == 2_000


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


class TestOutcomes:
    def test_a_refusal_of_the_group_is_no_reason_for_a_new_producer(self, publisher_on):
        client = ScriptedClient(send_offsets=[ABORTABLE])
        publisher = publisher_on(client)
        assert isinstance(publisher.send_offsets(((0, 1),)), on.TransactionAborted)
        assert not renews(publisher, client)

    @pytest.mark.parametrize("call", ["produce", "send_offsets", "commit"])
    def test_an_error_of_the_producer_is_a_reason_for_a_new_one(self, publisher_on, call):
        """After a broker was away, a fence of the former would wait for its time-out each time."""
        lost = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, txn_requires_abort=True)
        client = ScriptedClient(**{call: [lost]})
        publisher = publisher_on(client)
        assert isinstance(finish(publisher), on.TransactionAborted)
        assert renews(publisher, client)
        assert not renews(publisher, client)

    @pytest.mark.parametrize(
        ("code", "expected"), [(KafkaError._ALL_BROKERS_DOWN, True), (KafkaError._TRANSPORT, False)]
    )
    def test_a_producer_that_lost_all_brokers_is_replaced(self, publisher_on, code, expected):
        client = ScriptedClient()
        publisher = publisher_on(client)
        client.config["error_cb"](KafkaError(code))
        assert renews(publisher, client) == expected

    @pytest.mark.parametrize(
        ("error", "abort", "expected"),
        [
            (FENCED, None, on.ProducerFenced),
            (KafkaError(KafkaError.PRODUCER_FENCED, fatal=True), None, on.ProducerFenced),
            (BROKEN, None, on.CommitOutcomeUnknown),
            (ABORTABLE, None, on.TransactionAborted),
            (ABORTABLE, FENCED, on.ProducerFenced),
            (ABORTABLE, BROKEN, on.CommitOutcomeUnknown),
        ],
    )
    @pytest.mark.parametrize("call", ["produce", "send_offsets", "commit"])
    def test_an_error_ends_the_transaction(self, publisher_on, call, error, abort, expected):
        publisher = publisher_on(ScriptedClient(**{call: [error], "abort": [abort]}))
        assert isinstance(finish(publisher), expected)

    @pytest.mark.parametrize(
        "code", [KafkaError.INVALID_TXN_STATE, KafkaError.UNKNOWN, KafkaError._STATE]
    )
    def test_a_commit_error_that_is_neither_fatal_nor_retriable_leaves_the_outcome_open(
        self, publisher_on, code
    ):
        """Asking again would end the same way, and nothing says whether the commit took place."""
        outcome = finish(publisher_on(ScriptedClient(commit=[KafkaError(code, "refused")])))
        assert isinstance(outcome, on.CommitOutcomeUnknown)
        assert "refused" in outcome.reason

    def test_a_commit_without_an_answer_may_be_retried(self, publisher_on):
        publisher = publisher_on(ScriptedClient(commit=[SILENT]))
        assert isinstance(publisher.commit(), on.CommitUnanswered)
        assert publisher.commit() == on.TransactionCommitted()

    def test_without_a_membership_the_transaction_is_aborted(self, publisher_on):
        client = ScriptedClient()
        publisher = publisher_on(client)
        assert isinstance(publisher.begin(None), on.TransactionAborted)
        assert client.calls == ["init", "begin"]

    @pytest.mark.parametrize("call", ["send_offsets", "commit", "abort", "init"])
    def test_a_call_that_does_not_return_is_left_behind(self, publisher_on, monkeypatch, call):
        monkeypatch.setattr(kafka_publisher, "_CALL_TIMEOUT_S", 0.0)
        monkeypatch.setattr(kafka_publisher, "_HANGS_AFTER_S", 0.05)
        client = ScriptedClient(**{call: [HANGS]})
        if call == "init":
            with pytest.raises(UnreachableError, match="does not return"):
                publisher_on(client)
        else:
            publisher = publisher_on(client)
            publisher._patience_s = 0.0
            arguments = {"send_offsets": (((0, 1),),), "abort": ("a slot was lost",)}.get(call, ())
            outcome = getattr(publisher, call)(*arguments)
            assert isinstance(outcome, on.CommitOutcomeUnknown)
            assert "does not return" in outcome.reason
        client.may_answer.set()


class TestStart:
    def test_initialising_is_retried_until_the_broker_answers(self, publisher_on, monkeypatch):
        monkeypatch.setattr(kafka_admin, "PAUSE_S", 0.0)
        client = ScriptedClient(init=[SILENT, SILENT])
        publisher_on(client)
        assert client.calls.count("init") == 3
        monkeypatch.setattr(kafka_admin, "PATIENCE_S", -1.0)
        with pytest.raises(UnreachableError, match="init_transactions failed"):
            publisher_on(ScriptedClient(init=[SILENT]))

    UNSUPPORTED = r"does not support this request.*/kafka-services\.md"

    @pytest.mark.parametrize(
        ("code", "text"),
        [
            (KafkaError._UNSUPPORTED_FEATURE, UNSUPPORTED),
            (KafkaError.UNSUPPORTED_VERSION, UNSUPPORTED),
            (KafkaError.INVALID_REQUEST, UNSUPPORTED),
            (KafkaError.INVALID_TRANSACTION_TIMEOUT, r"transaction_timeout_ms: .*transaction\.max"),
        ],
    )
    def test_what_a_service_does_not_allow_is_an_error_of_settings(self, publisher_on, code, text):
        is_retriable = text is self.UNSUPPORTED
        client = ScriptedClient(init=[KafkaError(code, "no", retriable=is_retriable)])
        with pytest.raises(ConfigError, match=text):
            publisher_on(client)
        assert client.calls.count("init") == 1

    def test_a_closed_publisher_releases_its_client_whose_reports_were_not_polled(self):
        """The fixture that counts open clients fails this test if the client stays."""
        publisher = new_publisher()
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


class TestParkedAndTombstones:
    @pytest.mark.parametrize("redrives", [False, True])
    def test_parked_changes_follow_their_records_messages(self, publisher_on, redrives):
        client = ScriptedClient()
        publisher = publisher_on(client, redrives=redrives, tombstones=True)
        gone = PARKED._replace(mod=b"D", content=b"gone")
        records = (RECORD._replace(parked=(PARKED, MARKER, gone)), RECORD)
        assert publisher.publish_records(do.PublishRecords(1, "k", records)) is None
        topics = [topic for topic, _, _ in client.produced]
        assert topics == ["topic"] * 3 + ["dead"] * 3 + ["topic"] * 3
        assert client.produced[3:6] == [
            ("dead", b"{}", PARKED.headers), ("dead", None, MARKER.headers),
            ("dead", b"gone", gone.headers),
        ]  # fmt: skip
        assert client.places[3] == ("dead", topic_partition_of(b"k", 2))
        more = [("redriven", b"1")] if redrives else []
        assert client.produced[0][2] == [*RECORD.messages[0].headers, *more]
        delivered = publisher.await_delivery()
        assert {place.topic for place in delivered.written[1]} == {"topic"}

    @pytest.mark.parametrize("redrives", [False, True])
    def test_a_tombstone_without_headers_follows_each_delete_and_moves_the_vector(
        self, publisher_on, redrives
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

    @pytest.mark.parametrize(
        ("record", "error", "topic", "fault"),
        [
            (
                RECORD._replace(messages=RECORD.messages[:1], parked=(PARKED,)),
                KafkaError.MSG_SIZE_TOO_LARGE, "dead", on.DeliveryFault.TOO_LARGE,
            ),
            (
                RECORD._replace(messages=(RECORD.messages[0]._replace(mod=b"D"),)),
                KafkaError.INVALID_RECORD, "topic", on.DeliveryFault.INVALID,
            ),
        ],
        ids=["a parked change", "a tombstone"],
    )  # fmt: skip
    def test_one_that_is_refused_aborts_them_all(self, publisher_on, record, error, topic, fault):
        client = ScriptedClient(produce=[None, KafkaError(error)])
        publisher = publisher_on(client, tombstones=True)
        outcome = publisher.publish_records(do.PublishRecords(1, "k", (record, RECORD)))
        assert isinstance(outcome, on.TransactionAborted)
        assert (outcome.failure.topic, outcome.failure.fault) == (topic, fault)
        assert outcome.failure.commit_timestamp_us == RECORD.commit_timestamp_us


def snapshot(*, chunk):
    body = SlotProgress(
        slot=3, revision=1, minute=1, includes=0, vector=(), tokens=(), chunk=chunk, chunks=2
    )
    return do.PublishProgress(3, None, ProgressRecord("e", "w", body))


class TestReports:
    @pytest.fixture
    def reports(self):
        return DeliveryReports()

    def test_a_slot_has_its_last_offset_in_each_topic_partition(self, reports):
        of_one, of_other = reports.of_changes(1), reports.of_changes(2)
        for offset in (7, 9, 8):
            of_one(None, Report("a", offset))
        reports.of_changes(1)(None, Report("b", 4, 1))
        of_other(None, Report("a", 10))
        body = PartitionAnnounced(ChildPartition("child", (), 1), "parent")
        announced = do.PublishProgress(5, 1, ProgressRecord("e", "w", body))
        reports.of_progress(announced)(None, Report("progress", 6, 5))
        assert reports.written == {
            1: (TopicOffset("a", 0, 9), TopicOffset("b", 1, 4), TopicOffset("progress", 5, 6)),
            2: (TopicOffset("a", 0, 10),),
        }
        assert not reports.failures

    def test_a_snapshot_is_where_its_chunk_0_is(self, reports):
        for chunk in (0, 1):
            reports.of_progress(snapshot(chunk=chunk))(None, Report("progress", 20 + chunk, 3))
        assert (reports.snapshots, reports.written) == ({3: 20}, {})

    @pytest.mark.parametrize(
        ("error", "report"),
        [
            (KafkaError(KafkaError._MSG_TIMED_OUT), Report("a", -1)),
            (None, Report("a", None)),
            (None, Report("a", -1001)),
            (None, Report("a", 3, None)),
            (None, Report(None, 3)),
        ],
    )
    def test_a_message_without_an_offset_has_failed(self, reports, error, report):
        reports.of_changes(1)(error, report)
        assert len(reports.failures) == 1
        assert reports.written == {1: ()}

    def test_what_was_refused_is_named_with_its_slot_and_record(self, reports):
        reports.of_progress(snapshot(chunk=1))(TOO_LARGE, Report("progress", None, 3))
        failure = reports.refusals.failure()
        assert (failure.slot, failure.topic, failure.commit_timestamp_us) == (3, "progress", None)
        change = PARKED._replace(content=b"v" * 5_000)
        records = (RECORD._replace(commit_timestamp_us=77, parked=(change,)),)
        of_parked = reports.of_parked(1, records)
        of_parked(None, Report("dead", 5))
        assert reports.written == {}
        of_parked(TOO_LARGE, Report("dead", None, value=change.content))
        failure = reports.refusals.failure()
        assert (failure.slot, failure.topic, failure.commit_timestamp_us) == (1, "dead", 77)
        assert failure.size_bytes == change.size_bytes


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            (KafkaError.MSG_SIZE_TOO_LARGE, on.DeliveryFault.TOO_LARGE),
            (KafkaError.RECORD_LIST_TOO_LARGE, on.DeliveryFault.TOO_LARGE),
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, on.DeliveryFault.DENIED),
            (KafkaError.INVALID_RECORD, on.DeliveryFault.INVALID),
            (KafkaError.POLICY_VIOLATION, on.DeliveryFault.INVALID),
            (KafkaError._PURGE_QUEUE, on.DeliveryFault.TRANSIENT),
            (KafkaError._MSG_TIMED_OUT, on.DeliveryFault.TRANSIENT),
            (KafkaError.NOT_ENOUGH_REPLICAS, on.DeliveryFault.TRANSIENT),
            (KafkaError.UNKNOWN_TOPIC_OR_PART, on.DeliveryFault.TRANSIENT),
        ],
    )
    def test_codes_are_classified(self, code, expected):
        assert fault_of(KafkaError(code)) is expected

    def test_the_largest_message_with_a_lasting_fault_matters(self):
        def record(at_us, *values):
            messages = tuple(RECORD.messages[0]._replace(value=value) for value in values)
            return RECORD._replace(commit_timestamp_us=at_us, messages=messages)

        refusals, records = Refusals(), (record(10, b"v"), record(20, b"v" * 900, b"v" * 30))
        assert refusals.failure() is None
        for value in (b"v", b"v" * 900, b"v" * 30):
            refusals.add(RefusedMessage(TOO_LARGE, 4, "topic", b"k", value, records))
        refusals.add(RefusedMessage(PURGED, 5, "u", b"k", b"v" * 5_000))
        assert refusals.failure() == on.DeliveryFailure(
            on.DeliveryFault.TOO_LARGE, "MSG_SIZE_TOO_LARGE", 4, "topic", "k",
            records[1].messages[0].size_bytes, commit_timestamp_us=20,
        )  # fmt: skip
        assert set(refusals.failures()) == {"topic", "u"}
        long = RefusedMessage(TOO_LARGE, 2, "t", b"\x00" + b"k" * 500, b"v").failure()
        assert long.key == "\\x00" + "k" * 79


@given(st.binary(max_size=600), st.integers(1, 2**31 - 1))
@example(b"", 1)
@example(b"\0" * 255, 7)
@example(b"\0" * 256, 7)
@example(b"\0\0\0\0\1" + b"x" * 100_000, 12)
def test_a_key_is_placed_as_the_contract_says(key, count):
    assert partitioner.topic_partition_of(key, count) == topic_partition_of(key, count)


def test_without_the_clients_function_the_contracts_is_used(monkeypatch):
    assert partitioner._load() is not None
    monkeypatch.setattr(partitioner, "_FUNCTION", "rd_kafka_no_such_function")
    assert partitioner._load() is None
    monkeypatch.setattr(partitioner, "_murmur2", None)
    for key in (b"", b"abc", b"\0\0\0\0\1\2\4eu"):
        assert partitioner.topic_partition_of(key, 12) == topic_partition_of(key, 12)
