"""Channels: unary calls, connections for queries, errors by code, and who gets credentials."""

import asyncio
import contextlib
import functools
import socket
import threading
from base64 import b64encode
from datetime import UTC, datetime
from urllib.parse import parse_qsl

import google.auth
import google.auth.exceptions
import grpc
import pytest
from google.api_core.gapic_v1.routing_header import to_routing_header
from google.auth.credentials import AnonymousCredentials
from google.cloud.spanner_v1.types import ExecuteSqlRequest, ResultSet
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tidegate.producer.errors import QueryInterrupted, QueryRefused
from tidegate.producer.spanner.channel import SpannerChannels, rpc_error
from tidegate.producer.spanner.transport import stream_channels
from tidegate.producer.spanner.transport.authorization import Authorization
from tidegate.producer.spanner.transport.connection import NotSentError
from tidegate.producer.spanner.transport.status import (
    DETAILS_TRAILER,
    RETRY_AFTER_HEADER,
    CallError,
    asked_pause_us,
    is_lost_session,
    is_rejection,
    is_web_page,
)
from tidegate.producer.spanner.transport.stream_channels import (
    STREAMS_PER_CHANNEL_MAX,
    StreamChannels,
)
from tidegate.schemas.errors import ConfigError

CODES = grpc.StatusCode
NOBODY = "127.0.0.1:1"
INSECURE = grpc.insecure_channel


class Failed(grpc.RpcError):
    def __init__(self, code, details="", trailers=()):
        self.code = lambda: code
        self.details = lambda: details
        self.trailing_metadata = lambda: trailers


def aborts(code, details="no"):
    return lambda _request, context: context.abort(code, details)


def select(channels, timeout_s=20):
    channels.execute_sql(ExecuteSqlRequest.pb()(sql="SELECT 1"), timeout_s=timeout_s)


def test_every_status_code_is_classified_as_retriable_or_not():
    retriable = {code.name for code in CODES if rpc_error(Failed(code), action="read").retriable}
    assert retriable == {
        "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED",
        "UNAVAILABLE", "UNKNOWN",
    }  # fmt: skip
    error = rpc_error(Failed(CODES.ABORTED, "busy"), action="read", token="k")
    assert isinstance(error, QueryInterrupted)
    assert str(error) == "could not read (code='ABORTED', details='busy', token='k')"


def test_nobody_listens():
    channels = SpannerChannels(database="d", emulator_host=NOBODY)
    with pytest.raises(QueryInterrupted) as caught:
        channels.session(timeout_s=5)
    assert caught.value.code in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    channels.close()


def test_a_lost_session_is_created_again_for_unary_calls_too(spanner, channels):
    spanner.on_sql = aborts(CODES.NOT_FOUND, "Session not found")
    for _ in range(2):
        with pytest.raises(QueryInterrupted):
            select(channels)
    assert spanner.sessions == 2


def test_a_rejected_unary_call_is_repeated_with_a_fresh_token(spanner, channels, monkeypatch):
    pauses, renewed = [], []
    monkeypatch.setattr(
        "tidegate.producer.spanner.transport.service_client.time.sleep", pauses.append
    )
    monkeypatch.setattr(channels._authorization, "renew", lambda: renewed.append(True))
    refusals = [2]

    def refuse(_request, context):
        refusals[0] -= 1
        if refusals[0] >= 0:
            context.abort(CODES.UNAUTHENTICATED, "revoked")
        return ResultSet.pb()()

    spanner.on_session = refuse
    channels.session()
    assert len(pauses) == len(renewed) == 2
    refusals[0], spanner.on_sql = 3, refuse
    select(channels)
    assert len(pauses) == len(renewed) == 5


def test_what_was_rejected_from_the_start_is_refused(spanner, channels, monkeypatch):
    monkeypatch.setattr(
        "tidegate.producer.spanner.transport.service_client.time.sleep", lambda _seconds: None
    )
    spanner.on_session = aborts(CODES.UNAUTHENTICATED)
    with pytest.raises(QueryRefused) as caught:
        channels.session()
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint
    # An answer of a load balancer says that it is not Spanner.
    page = "Received http2 header with status: 404"
    channels = SpannerChannels(database="d", emulator_host=NOBODY)
    for kind in (QueryRefused, QueryInterrupted):
        error = channels.failed(Failed(CODES.UNIMPLEMENTED, page), "s", action="read")
        assert type(error) is kind
        assert "not Spanner" in error.hint
        assert page in str(error)
        channels.accept()


