"""Channels: unary calls, errors by code, and credentials for the real service."""

import asyncio
import socket
import threading
from types import ModuleType
from urllib.parse import parse_qsl

import grpc
import pytest
from google.api_core.gapic_v1.routing_header import to_routing_header
from google.cloud.spanner_v1.types import ExecuteSqlRequest, ResultSet

from tidegate.producer.errors import QueryInterrupted, QueryRefused
from tidegate.producer.spanner.authorization import Authorization
from tidegate.producer.spanner.channel import SpannerChannels, rpc_error
from tidegate.schemas.errors import ConfigError


class Failed(grpc.RpcError):
    def __init__(self, code, details=""):
        self.code = lambda: code
        self.details = lambda: details


def test_every_status_code_is_classified_as_retriable_or_not():
    retriable = {
        code.name for code in grpc.StatusCode if rpc_error(Failed(code), what="read").retriable
    }
    assert retriable == {
        "ABORTED",
        "CANCELLED",
        "DEADLINE_EXCEEDED",
        "INTERNAL",
        "RESOURCE_EXHAUSTED",
        "UNAVAILABLE",
        "UNKNOWN",
    }


def test_an_error_says_what_was_attempted_and_where():
    error = rpc_error(Failed(grpc.StatusCode.ABORTED, "busy"), what="read", token="k")
    assert isinstance(error, QueryInterrupted)
    assert str(error) == "could not read (code='ABORTED', details='busy', token='k')"


def test_a_query_that_nobody_answers_ends_at_its_deadline(spanner, channels):
    spanner.on_sql = lambda _request, context: context.abort(
        grpc.StatusCode.DEADLINE_EXCEEDED, "late"
    )
    with pytest.raises(QueryInterrupted):
        channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)


def test_nobody_listens():
    channels = SpannerChannels(database="d", emulator_host="127.0.0.1:1")
    with pytest.raises(QueryInterrupted) as caught:
        channels.session(timeout_s=5)
    assert caught.value.code in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    channels.close()


def test_a_lost_session_is_created_again_for_unary_calls_too(spanner, channels):
    spanner.on_sql = lambda _request, context: context.abort(
        grpc.StatusCode.NOT_FOUND, "Session not found"
    )
    for _ in range(2):
        with pytest.raises(QueryInterrupted):
            channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)
    assert spanner.sessions == 2


def test_a_rejected_unary_call_is_repeated_with_a_fresh_token(spanner, channels, monkeypatch):
    pauses, renewed = [], []
    monkeypatch.setattr("tidegate.producer.spanner.channel.time.sleep", pauses.append)
    monkeypatch.setattr(channels._authorization, "renew", lambda: renewed.append(True))
    refusals = [2]

    def refuse(_request, context):
        refusals[0] -= 1
        if refusals[0] >= 0:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "revoked")
        return ResultSet.pb()()

    spanner.on_session = refuse
    channels.session()
    assert len(pauses) == len(renewed) == 2
    refusals[0], spanner.on_sql = 3, refuse
    channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)
    assert len(pauses) == len(renewed) == 5


def test_what_was_rejected_from_the_start_is_refused(spanner, channels, monkeypatch):
    monkeypatch.setattr("tidegate.producer.spanner.channel.time.sleep", lambda _seconds: None)
    spanner.on_session = lambda _request, context: context.abort(
        grpc.StatusCode.UNAUTHENTICATED, "no"
    )
    with pytest.raises(QueryRefused) as caught:
        channels.session()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint


def test_an_answer_of_a_load_balancer_says_that_it_is_not_spanner(monkeypatch):
    monkeypatch.setattr("tidegate.producer.spanner.channel.time.sleep", lambda _seconds: None)
    page = "Received http2 header with status: 404"
    channels = SpannerChannels(database="d", emulator_host="127.0.0.1:1")
    for is_accepted, kind in ((False, QueryRefused), (True, QueryInterrupted)):
        error = channels.failed(Failed(grpc.StatusCode.UNIMPLEMENTED, page), "s", what="read")
        assert type(error) is kind, is_accepted
        assert "not Spanner" in error.hint
        assert page in str(error)
        channels.accept()


