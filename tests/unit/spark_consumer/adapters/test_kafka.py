"""What is asked before Spark starts."""

import http.server
import threading
from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.adapters import kafka
from tidegate.spark_consumer.core.subscription import Subscription

SUBSCRIPTION = Subscription(TopicNames("bank"))


@pytest.fixture
def topics(monkeypatch):
    """Sets the topics that the broker knows."""

    seen = []

    def know(*names):
        metadata = SimpleNamespace(topics=dict.fromkeys(names))
        client = SimpleNamespace(list_topics=lambda **_: metadata)
        monkeypatch.setattr(kafka, "AdminClient", lambda settings: seen.append(settings) or client)
        return seen

    return know


@pytest.fixture
def registry():
    """A server that answers with a code; returns its URL."""
    servers = []

    def start(code):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                found = code if self.path == "/v7/subjects" else 404
                if self.headers["Authorization"] == "Basic bWU6aHVzaA==":  # me:hush
                    found = 200
                self.send_response(found)
                self.end_headers()
                self.wfile.write(b"[]")

            def log_message(self, *_arguments):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/v7"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_progress_topic_is_enough(topics):
    topics("bank-progress", "bank.accounts", "bankers-progress", "other.x-progress")
    kafka.require_topics("broker:9092", SUBSCRIPTION)


def test_a_missing_progress_topic_is_named(topics):
    topics("bank.accounts")
    with pytest.raises(ConfigError, match="bank-progress"):
        kafka.require_topics("broker:9092", SUBSCRIPTION)


def test_a_prefix_that_swallows_another_is_refused(topics):
    topics("bank-progress", "bank.europe-progress")
    with pytest.raises(ConfigError, match=r"bank\.europe-progress"):
        kafka.require_topics("broker:9092", SUBSCRIPTION)


def test_a_broker_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        kafka.require_topics("127.0.0.1:1", SUBSCRIPTION)


def test_options_reach_the_client(topics):
    seen = topics("bank-progress")
    kafka.require_topics("broker:9092", SUBSCRIPTION, options={"sasl.password": "hush"})
    assert seen == [{"bootstrap.servers": "broker:9092", "sasl.password": "hush", "log_level": 0}]


def test_options_that_the_client_refuses_are_named_without_their_values():
    with pytest.raises(ConfigError) as caught:
        kafka.require_topics(
            "127.0.0.1:1", SUBSCRIPTION, options={"security.protocol": "hush", "client.id": "x"}
        )
    assert "['client.id', 'security.protocol']" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_registry_that_answers_will_do(registry):
    kafka.require_registry(registry(200))


@pytest.mark.parametrize("code", [401, 403])
def test_a_registry_that_asks_who_is_there(registry, code):
    url = registry(code)
    kafka.require_registry(url, user_info="me:hush")
    for wrong in ("", "me:wrong"):
        with pytest.raises(ConfigError, match="registry_user_info") as caught:
            kafka.require_registry(url, user_info=wrong)
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("code", [404, 500])
def test_something_else_that_answers_is_no_registry(registry, code):
    with pytest.raises(UnreachableError, match="registry"):
        kafka.require_registry(registry(code))


def test_a_registry_that_does_not_answer_is_named_without_the_password():
    with pytest.raises(UnreachableError) as caught:
        kafka.require_registry("http://127.0.0.1:1/v7", user_info="me:hush")
    assert "127.0.0.1:1" in str(caught.value)
    assert "hush" not in str(caught.value)
