"""Clients and the probe: rejected options and connections, each in one line without secrets."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, Producer

from tidegate.program.kafka_clients import (
    admin_config,
    list_topics,
    make_client,
    require_own_prefix,
)
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.topics import TopicNames


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