def test_only_the_end_of_the_present_session_drops_it(channels):
    first = channels.session()
    error = channels.failed(Failed(CODES.NOT_FOUND, "Database"), first, action="read")
    assert isinstance(error, QueryRefused)
    assert channels.session() == first
    lost = Failed(CODES.NOT_FOUND, "Session not found")
    channels.failed(lost, first, action="read")
    second = channels.session()
    channels.failed(lost, first, action="read")
    assert channels.session() == second != first


def test_a_unary_call_without_an_answer_in_time_leaves_its_connection(spanner, channels):
    channels.session()
    left = channels._service._client
    spanner.on_sql = aborts(CODES.ABORTED, "busy")
    with pytest.raises(QueryInterrupted):
        select(channels)
    assert channels._service._client is left
    going_on = threading.Event()
    spanner.on_sql = lambda *_: going_on.wait(60) and ResultSet.pb()()
    try:
        with pytest.raises(QueryInterrupted, match="DEADLINE_EXCEEDED"):
            select(channels, timeout_s=0.2)
    finally:
        going_on.set()
    select(channels)
    assert channels._service._client is not left


@pytest.fixture
def opened(monkeypatch):
    """The target and the options of each gRPC channel."""
    found = []

    def note(target, *_credentials, options):
        found.append((target, dict(options)))
        return INSECURE(NOBODY)

    monkeypatch.setattr(grpc, "insecure_channel", note)
    monkeypatch.setattr(grpc, "secure_channel", note)
    monkeypatch.setattr(Authorization, "credentials", lambda _self: AnonymousCredentials())
    monkeypatch.setattr(Authorization, "channel_credentials", lambda _self, _tls: None)
    return found


