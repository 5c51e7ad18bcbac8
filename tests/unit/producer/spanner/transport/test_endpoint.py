"""Where connections go: verified TLS, HTTP/2, proxies; and which credentials calls have."""

import asyncio
import socket
import ssl
import threading
from types import SimpleNamespace

import certifi
import google.auth
import google.auth.exceptions
import grpc
import pytest

from tidegate.producer.spanner.transport.authorization import Authorization
from tidegate.producer.spanner.transport.call import ReadAhead
from tidegate.producer.spanner.transport.connection import Connection
from tidegate.producer.spanner.transport.endpoint import Endpoint
from tidegate.producer.spanner.transport.status import CallError
from tidegate.schemas.errors import ConfigError

ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    proxies = ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy")
    for name in (*proxies, *map(str.upper, proxies), ROOTS_VARIABLE):
        monkeypatch.delenv(name, raising=False)


class Opened(asyncio.Protocol):
    def __init__(self):
        self.transport = None
        self.greeting = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.greeting.set_result(data)


class Proxy:
    """Connects what asks for a tunnel, unless it `answers` something else."""

    scheme = "http"

    def __init__(self, answers=b"HTTP/1.1 200 Connected\r\nVia: x\r\n\r\n"):
        self.answers = answers
        self.asked = b""

    async def start(self, port):
        self.port = port
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        own = self.server.sockets[0].getsockname()[1]
        self.url = f"{self.scheme}://user:a%20b@127.0.0.1:{own}"

    async def serve(self, reader, writer):
        self.asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answers)
        if b" 200 " not in self.answers:
            writer.close()
            return
        server, to_server = await asyncio.open_connection("127.0.0.1", self.port)

        async def pipe(source, target):
            while data := await source.read(1 << 16):
                target.write(data)
            target.close()

        await asyncio.gather(pipe(reader, to_server), pipe(server, writer), return_exceptions=True)

    @property
    def lines(self):
        return self.asked.decode().splitlines()


@pytest.fixture
def connect(certificate, monkeypatch):
    """Connect to a server with TLS; return what it greets with, and whether HTTP/2 was agreed."""

    def connect(*, trusted="SSL_CERT_FILE", protocols=("h2",), proxy=None, host="127.0.0.1"):
        if trusted:
            monkeypatch.setenv(trusted, str(certificate))

        async def greet(_reader, writer):
            writer.write(b"hello")
            await writer.drain()

        async def run():
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate)
            if protocols:
                context.set_alpn_protocols(list(protocols))
            server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
            port = server.sockets[0].getsockname()[1]
            if proxy is not None:
                await proxy.start(port)
                monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            endpoint, opened = Endpoint(f"{host}:{port}", is_secure=True), []
            try:
                await endpoint.connect(lambda: opened.append(Opened()) or opened[0])
                found = await opened[0].greeting, endpoint.speaks_http2(opened[0].transport)
                opened[0].transport.abort()
                return found
            finally:
                server.close()
                if proxy is not None:
                    proxy.server.close()

        return asyncio.run(run())

    return connect


def test_certificates_that_the_host_trusts_or_that_grpc_is_given_are_taken(connect):
    assert connect() == (b"hello", True)
    assert connect(protocols=()) == (b"hello", False)
    assert connect(trusted=ROOTS_VARIABLE) == (b"hello", True)


@pytest.mark.parametrize(
    ("roots", "options"),
    [(certifi.where(), {}), (None, {"host": "localhost"}), (None, {"trusted": None})],
)
def test_a_certificate_that_nobody_vouches_for_is_refused(connect, monkeypatch, roots, options):
    if roots:
        monkeypatch.setenv(ROOTS_VARIABLE, roots)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(**options)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_a_setting(monkeypatch, tmp_path, content):
    path = tmp_path / "roots.pem"
    if content:
        path.write_text(content)
    monkeypatch.setenv(ROOTS_VARIABLE, str(path))
    with pytest.raises(ConfigError, match=ROOTS_VARIABLE):
        Endpoint("h", is_secure=True)


