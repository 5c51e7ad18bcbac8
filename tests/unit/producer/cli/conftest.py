"""A place to start a worker in: a broker, a registry and a Spanner, all in this process."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from confluent_kafka import Producer

from spanner_simulator import Simulator
from tidegate.producer.cli import check, clients
from tidegate.producer.config import ProducerConfig
from tidegate.producer.kafka.message_limits import KafkaMessageLimits
from tidegate.producer.kafka.topics import KafkaTopics, TopicDescription
from tidegate.schemas.progress import (
    ChildPartition,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.schemas.progress_codec import KEY_SCHEMA, RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of
from tidegate.schemas.wire_format import frame

SLOTS = 4
_KEY_ID, _RECORD_ID = 1, 2
_ROOT_SLOT = slot_of(ROOT_TOKEN, SLOTS)
_SCHEMAS = {
    f"/schemas/ids/{number}": schema
    for number, schema in ((_KEY_ID, KEY_SCHEMA), (_RECORD_ID, RECORD_SCHEMA))
}
_QUIET = {"log_level": 0}
_ANSWER_S = 30
NOWHERE = "127.0.0.1:1"


def started(stream, *filters):
    body = StreamStarted(
        stream, "GOOGLE_STANDARD_SQL", 0, None, "bank-fleet", SLOTS, "pid", (),
        (ChildPartition("p", (ROOT_TOKEN,), 0),), filters,
    )  # fmt: skip
    return ProgressRecord("epoch-1", "worker-1", body)


def beat(slot, revision=1, **fields):
    """Return the heartbeat of a slot with one stream partition."""
    token = TokenSnapshot(f"t{slot}", 0, (), ("",), 1_000_000 * slot, number=0, **fields)
    return ProgressRecord("epoch-1", "w1", SlotProgress(slot, revision, 0, -1, (), (token,)))


class Place:
    def __init__(self, simulator, registry, database):
        table = "CREATE TABLE Users (Id INT64) PRIMARY KEY (Id)"
        stream = "CREATE CHANGE STREAM Feed FOR Users OPTIONS (retention_period = '2d')"
        simulator.create_database(database, ddl=[table, stream])
        self.registry = registry
        self._client = Producer({**_QUIET, "bootstrap.servers": "-", "test.mock.num.brokers": 1})
        (broker,) = self._client.list_topics(timeout=_ANSWER_S).brokers.values()
        self.settings = {
            "bootstrap_servers": f"{broker.host}:{broker.port}",
            "registry_url": f"http://127.0.0.1:{registry.server_port}/", "project": "test-project",
            "instance": "test-instance", "database": database, "change_stream": "Feed",
            "prefix": "bank", "slots": SLOTS, "spanner_emulator_host": simulator.grpc_address,
        }  # fmt: skip

    def config(self, **changes):
        return ProducerConfig.load(None, **{**self.settings, **changes})

    def topics(self):
        """Return the broker's topics; none is created by looking."""
        return set(self._client.list_topics(timeout=_ANSWER_S).topics)

    def record(self, *records, slot=_ROOT_SLOT, prefix="bank"):
        topic = TopicNames(prefix).progress
        for record in records:
            key = frame(_KEY_ID, encode_key(record.body))
            value = frame(_RECORD_ID, encode_record(record))
            self._client.produce(topic, value=value, key=key, partition=slot)
        assert self._client.flush(_ANSWER_S) == 0

    def put(self, topic, value):
        self._client.produce(topic, value=value, partition=_ROOT_SLOT)
        assert self._client.flush(_ANSWER_S) == 0

    def park(self, topic, *changes):
        for change in changes:
            self._client.produce(
                topic, value=change.value, key=change.key, headers=change.headers, partition=0
            )
        assert self._client.flush(_ANSWER_S) == 0

    def create_topic(self, topic):
        """Ask for it, upon which a broker creates it."""
        self._client.list_topics(topic, timeout=_ANSWER_S)

    def require_untouched(self, *topics):
        """No topic was created, and the registry was only read."""
        assert self.topics() == set(topics)
        assert {method for method, _ in self.registry.asked} <= {"GET"}

    def close(self):
        self._client.flush(0)
        del self._client


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(("GET", self.path))
        schema = _SCHEMAS.get(self.path.partition("?")[0])
        status, answer = 200, [] if schema is None else {"schema": json.dumps(schema)}
        if self.path.startswith("/config/"):
            status, answer = 404, {"error_code": 40408, "message": "no level of its own"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.server.asked.append(("POST", self.path))
        self.send_error(405)

    do_PUT = do_POST  # noqa: N815 - the name is http.server's

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def registry():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def simulator():
    with Simulator(seed=1) as running:
        # The first statement loads the SQL engine, which can outlast a check's patience.
        running.create_database("first")
        database = running.client().instance("test-instance").database("first")
        with database.snapshot() as snapshot:
            list(snapshot.execute_sql("SELECT table_name FROM information_schema.tables"))
        yield running


@pytest.fixture
def place(simulator, registry, request, monkeypatch):
    """A place in which everything answers.

    The broker is librdkafka's own, which describes neither topics nor their settings; all else is
    real.
    """

    def describe(_topics, names):
        known = place.topics().intersection(names)
        return {name: TopicDescription(name, f"id-{name}", SLOTS) for name in known}

    monkeypatch.setattr(clients, "_POLL_S", 0.05)
    monkeypatch.setattr(KafkaTopics, "describe", describe)
    monkeypatch.setattr(KafkaTopics, "require_compacted", lambda _topics, _topic: None)
    monkeypatch.setattr(check, "denied_topics", lambda _topics, **_: [])
    monkeypatch.setattr(check, "missing_parts", lambda _servers, **_: [])
    # The broker does not say either whether it would create a topic.
    monkeypatch.setattr(KafkaTopics, "_create", lambda _topics, _wanted, *, is_last: True)
    monkeypatch.setattr(KafkaMessageLimits, "refresh", lambda _limits: None)
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)
    place = Place(simulator, registry, f"db-{abs(hash(request.node.name)) % 10**8}")
    yield place
    place.close()