@pytest.mark.parametrize("emulator_host", [NOBODY, ""])
def test_the_connection_of_unary_calls_is_kept_alive_and_has_no_other_proxy(
    monkeypatch, opened, emulator_host
):
    """One that streaming queries do not go through."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "" if emulator_host else "googleapis.com")
    monkeypatch.delenv("no_proxy", raising=False)
    SpannerChannels(database="d", emulator_host=emulator_host)._service._opened()
    ((_, options),) = opened
    assert options["grpc.keepalive_time_ms"] == 120_000
    assert options["grpc.use_local_subchannel_pool"] == 1
    assert options["grpc.http2.max_pings_without_data"] == 0
    assert options["grpc.enable_http_proxy"] == 0


@pytest.mark.parametrize(
    ("options", "address", "scheme"),
    [
        ({"emulator_host": NOBODY}, NOBODY, "http"), ({}, "spanner.googleapis.com:443", "https"),
        ({"endpoint": "spanner.us-east4.rep.googleapis.com:443"},
         "spanner.us-east4.rep.googleapis.com:443", "https"),
    ],
)  # fmt: skip
def test_where_queries_go_and_that_only_the_service_gets_the_hosts_token(
    monkeypatch, opened, options, address, scheme
):
    async def headers(_self):
        return [("authorization", "Bearer token")]

    monkeypatch.setattr(Authorization, "headers", headers)
    channels = SpannerChannels(database="d", **options)
    endpoint = channels._open_connection()._endpoint
    assert (endpoint.address, endpoint.scheme) == (address, scheme)
    assert channels._open_connection()._endpoint is endpoint
    assert channels._authorization._url == "https://spanner.googleapis.com/"
    sent = asyncio.run(channels._metadata("s"))
    added = [] if scheme == "http" else [("authorization", "Bearer token")]
    assert sent[3:] == added
    channels._service._opened()  # unary calls go to the same address
    assert [target for target, _ in opened] == [address]


def test_the_services_address_is_that_of_the_universe(monkeypatch, opened):
    monkeypatch.setenv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "example.com")
    channels = SpannerChannels(database="d")
    assert channels._open_connection()._endpoint.address == "spanner.example.com:443"
    assert [target for target, _ in opened] == ["spanner.example.com:443"]


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "grpc_proxy", "http_proxy"])
@pytest.mark.parametrize("kind", ["unary", "h2", "grpc"])
def test_all_calls_go_through_one_proxy(monkeypatch, tasks, name, kind):
    for proxies in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(proxies, raising=False)
        monkeypatch.delenv(proxies.upper(), raising=False)
    monkeypatch.setattr(Authorization, "credentials", lambda _self: AnonymousCredentials())
    monkeypatch.setattr(Authorization, "channel_credentials", lambda _self, tls: tls)
    host = "spanner.example.invalid:443"

    def channels():
        return SpannerChannels(database="d", endpoint=host, query_transport=kind)

    async def stream():
        connection = channels()._open_connection()
        with contextlib.suppress(grpc.RpcError):
            call = await connection.call("/any", b"", ())
            await call.next_size()
        connection.close()

    def unary():
        with contextlib.suppress(grpc.RpcError):
            channels()._service.call("create_session", {}, timeout_s=1)

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(20)
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        call = unary if kind == "unary" else functools.partial(tasks.run, stream)
        thread = threading.Thread(target=call)
        thread.start()
        accepted, _ = proxy.accept()
        with accepted:
            assert accepted.recv(1_000).startswith(f"CONNECT {host} ".encode())
    thread.join(30)
    assert not thread.is_alive()
    monkeypatch.setenv("NO_PROXY", "example.invalid")
    assert channels()._open_connection()._endpoint.proxy is None


def test_a_connection_that_broke_is_tried_again_by_googles_client(spanner, channels):
    """Not where the service asks for a pause: the caller takes it."""
    left = [2]

    def break_off(_request, context):
        left[0] -= 1
        if left[0] >= 0:
            context.abort(CODES.UNAVAILABLE, "gone")
        return ResultSet.pb()()

    spanner.on_sql = break_off
    select(channels)
    assert left == [-1]

    def ask_for_a_pause(_request, context):
        left[0] += 1
        asked = RetryInfo(retry_delay=Duration(seconds=7))
        details = status(asked, code=CODES.UNAVAILABLE)
        context.set_trailing_metadata(((DETAILS_TRAILER, details),))
        context.abort(CODES.UNAVAILABLE, "busy")

    spanner.on_sql = ask_for_a_pause
    with pytest.raises(QueryInterrupted) as caught:
        select(channels)
    assert caught.value.pause_us == 7_000_000
    assert left == [0]


@pytest.mark.parametrize("details", [b"\xff\xff", b"\x08\x05"], ids=["damaged", "another code"])
def test_a_status_that_googles_client_cannot_read_is_that_of_grpc(spanner, channels, details):
    def refuse(_request, context):
        context.set_trailing_metadata(((DETAILS_TRAILER, details),))
        context.abort(CODES.INTERNAL, "broken")

    spanner.on_sql = refuse
    with pytest.raises(QueryInterrupted, match="broken") as caught:
        select(channels)
    assert caught.value.code == "INTERNAL"


def test_variables_that_googles_client_refuses_are_named(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_USE_CLIENT_CERTIFICATE", "perhaps")
    monkeypatch.setenv("GOOGLE_API_USE_MTLS_ENDPOINT", "perhaps")
    channels = SpannerChannels(database="d", emulator_host=NOBODY)
    with pytest.raises(ConfigError, match="GOOGLE_API_USE_MTLS_ENDPOINT"):
        channels.session()


def test_what_calls_are_routed_by_is_encoded(spanner):
    database = "projects/a.com:b c/instances/i/databases/d&e=1"
    channels = SpannerChannels(database=database, emulator_host=spanner.address)
    channels.session()
    queried = asyncio.run(channels._metadata("d/sessions/s=="))
    channels.close()
    for metadata, expected in (
        (spanner.metadata[0], "database=projects/a.com%3Ab+c/instances/i/databases/d%26e%3D1"),
        (dict(queried), "session=d/sessions/s%3D%3D"),
    ):
        assert metadata["x-goog-request-params"] == expected
        assert expected == to_routing_header(parse_qsl(expected))
        assert metadata["google-cloud-resource-prefix"] == database


def test_queries_that_start_together_ask_for_one_session(spanner, channels, tasks):
    answers, spanner.on_session = spanner.on_session, aborts(CODES.PERMISSION_DENIED)
    with pytest.raises(QueryRefused, match="open a session"):
        tasks.run(channels.stream_session)
    spanner.on_session = answers

    async def ask():
        return await asyncio.gather(*[channels.stream_session() for _ in range(5)])

    first, *others = tasks.run(ask)
    assert set(others) == {first}
    assert channels.session() == first
    assert spanner.sessions == 1


def test_the_service_is_spoken_to_with_tls_and_the_hosts_credentials(monkeypatch):
    opened = []
    monkeypatch.setattr(google.auth, "default", lambda scopes: (AnonymousCredentials(), "p"))

    def secure_channel(target, credentials, options):
        opened.append((target, credentials, dict(options)))
        return INSECURE(NOBODY)

    monkeypatch.setattr(grpc, "secure_channel", secure_channel)
    channels = SpannerChannels(database="d")
    with pytest.raises(QueryInterrupted):
        channels.session(timeout_s=1)
    ((target, credentials, options),) = opened
    assert target == "spanner.googleapis.com:443"
    assert isinstance(credentials, grpc.ChannelCredentials)
    assert options["grpc.max_receive_message_length"] == -1
    channels.close()

    def none_found(**_):
        raise google.auth.exceptions.DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", none_found)
    with pytest.raises(ConfigError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        SpannerChannels(database="d").session(timeout_s=1)


SESSION, DATABASE = "google.spanner.v1.Session", "google.spanner.admin.database.v1.Database"


def encodings(status):
    """A serialised status as trailers may have it."""
    text = b64encode(status).decode()
    return [[("a", "b"), (DETAILS_TRAILER, value)] for value in (status, text, text.rstrip("="))]


def status(*details, code=CODES.NOT_FOUND):
    """A serialised status with details after one of another kind."""
    packed = [Any(type_url="type.googleapis.com/google.rpc.Unknown")]
    for one in (ErrorInfo(reason="WHY"), *details):
        packed.append(Any())
        packed[-1].Pack(one)
    return Status(code=code.value[0], message="m", details=packed).SerializeToString()


def of_resource(kind):
    return status(ResourceInfo(resource_type=kind, resource_name="n"))


def test_a_session_that_is_gone_in_any_words():
    name = "projects/p/instances/i/databases/d/sessions/s"
    other = encodings(of_resource(f"type.googleapis.com/{DATABASE}"))[0]
    for details in (
        f"Session not found: {name}", "Session was not found", "Session was concurrently deleted",
        f"Session was concurrently deleted: {name}", "The session has expired.",
        f"Requested entity was not found: {name}", "SESSION DELETED",
    ):  # fmt: skip
        assert is_lost_session(Failed(CODES.NOT_FOUND, details))
        assert not is_lost_session(Failed(CODES.INVALID_ARGUMENT, details))
        # What the status names counts before its words.
        assert not is_lost_session(Failed(CODES.NOT_FOUND, details, other))
        for damaged in (b"\xff\xff", "§", "AAA", b""):
            trailers = [(DETAILS_TRAILER, damaged)]
            assert is_lost_session(Failed(CODES.NOT_FOUND, details, trailers))


def test_what_else_is_not_found():
    for details in (
        "", "Database not found: projects/p/instances/i/databases/session",
        "Database not found: projects/p/instances/session/databases/d",
        "Database not found: session", "Change Stream not found: Session",
        "Instance not found: projects/p/instances/user-session", "Table not found: sessions",
        "No obsession",
    ):  # fmt: skip
        assert not is_lost_session(Failed(CODES.NOT_FOUND, details))
        assert not is_lost_session(Failed(CODES.NOT_FOUND, details, [(DETAILS_TRAILER, "§")]))
        for kind in (SESSION, f"type.googleapis.com/{SESSION}"):
            for trailers in encodings(of_resource(kind)):
                assert is_lost_session(Failed(CODES.NOT_FOUND, details, trailers))


def test_how_long_the_service_wants_to_be_left_alone():
    def pause_us(trailers=()):
        failed = Failed(CODES.RESOURCE_EXHAUSTED, "quota", trailers)
        assert rpc_error(failed, action="read").pause_us == asked_pause_us(failed)
        return asked_pause_us(failed)

    for duration, expected in (
        ({"seconds": 7, "nanos": 250_000_000}, 7_250_000), ({"nanos": 1_500}, 1), ({}, 0),
        ({"seconds": -3}, 0), ({"seconds": 3_600}, 60_000_000),
    ):  # fmt: skip
        for trailers in encodings(status(RetryInfo(retry_delay=Duration(**duration)))):
            assert pause_us(trailers) == expected
    assert pause_us(encodings(of_resource(SESSION))[0]) == pause_us() == 0
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for header, expected in (("9", 9_000_000), ("Sun, 01 Mar 2026 12:00:05 GMT", 5_000_000),
                             ("soon", 0), ("7200", 60_000_000)):  # fmt: skip
        page = CallError(CODES.UNKNOWN, "HTTP status 429", trailers={RETRY_AFTER_HEADER: header})
        assert asked_pause_us(page, now) == expected


def test_which_answers_a_fresh_token_may_change():
    page = CallError(CODES.PERMISSION_DENIED, "HTTP status 403", is_web_page=True)
    assert "check spanner_endpoint and" in rpc_error(page, action="query Spanner").hint
    unary = Failed(CODES.UNIMPLEMENTED, "Received http2 header with status: 404")
    assert [is_web_page(page), is_web_page(unary)] == [True, True]
    denied = CallError(CODES.PERMISSION_DENIED, "no")
    assert not is_web_page(denied)
    found = [page, unary, Failed(CODES.UNAUTHENTICATED), CallError(CODES.UNAUTHENTICATED, "no"),
             denied, Failed(CODES.UNIMPLEMENTED, "no such method")]  # fmt: skip
    assert [is_rejection(one) for one in found] == [True] * 4 + [False] * 2


FULL = STREAMS_PER_CHANNEL_MAX


class Call:
    def __init__(self, messages):
        self.messages = list(messages)
        self.cancelled = 0

    async def next_size(self):
        await asyncio.sleep(0)
        return len(self.messages[0]) if self.messages else None

    async def read(self, *, pause_s):
        return self.messages.pop(0)

    def cancel(self):
        self.cancelled += 1


class Connection:
    streams_max = 1 << 31
    is_usable = True

    def __init__(self, messages):
        self.calls = []
        self.is_closed = False
        self._messages = messages

    async def call(self, _path, _request, metadata):
        assert metadata == [("name", "value")]
        if not self.is_usable:
            raise NotSentError(grpc.StatusCode.UNAVAILABLE, "no more calls")
        self.calls.append(Call(self._messages))
        return self.calls[-1]

    def close(self):
        self.is_closed = True


async def metadata():
    return [("name", "value")]


async def read(stream):
    found = []
    while await stream.next_size() is not None:
        found.append(await stream.read())
    return found


class Opened:
    """Connections for queries, and those that were opened for them."""

    def __init__(self, tasks):
        self.tasks, self.opened = tasks, []
        self.channels = StreamChannels(self.open)

    def open(self):
        self.opened.append(Connection([b"one", b""]))
        return self.opened[-1]

    def run(self, act):
        """Run a function on the tasks' loop, and what it starts."""

        async def whole():
            found = act()
            for _ in range(3):
                await asyncio.sleep(0)
            return found

        return self.tasks.run(whole)

    def begin(self, count):
        def begin_all():
            return [self.channels.call("m", b"", metadata) for _ in range(count)]

        return self.run(begin_all)

    def close(self, *streams):
        self.run(lambda: [stream.close() for stream in streams])

    @property
    def streams(self):
        return [place.streams for place in self.channels._places]

    @property
    def closed(self):
        return [one.is_closed for one in self.opened]