def test_a_tunnel_to_an_ipv6_address_has_brackets(monkeypatch):
    proxy = Proxy(answers=b"HTTP/1.1 403 Forbidden\r\n\r\n")

    async def run():
        await proxy.start(0)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(ConnectionError):
            await Endpoint("[2001:db8::1]:8443", is_secure=True).connect(Opened)
        proxy.server.close()

    asyncio.run(run())
    assert proxy.lines[:2] == [
        "CONNECT [2001:db8::1]:8443 HTTP/1.1", "Host: [2001:db8::1]:8443"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ({"https_proxy": "p:1"}, "http://p:1"),
        ({"http_proxy": "http://p:1"}, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, None),
        ({"grpc_proxy": "http://g:1", "https_proxy": "http://p:1"}, "http://g:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x.org,.googleapis.com"}, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "x.org"}, "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "no_grpc_proxy": "googleapis.com"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x.org,googleapis.com:443"}, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "googleapis.com:8443"}, "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "no_grpc_proxy": "googleapis.com:443"}, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "10.0.0.0/8"}, "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "no_grpc_proxy": "", "no_proxy": "*"}, "http://p:1"),
    ],
)
def test_the_proxy_is_that_of_the_environment(monkeypatch, environment, found):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Endpoint("spanner.googleapis.com:443", is_secure=True).proxy == found
    assert Endpoint("spanner.googleapis.com:443", is_secure=False).proxy is None


@pytest.mark.parametrize(
    ("address", "excepted", "is_excepted"),
    [
        ("10.1.2.3:15000", "10.0.0.0/8", True), ("10.1.2.3:15000", "x, 10.1.2.3:15000", True),
        ("10.1.2.3:15000", "10.1.2.3:443,11.0.0.0/8", False),
        ("[2001:db8::1]:15000", "2001:db8::/32", True),
        ("[2001:db8::1]:15000", "[2001:db8::1]:15000", True),
    ],
)  # fmt: skip
def test_an_exception_of_the_proxy_is_a_port_or_a_network(
    monkeypatch, address, excepted, is_excepted
):
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    for name in ("NO_PROXY", "no_grpc_proxy"):
        monkeypatch.setenv(name, excepted)
        options = dict(Endpoint(address, is_secure=True).channel_options())
        assert options.get("grpc.http_proxy") == (None if is_excepted else "http://p:1")


def test_a_proxy_is_asked_for_a_tunnel(connect, monkeypatch):
    proxy = Proxy()
    assert connect(proxy=proxy) == (b"hello", True)
    assert proxy.lines[0] == f"CONNECT 127.0.0.1:{proxy.port} HTTP/1.1"
    assert "Proxy-Authorization: Basic dXNlcjphIGI=" in proxy.lines  # user:a b
    # Some hosts are reached directly.
    proxy = Proxy()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert connect(proxy=proxy) == (b"hello", True)
    assert not proxy.asked


class WithTls(Proxy):
    scheme = "https"


class Ended(Proxy):
    async def start(self, port):
        await super().start(port)
        self.server.close()
        await self.server.wait_closed()


@pytest.mark.parametrize(
    ("proxy", "text"),
    [
        *((Proxy(answer), r"the proxy 127\.0\.0\.1") for answer in (
            b"HTTP/1.1 403 Forbidden\r\n\r\n", b"", b"nonsense\r\n\r\n")),
        (WithTls(), "by http:// only"), (Ended(), ""),
    ],
)  # fmt: skip
def test_a_proxy_that_refuses_is_an_error_of_the_system(connect, proxy, text):
    with pytest.raises(ConnectionError, match=text or None):
        connect(proxy=proxy)


