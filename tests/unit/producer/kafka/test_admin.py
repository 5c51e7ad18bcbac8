"""Calls that outlast a broker's restart, and topics that are read to their end."""

import gc
import itertools
import time
import weakref
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from unittest import mock
from uuid import uuid4

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Producer,
)
from structlog.testing import capture_logs

from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka import backfill_topic as module
from tidegate.producer.kafka import dead_letters
from tidegate.producer.kafka.backfill_topic import RequestFollower, read_requests, write_request
from tidegate.producer.kafka.dead_letters import KafkaDeadLetters, parked_change
from tidegate.producer.kafka.group import group_members
from tidegate.producer.kafka.monitors import GroupMonitor, TopicMonitor
from tidegate.producer.kafka.slots import SlotEnds
from tidegate.producer.messages import FORM_EVENT, FORM_REDRIVEN, ParkedChange
from tidegate.program import kafka_clients
from tidegate.program.tokens import KafkaTokens
from tidegate.schemas.errors import ConfigError, SchemaError, UnreachableError

GONE = KafkaException(KafkaError(KafkaError._TRANSPORT))
STALE = KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))
UNSTABLE = KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT))


def script(*answers):
    left = list(answers)

    def ask(_client):
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


class TestAdmin:
    @pytest.mark.parametrize(
        ("answers", "clients"),
        [([7], 1), ([GONE, 7], 2), ([GONE, STALE, 7], 3), ([UNSTABLE, UNSTABLE, 7], 1)],
        ids=["at once", "disconnected", "stale leader", "open transaction"],
    )
    def test_a_failed_call_is_retried_with_a_new_client(self, cluster, admin, answers, clients):
        assert admin.call(script(*answers), "cannot ask") == 7
        assert cluster.made == clients

    def test_a_shared_client_is_replaced_by_who_was_left_without_an_answer(self, monkeypatch):
        monkeypatch.setattr(kafka_admin, "AdminClient", lambda _config: object())
        shared = kafka_admin.SharedAdmin({})
        first = shared.client()
        assert shared.client() is first
        shared.replace(first)
        second = shared.client()
        assert second is not first
        shared.replace(first)  # another user's late finding about the former one
        assert shared.client() is second

    def test_a_shared_client_waits_for_its_token_beside_its_users(self, monkeypatch):
        """They are polled in a worker's loop, which a source of tokens that hangs would hold."""
        answers, now_s = SimpleQueue(), [0.0]

        def token():
            answer = answers.get(timeout=30)
            if isinstance(answer, Exception):
                raise answer

        made = []
        monkeypatch.setattr(kafka_admin, "AdminClient", lambda _config: made.append(1) or object())
        tokens = KafkaTokens(SimpleNamespace(token=token))
        shared = kafka_admin.SharedAdmin({"oauth_cb": tokens}, clock_s=lambda: now_s[0])
        users = (
            SlotEnds(shared, topic="p", slots=1),
            TopicMonitor(shared, progress="p", data=[]),
            GroupMonitor(shared, group="g", worker="w", client_id="w-1"),
        )
        for error in (UnreachableError("no token"), ConfigError("no such function")):
            for now_us in (0, 11_000_000, 12_000_000):
                assert [user.poll(now_us) for user in users] == [None] * 3
            answers.put(error)
            shared._making.exception(30)
            if isinstance(error, ConfigError):
                with pytest.raises(ConfigError, match="no such function"):
                    shared.client()
                break
            # The next one is not asked for at each poll.
            assert shared.client() is None
            assert shared._making is None
            now_s[0] += 10.0
        now_s[0] += 10.0
        assert shared.client() is None
        answers.put(None)
        first = shared._making.result(30)
        assert shared.client() is first is shared.client()
        assert made == [1]


def member(member_id):
    return SimpleNamespace(id=member_id)


def described(cluster, *answers):
    left = list(answers)

    def list_groups(_group, _timeout):
        answer = left.pop(0)
        if answer is None:
            return []
        is_error = isinstance(answer, KafkaError)
        members, error = ([], answer) if is_error else (answer, None)
        return [SimpleNamespace(members=members, error=error)]

    cluster.list_groups = list_groups