@pytest.fixture
def places(tasks):
    return Opened(tasks)


def test_a_connection_is_opened_when_all_are_full_and_closed_when_others_have_room(places):
    streams = places.begin(1_000)
    assert len(places.opened) == 12
    assert places.streams[0] == FULL
    places.close(*streams)
    assert places.closed.count(False) == 1


def test_streams_gather_on_the_fullest_connection_so_that_others_empty(places):
    streams = places.begin(FULL + 40)
    places.close(*streams[:20])
    places.begin(20)
    assert places.streams == [FULL, 40]
    places.opened[1].streams_max = 40  # no more than its server takes
    places.begin(1)
    assert places.streams == [FULL, 40, 1]


def test_an_empty_connection_stays_while_the_others_are_nearly_full(places):
    *streams, last = places.begin(FULL + 1)
    places.close(last)
    assert places.closed == [False, False]
    places.close(*streams[: stream_channels._SPARE_PLACES - 1])
    assert places.closed == [False, False]
    places.close(streams[-1])
    assert places.closed == [False, True]


def test_a_stream_leaves_its_connection_once_and_closing_ends_every_one(places):
    places.channels.close()  # before there is one
    first, second = places.begin(2)
    places.close(first)
    first.cancel()
    places.close(first)
    assert places.streams == [1]
    places.close(second)
    assert places.streams == [0]
    places.begin(FULL + 1)
    for _ in range(2):
        places.channels.close()
    assert places.closed == [True, True]