def test_an_old_sessions_end_does_not_drop_the_new_one(spanner, channels):
    first = channels.session()
    lost = Failed(grpc.StatusCode.NOT_FOUND, "Session not found")
    channels.failed(lost, first, what="read")
    second = channels.session()
    channels.failed(lost, first, what="read")
    assert channels.session() == second != first


def test_another_not_found_keeps_the_session(channels):
    session = channels.session()
    error = channels.failed(Failed(grpc.StatusCode.NOT_FOUND, "Database"), session, what="read")
    assert isinstance(error, QueryRefused)
    assert channels.session() == session


def test_without_credentials_it_says_what_to_set(monkeypatch):
    import google.auth
    import google.auth.exceptions

    def none_found(**_):
        raise google.auth.exceptions.DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", none_found)
    with pytest.raises(ConfigError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        SpannerChannels(database="d").session(timeout_s=1)


def test_a_unary_call_without_an_answer_in_time_leaves_its_connection(spanner, channels):
    """Else each retry would go to a connection that a network dropped without a word."""
    channels.session()
    left = channels._unary_channel
    spanner.on_sql = lambda _request, context: context.abort(grpc.StatusCode.ABORTED, "busy")
    with pytest.raises(QueryInterrupted):
        channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)
    assert channels._unary_channel is left
    going_on = threading.Event()
    spanner.on_sql = lambda *_: going_on.wait(60) and ResultSet.pb()()
    try:
        with pytest.raises(QueryInterrupted, match="DEADLINE_EXCEEDED"):
            channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=0.2)
    finally:
        going_on.set()
    channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=20)
    assert channels._unary_channel is not left


@pytest.mark.parametrize("emulator_host", ["127.0.0.1:1", ""])
def test_the_connection_of_unary_calls_is_kept_alive(monkeypatch, emulator_host):
    opened = []

    def note(*_target, options):
        opened.append(dict(options))

    monkeypatch.setattr(grpc, "insecure_channel", note)
    monkeypatch.setattr(grpc, "secure_channel", note)
    monkeypatch.setattr(Authorization, "channel_credentials", lambda _self: None)
    SpannerChannels(database="d", emulator_host=emulator_host)._open()

    (options,) = opened
    assert options["grpc.keepalive_time_ms"] == 120_000
    assert options["grpc.use_local_subchannel_pool"] == 1
    assert options["grpc.http2.max_pings_without_data"] == 0


@pytest.mark.parametrize(
    ("emulator_host", "address", "scheme"),
    [("127.0.0.1:1", "127.0.0.1:1", "http"), ("", "spanner.googleapis.com:443", "https")],
)
def test_where_streaming_queries_go(emulator_host, address, scheme):
    channels = SpannerChannels(database="d", emulator_host=emulator_host)
    endpoint = channels._endpoint()
    assert (endpoint.address, endpoint.scheme) == (address, scheme)
    assert channels._endpoint() is endpoint


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "grpc_proxy", "http_proxy"])
def test_unary_calls_go_through_the_proxy_of_streaming_queries(monkeypatch, name):
    for proxies in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(proxies, raising=False)
        monkeypatch.delenv(proxies.upper(), raising=False)
    monkeypatch.setattr(
        Authorization, "channel_credentials", lambda _: grpc.ssl_channel_credentials()
    )
    host = "spanner.example.invalid:443"
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(20)
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        channel = SpannerChannels(database="d", endpoint=host)._open()
        call = channel.unary_unary("/any").future(b"")
        opened, _ = proxy.accept()
        with opened:
            assert opened.recv(1_000).startswith(f"CONNECT {host} ".encode())
        call.cancel()
        channel.close()
    monkeypatch.setenv("NO_PROXY", "example.invalid")
    assert SpannerChannels(database="d", endpoint=host)._endpoint().proxy is None