def test_a_proxy_that_answers_on_its_second_address_only(connect, monkeypatch):
    async def both(loop, _host, port, **_):
        found = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        return [(*found, ("127.0.0.1", 1)), (*found, ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", both)
    proxy = Proxy()
    assert connect(proxy=proxy) == (b"hello", True)
    assert proxy.asked


@pytest.mark.parametrize("proxy", ["http://host:port", "http://[::1"])
def test_a_proxy_that_cannot_be_read_is_no_connection(monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)

    async def use():
        client = Connection(Endpoint("spanner.invalid:443", is_secure=True), ReadAhead())
        with pytest.raises(CallError, match=r"no connection to spanner\.invalid:443") as caught:
            await client.call("/service/method", b"", [])
        return caught.value.code()

    assert asyncio.run(use()) is grpc.StatusCode.UNAVAILABLE


def test_addresses():
    for address, host, port in (("h:9", "h", 9), ("h", "h", 443), ("[::1]:8", "::1", 8)):
        endpoint = Endpoint(address, is_secure=port != 8)
        assert (endpoint._host, endpoint._port) == (host, port)


class Credentials:
    valid = False

    def __init__(self, error=None):
        self.error = error
        self.refreshed_on = []

    def before_request(self, _request, method, url, headers):
        assert (method, url) == ("POST", "https://spanner.example/")
        if not self.valid:
            self.refreshed_on.append(threading.current_thread())
            if self.error:
                raise self.error
            self.valid = True
        headers["Authorization"] = "Bearer token"


@pytest.fixture
def authorization():
    return Authorization("https://spanner.example/")


def use(monkeypatch, credentials):
    found = []
    monkeypatch.setattr(
        google.auth, "default", lambda scopes: found.append(scopes) or (credentials, "project")
    )
    return found


def test_a_token_is_refreshed_once_and_not_on_the_loops_thread(authorization, monkeypatch):
    credentials = Credentials()
    found = use(monkeypatch, credentials)

    async def ask():
        return await asyncio.gather(*[authorization.headers() for _ in range(5)])

    assert asyncio.run(ask()) == [[("authorization", "Bearer token")]] * 5
    assert len(found) == len(credentials.refreshed_on) == 1
    assert credentials.refreshed_on[0] is not threading.current_thread()


def test_a_rejected_token_is_renewed_once_in_a_while(authorization, monkeypatch):
    now_s, credentials = [100.0], Credentials()
    monkeypatch.setattr(
        "tidegate.producer.spanner.transport.authorization.time.monotonic", lambda: now_s[0]
    )
    authorization.renew()  # nothing was used yet
    use(monkeypatch, credentials)
    asyncio.run(authorization.headers())
    for now_s[0], token in ((101.0, None), (102.0, "new"), (112.0, None)):
        credentials.token = "new"
        authorization.renew()
        assert credentials.token == token


def test_a_token_that_cannot_be_refreshed_may_be_later(authorization, monkeypatch):
    use(monkeypatch, Credentials(google.auth.exceptions.RefreshError("offline")))
    with pytest.raises(CallError, match="offline") as caught:
        asyncio.run(authorization.headers())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_without_credentials_it_says_what_to_set(authorization, monkeypatch):
    def none_found(**_):
        raise google.auth.exceptions.DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", none_found)
    with pytest.raises(ConfigError, match="credentials") as caught:
        asyncio.run(authorization.headers())
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint


NO_CREDENTIALS = [
    None, "no JSON", "{}", "", "[]", '"key"', "null", '[{"type": "service_account"}]',
    '{"type": ["service_account"]}', '{"type": "service_account"}',
    '{"type": "service_account", "client_email": 1, "token_uri": 2, "private_key": 3}',
    '{"type": "authorized_user", "client_id": []}',
]  # fmt: skip


@pytest.mark.parametrize("text", NO_CREDENTIALS)
def test_a_file_without_credentials_is_named(tmp_path, text):
    file = tmp_path / "key.json"
    if text is not None:
        file.write_text(text)
    authorization = Authorization("https://spanner.example/", credentials_file=str(file))
    with pytest.raises(ConfigError, match="credentials_file") as caught:
        asyncio.run(authorization.headers())
    assert str(file) in str(caught.value)


def test_credentials_of_a_file_take_the_place_of_the_hosts(tmp_path, monkeypatch):
    monkeypatch.setattr(google.auth, "default", None)
    read = []
    monkeypatch.setattr(
        google.auth, "load_credentials_from_file",
        lambda file, scopes: read.append((file, scopes)) or (Credentials(), "project"),
    )  # fmt: skip
    authorization = Authorization("https://spanner.example/", credentials_file="key.json")
    assert asyncio.run(authorization.headers()) == [("authorization", "Bearer token")]
    assert read == [("key.json", ("https://www.googleapis.com/auth/spanner.data",))]


def test_unary_calls_use_the_same_credentials(authorization, monkeypatch):
    found, tls = use(monkeypatch, SimpleNamespace(token="t")), grpc.ssl_channel_credentials()
    assert isinstance(authorization.channel_credentials(tls), grpc.ChannelCredentials)
    authorization.channel_credentials(tls)
    assert len(found) == 1