def test_members_are_named_by_their_workers_or_client_ids(admin, cluster, monkeypatch):
    away = KafkaError(KafkaError.NOT_COORDINATOR)
    answer = [member(f"{name}-{uuid4()}") for name in ("w2", "rdkafka", "w-1")]
    described(cluster, away, answer, [], None)
    assert group_members(admin, "g") == ["rdkafka", "w-1", "w2"]
    assert group_members(admin, "g") == group_members(admin, "g") == []
    monkeypatch.setattr(kafka_admin, "PATIENCE_S", -1.0)
    described(cluster, away)
    with pytest.raises(UnreachableError, match="group='g'"):
        group_members(admin, "g")
    described(cluster, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(ConfigError):
        group_members(admin, "g")


REFUSED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


def failing(*errors):
    """Return a call that raises these errors, one at a time, and then answers; and its count."""
    left = list(errors)
    calls = []

    def call():
        calls.append(len(left))
        if left:
            raise left.pop(0)
        return "answer"

    return call, calls


class TestRetries:
    @pytest.fixture(autouse=True)
    def pauses(self, monkeypatch):
        pauses_s = []
        monkeypatch.setattr("tenacity.nap.time.sleep", pauses_s.append)
        return pauses_s

    def test_a_call_is_retried_with_pauses_until_it_answers(self, pauses):
        seen = []
        call, calls = failing(GONE, KafkaException(REFUSED))
        assert kafka_admin.retry(call, before_retry=seen.append) == "answer"
        assert len(calls) == 3
        assert pauses == [kafka_admin.PAUSE_S] * 2
        assert [error.code() for error in seen] == [KafkaError._TRANSPORT, REFUSED.code()]

    @pytest.mark.parametrize(
        ("error", "options"),
        [
            (KafkaException(REFUSED), {"is_retriable": lambda error: error.retriable()}),
            (ValueError("a bug"), {}),
            (GONE, {}),
        ],
        ids=["not retriable", "another error", "the time is over"],
    )
    def test_what_is_not_retried_is_raised_at_once(self, pauses, monkeypatch, error, options):
        if error is GONE:
            monkeypatch.setattr(kafka_admin, "PATIENCE_S", -1.0)
        call, calls = failing(error, error)
        with pytest.raises(type(error)) as raised:
            kafka_admin.retry(call, **options)
        assert raised.value is error
        assert (len(calls), pauses) == (1, [])

    def test_a_client_of_a_failed_call_is_freed_without_garbage_collection(self):
        """Collected in a thread of its own, a Kafka client ends the process."""

        class Client:
            def ask(self):
                raise GONE

        clients, freed = [Client()], []

        def before_retry(_error):
            watched = weakref.ref(clients.pop())
            freed.append(watched() is None)

        gc.disable()
        try:
            kafka_admin.retry(lambda: freed or clients[0].ask(), before_retry=before_retry)
        finally:
            gc.enable()
        assert freed == [True]


CHANGE = ParkedChange("p.t", b"k", b"order", b"U", b"{}", b"record", "SchemaError", "text", "s")
FOLLOWER = CHANGE._replace(form=b"message", reason="KeyParked", error="")
END = KafkaError(KafkaError._PARTITION_EOF)
LOST = KafkaError(KafkaError._TRANSPORT)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
NO_GROUP = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


class Message:
    def __init__(self, change=CHANGE, *, headers=None, error=None, number=0, offset=0, at_ms=None):
        at = (TIMESTAMP_NOT_AVAILABLE, -1) if at_ms is None else (TIMESTAMP_CREATE_TIME, at_ms)
        self.timestamp = lambda: at
        self.headers = lambda: change.headers if headers is None else headers
        self.key, self.value = (lambda: change.key), (lambda: change.value)
        self.topic, self.partition = (lambda: "p-dead-letter"), (lambda: number)
        self.error, self.offset = (lambda: error), (lambda: offset)


def at_end(offset, number=0):
    return Message(error=END, number=number, offset=offset)


class Client:
    """Delivers one list for each call, then nothing; stands for admin client and consumer."""

    def __init__(self, ends, *batches):
        self.ends, self.batches = ends, list(batches)
        self.assigned = None
        self.is_closed = False

    def list_offsets(self, places, **_):
        ends = {place: SimpleNamespace(offset=self.ends[place.partition]) for place in places}
        return {place: SimpleNamespace(result=lambda end=end: end) for place, end in ends.items()}

    def get_watermark_offsets(self, _place, timeout):
        return 3, 9

    def assign(self, places):
        self.assigned = [(place.partition, place.offset) for place in places]

    def consume(self, _count, _timeout):
        return self.batches.pop(0) if self.batches else []

    def close(self):
        self.is_closed = True


@pytest.fixture
def letters_on(monkeypatch):
    def make(client, *, patience_s=60.0):
        admin = SimpleNamespace(call=lambda ask, *_, **__: ask(client))
        monkeypatch.setattr(dead_letters, "RetryingAdmin", lambda _config: admin)
        monkeypatch.setattr(kafka_clients, "Consumer", lambda _config: client)
        return KafkaDeadLetters(
            bootstrap_servers="x", group="g", topic="p-dead-letter",
            topic_partitions=len(client.ends), patience_s=patience_s,
        )  # fmt: skip

    return make


class TestDeadLetters:
    def test_every_record_is_read_and_then_the_reader_is_closed(self, letters_on):
        """An open transaction below the end is waited for."""
        later = [Message(FOLLOWER, offset=1, at_ms=5), at_end(4)]
        client = Client([4], [Message(CHANGE), at_end(1)], [], later)
        letters = list(letters_on(client).read())
        assert letters == [(0, 0, CHANGE, None), None, (0, 1, FOLLOWER, 5_000)]
        assert client.assigned == [(0, 3)]
        assert client.is_closed

    def test_every_topic_partition_is_read_to_its_own_end(self, letters_on):
        batches = [at_end(9, number=2)], [Message(number=0), at_end(2, number=0)]
        client = Client([2, 0, 9], *batches)
        assert [letter.change for letter in letters_on(client).read()] == [CHANGE]
        assert [number for number, _ in client.assigned] == [0, 2]

    def test_an_outage_is_waited_out_and_a_missing_right_is_not(self, letters_on):
        """The client asks for the coordinator of the group that it is named after."""
        assert list(letters_on(Client([0])).read()) == [], "an empty topic is not waited for"
        for error in (LOST, NO_GROUP):
            client = Client([1], [Message(error=error)], [Message(), at_end(1)])
            assert [letter.change for letter in letters_on(client).read()] == [CHANGE]
        client = Client([1], [Message(error=DENIED)])
        with pytest.raises(ConfigError, match="dead-letter"):
            list(letters_on(client).read())
        assert client.is_closed

    def test_reading_that_stands_still_is_given_up(self, letters_on, monkeypatch):
        monkeypatch.setattr(dead_letters.time, "monotonic", itertools.count().__next__)
        letters = letters_on(Client([4], [Message(CHANGE), at_end(1)]), patience_s=5)
        with pytest.raises(UnreachableError, match=r"read to its end.*transaction may be open"):
            list(letters.read())
        letters = letters_on(Client([4], [Message(error=LOST)]), patience_s=5)
        with pytest.raises(UnreachableError, match=r"read to its end.*cause=.*Check the brokers"):
            list(letters.read())

    def test_a_record_becomes_what_was_parked(self):
        marker = CHANGE._replace(form=FORM_REDRIVEN, content=b"", reason="", error="", token="")
        event = CHANGE._replace(form=FORM_EVENT, topic="", order_key=b"", mod=b"")
        for change in (CHANGE, FOLLOWER, marker, event):
            assert parked_change(Message(change)) == change
        no_text = [(name, content or None) for name, content in FOLLOWER.headers]
        assert parked_change(Message(FOLLOWER, headers=no_text)) == FOLLOWER

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            CHANGE.headers[:-1],
            [*CHANGE.headers, ("more", b"1")],
            list(reversed(CHANGE.headers)),
            CHANGE._replace(form=b"other").headers,
        ],
    )
    def test_a_record_of_another_program_is_refused(self, headers):
        with pytest.raises(SchemaError, match="dead-letter topic"):
            parked_change(Message(headers=headers))