def test_the_memory_of_large_messages_is_returned_every_four_mebibytes(tasks, monkeypatch):
    returned = []
    monkeypatch.setattr(stream_channels, "return_freed_memory", lambda: returned.append(1))

    async def read_twice(messages):
        channels = StreamChannels(lambda: Connection([bytes(size) for size in messages]))
        for _ in range(2):  # streams
            found = await read(channels.call("method", b"", metadata))
            assert [len(message) for message in found] == messages

    mebi = 1 << 20
    tasks.run(lambda: read_twice([mebi // 4 - 1] * 50))
    assert returned == []
    tasks.run(lambda: read_twice([mebi] * 2))
    assert returned == [1]
    tasks.run(lambda: read_twice([2 * mebi, 100, 2 * mebi]))
    assert returned == [1] * 3


def test_a_connection_that_takes_no_calls_is_left_and_closed_with_its_last_stream(places):
    streams = places.begin(2)
    places.opened[0].is_usable = False
    places.begin(1)
    assert places.streams == [2, 1]
    places.close(streams[0])
    assert not places.closed[0]
    places.close(streams[1])
    assert places.closed[0]
    assert places.streams == [1]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_stream_that_is_closed_before_it_began_ends_its_call(places, monkeypatch, steps):
    """Before it asks for its metadata, and while the connection takes the request."""
    (stream,) = places.begin(1)
    connect = Connection.call

    async def slowly(self, *request):
        await asyncio.sleep(0)
        return await connect(self, *request)

    monkeypatch.setattr(Connection, "call", slowly)

    async def close_meanwhile():
        beginning = asyncio.create_task(stream.next_size())
        for _ in range(steps):
            await asyncio.sleep(0)
        stream.close()
        with pytest.raises(grpc.RpcError) as caught:
            await beginning
        assert caught.value.code() is CODES.CANCELLED

    places.tasks.run(close_meanwhile)
    assert [call.cancelled for call in places.opened[0].calls] == [1] * steps
    assert places.streams == [0]


def test_a_call_that_a_connection_takes_no_more_goes_to_another(places):
    """The server may have begun to leave since the place was taken, or said how many it takes."""
    (stream,) = places.begin(1)
    places.opened[0].is_usable = False
    # An empty message is not the end.
    assert places.tasks.run(lambda: read(stream)) == [b"one", b""]
    assert [len(one.calls) for one in places.opened] == [0, 1]
    assert places.closed == [True, False]
    assert places.streams == [1]


def test_a_server_that_takes_no_calls_is_not_connected_to_without_end(places, monkeypatch):
    monkeypatch.setattr(Connection, "is_usable", False)
    (stream,) = places.begin(1)
    with pytest.raises(grpc.RpcError) as caught:
        places.tasks.run(stream.next_size)
    assert caught.value.code() is CODES.UNAVAILABLE
    assert len(places.opened) < 6
    places.close(stream)
    assert all(places.closed)