@pytest.mark.parametrize("emulator_host", ["127.0.0.1:1", ""])
def test_without_a_proxy_for_streaming_queries_unary_calls_have_none(monkeypatch, emulator_host):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "" if emulator_host else "googleapis.com")
    monkeypatch.delenv("no_proxy", raising=False)
    opened = []

    def note(*_target, options):
        opened.append(dict(options))

    monkeypatch.setattr(grpc, "insecure_channel", note)
    monkeypatch.setattr(grpc, "secure_channel", note)
    monkeypatch.setattr(Authorization, "channel_credentials", lambda _self: None)
    SpannerChannels(database="d", emulator_host=emulator_host)._open()
    assert opened[0]["grpc.enable_http_proxy"] == 0


def test_another_endpoint_gets_the_credentials_of_the_service():
    channels = SpannerChannels(database="d", endpoint="spanner.us-east4.rep.googleapis.com:443")
    assert channels._endpoint().address == "spanner.us-east4.rep.googleapis.com:443"
    assert channels._endpoint().scheme == "https"
    assert channels._authorization._url == "https://spanner.googleapis.com/"


def test_only_the_service_gets_the_hosts_token(monkeypatch):
    async def headers(_self):
        return [("authorization", "Bearer token")]

    monkeypatch.setattr(Authorization, "headers", headers)
    for emulator_host, added in (("127.0.0.1:1", []), ("", [("authorization", "Bearer token")])):
        channels = SpannerChannels(database="d", emulator_host=emulator_host)
        sent = asyncio.run(channels._signed((("a", "b"),)))
        assert list(sent) == [("a", "b"), *added]


def test_what_calls_are_routed_by_is_encoded():
    channels = SpannerChannels(database="projects/a.com:b c/instances/i/databases/d&e=1")
    for metadata, expected in (
        (channels._metadata_of_the_database(),
         "database=projects/a.com%3Ab+c/instances/i/databases/d%26e%3D1"),
        (channels._metadata("d/sessions/s=="), "session=d/sessions/s%3D%3D"),
    ):  # fmt: skip
        assert dict(metadata)["x-goog-request-params"] == expected
        assert expected == to_routing_header(parse_qsl(expected))
        assert dict(metadata)["google-cloud-resource-prefix"] == channels.database


def test_queries_that_start_together_ask_for_one_session(spanner, channels, tasks):
    async def ask():
        return await asyncio.gather(*[channels.stream_session() for _ in range(5)])

    first, *others = tasks.run(ask)
    assert set(others) == {first}
    assert channels.session() == first
    assert spanner.sessions == 1


def test_a_session_that_is_refused_to_a_query_is_an_error_of_that_query(spanner, channels, tasks):
    spanner.on_session = lambda _request, context: context.abort(
        grpc.StatusCode.PERMISSION_DENIED, "no"
    )
    with pytest.raises(QueryRefused, match="open a session"):
        tasks.run(channels.stream_session)


def test_the_service_is_spoken_to_with_tls_and_the_hosts_credentials(monkeypatch):
    import google.auth

    class Credentials(ModuleType):
        token = "secret"

    opened = []
    monkeypatch.setattr(google.auth, "default", lambda scopes: (Credentials("c"), "p"))

    def secure_channel(target, credentials, options):
        opened.append((target, credentials, dict(options)))
        return grpc.insecure_channel("127.0.0.1:1")

    monkeypatch.setattr(grpc, "secure_channel", secure_channel)
    channels = SpannerChannels(database="d")
    with pytest.raises(QueryInterrupted):
        channels.session(timeout_s=1)
    ((target, credentials, options),) = opened
    assert target == "spanner.googleapis.com:443"
    assert isinstance(credentials, grpc.ChannelCredentials)
    assert options["grpc.max_receive_message_length"] == -1
    channels.close()