REQUESTS = "bank-backfill-requests"
REQUEST = TableRequest("t", 1, "p", 5)
_PATIENCE_S = 30


@pytest.fixture
def broker():
    """The client whose mock is the broker, and the broker's address."""
    config = {"bootstrap.servers": "-", "test.mock.num.brokers": 1, "log_level": 0}
    holder = SimpleNamespace(client=Producer(config))
    (broker_metadata,) = holder.client.list_topics(timeout=_PATIENCE_S).brokers.values()
    yield holder, f"{broker_metadata.host}:{broker_metadata.port}"
    holder.client.flush(0)
    del holder.client


def write(request, servers):
    known = {"transactional_id": "bank-fleet-_backfill", "group": "g"}
    written = write_request(REQUESTS, lambda _: request, bootstrap_servers=servers, **known)
    assert written == request


def message(code, value=None):
    error = None if code is None else KafkaError(code)
    return SimpleNamespace(error=lambda: error, value=lambda: value)


AWAY = KafkaError._ALL_BROKERS_DOWN


def _wait_until(condition):
    give_up_at = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


STOPPED = replace(REQUEST, state=RunState.STOPPED)


class TestBackfillRequests:
    @pytest.fixture
    def follow(self, monkeypatch):
        monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.05)
        with ExitStack() as opened:

            def start(servers, **options):
                requests = TableRequests()
                follower = RequestFollower(
                    REQUESTS, requests, bootstrap_servers=servers, group="g", **options
                )
                opened.callback(follower.close)
                follower.start()
                return requests

            yield start

    def test_a_request_is_made_of_what_the_topic_says(self, broker):
        """It is not written if that forbids it; the newest of a table holds."""
        holder, servers = broker
        known = {"bootstrap_servers": servers, "group": "g"}
        assert read_requests(REQUESTS, **known).all == []
        write(REQUEST, servers)

        def refuse(requests):
            assert requests.all == [REQUEST]
            raise ConfigError("no")

        with pytest.raises(ConfigError, match="no"):
            write_request(REQUESTS, refuse, transactional_id="t", **known)
        for request in (STOPPED, TableRequest("u", 2, "p", 6)):
            write(request, servers)
        holder.client.produce(REQUESTS, b"not a request", b"v", partition=0)
        holder.client.produce(REQUESTS, None, b"w", partition=0)
        holder.client.flush(_PATIENCE_S)
        assert read_requests(REQUESTS, **known).all == [STOPPED, TableRequest("u", 2, "p", 6)]

    def test_a_follower_finds_a_topic_that_comes_later_and_goes_on(self, broker, follow):
        requests = follow(broker[1])
        assert requests.all == []
        for request in (REQUEST, STOPPED):
            write(request, broker[1])
            _wait_until(lambda one=request: requests.all == [one])
        assert follow(broker[1]).all == [STOPPED], "it begins with what is there"

    def test_a_topic_that_lost_records_is_an_error_after_which_reading_begins_again(self):
        lost = message(KafkaError._AUTO_OFFSET_RESET)
        lost.topic = lambda: REQUESTS
        with pytest.raises(UnreachableError, match="cannot be read on"):
            module._take([lost], TableRequests(), pytest.fail)

    def test_a_broker_that_does_not_answer_is_named(self, follow, monkeypatch):
        monkeypatch.setattr(module, "_PATIENCE_S", 0.3)
        monkeypatch.setattr(module, "_METADATA_S", 0.1)
        with pytest.raises(UnreachableError, match="the requests for backfills cannot be read"):
            follow("127.0.0.1:1", options={"log_level": 0})

    @pytest.fixture
    def consumed(self, monkeypatch):
        """Sets what consumers of the topic return; nothing follows."""

        def consumer(messages):
            left = list(messages)

            def consume(_count, _seconds):
                time.sleep(0.001)
                return [left.pop(0)] if left else []

            return mock.Mock(
                consume=consume,
                get_watermark_offsets=lambda *_, **__: (0, 0),
                list_topics=lambda **_: SimpleNamespace(topics={REQUESTS: None}),
            )

        def set_messages(*messages):
            monkeypatch.setattr(module, "_consumer", lambda *_: consumer(messages))
            monkeypatch.setattr(module, "list_topics", lambda *_: {REQUESTS})

        return set_messages

    def test_a_right_that_is_denied_is_named_at_once(self, consumed, follow):
        consumed(message(AWAY), message(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        for call in (lambda: read_requests(REQUESTS, bootstrap_servers="k:1", group="g"),
                     lambda: follow("k:1")):  # fmt: skip
            with pytest.raises(ConfigError, match=f"cannot read topic {REQUESTS}: Kafka denies"):
                call()

    def test_a_follower_says_what_keeps_it_from_reading_and_goes_on(self, consumed, follow):
        denied, later = message(KafkaError.TOPIC_AUTHORIZATION_FAILED), STOPPED.encode()
        first = message(None, REQUEST.encode())
        consumed(
            first, message(KafkaError._PARTITION_EOF), denied, message(AWAY), message(None, later)
        )
        with capture_logs() as lines:
            requests = follow("k:1")
            _wait_until(lambda: requests.all == [STOPPED])
        assert [line["event"] for line in lines] == ["requests for backfills not read"] * 2
        assert "Kafka denies access to topics" in lines[0]["cause"]

    def test_what_kept_a_command_from_reading_is_in_its_error(self, consumed, monkeypatch):
        monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
        consumed(message(AWAY))
        with pytest.raises(UnreachableError, match=r"cannot be read to their end .*cause="):
            read_requests(REQUESTS, bootstrap_servers="k:1", group="g")
