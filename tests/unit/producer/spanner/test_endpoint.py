"""Where connections go: TLS that is verified, HTTP/2 that was agreed on, proxies."""

import asyncio
import socket
import ssl

import certifi
import grpc
import pytest

from tests.grpc_server import run, sizes
from tidegate.producer.spanner.call import CallError, ReadAhead
from tidegate.producer.spanner.connection import Connection
from tidegate.producer.spanner.endpoint import Endpoint
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


def connect(certificate, *, protocols=("h2",), proxy=None, monkeypatch=None, host="127.0.0.1"):
    """Connect to a server with TLS; return what it greets with, and whether HTTP/2 was agreed."""
    if monkeypatch is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))

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
                await proxy.stop()

    return asyncio.run(run())


def test_a_certificate_that_the_host_trusts_is_taken(certificate, monkeypatch):
    assert connect(certificate, monkeypatch=monkeypatch) == (b"hello", True)


def test_the_certificates_that_grpc_is_given_are_trusted(certificate, monkeypatch):
    monkeypatch.setenv(ROOTS_VARIABLE, str(certificate))
    assert connect(certificate) == (b"hello", True)


def test_no_others_than_those_are_trusted(certificate, monkeypatch):
    monkeypatch.setenv(ROOTS_VARIABLE, certifi.where())
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(certificate, monkeypatch=monkeypatch)


def test_a_certificate_of_another_host_is_refused(certificate, monkeypatch):
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(certificate, monkeypatch=monkeypatch, host="localhost")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_a_setting(monkeypatch, tmp_path, content):
    path = tmp_path / "roots.pem"
    if content:
        path.write_text(content)
    monkeypatch.setenv(ROOTS_VARIABLE, str(path))
    with pytest.raises(ConfigError, match=ROOTS_VARIABLE):
        Endpoint("h", is_secure=True)


def test_an_unknown_certificate_is_an_error_of_the_system(certificate):
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(certificate)


def test_a_server_that_does_not_agree_on_http2(certificate, monkeypatch):
    assert connect(certificate, protocols=(), monkeypatch=monkeypatch) == (b"hello", False)


class Proxy:
    """Connects what asks for a tunnel, unless it `answers` something else."""

    def __init__(self, answers=b"HTTP/1.1 200 Connected\r\nVia: x\r\n\r\n"):
        self.answers = answers
        self.asked = b""

    async def start(self, port):
        self.port = port
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        own = self.server.sockets[0].getsockname()[1]
        self.url = f"http://user:a%20b@127.0.0.1:{own}"

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

    async def stop(self):
        self.server.close()


def test_a_tunnel_to_an_ipv6_address_has_brackets(monkeypatch):
    proxy = Proxy(answers=b"HTTP/1.1 403 Forbidden\r\n\r\n")

    async def run():
        await proxy.start(0)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(ConnectionError):
            await Endpoint("[2001:db8::1]:8443", is_secure=True).connect(Opened)
        await proxy.stop()

    asyncio.run(run())
    lines = proxy.asked.decode().splitlines()
    assert lines[:2] == ["CONNECT [2001:db8::1]:8443 HTTP/1.1", "Host: [2001:db8::1]:8443"]


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
        ({"HTTPS_PROXY": "http://p:1", "no_grpc_proxy": "", "no_proxy": "*"}, "http://p:1"),
    ],
)
def test_the_proxy_is_that_of_the_environment(monkeypatch, environment, found):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Endpoint("spanner.googleapis.com:443", is_secure=True).proxy == found
    assert Endpoint("spanner.googleapis.com:443", is_secure=False).proxy is None


def test_a_proxy_is_asked_for_a_tunnel(certificate, monkeypatch):
    proxy = Proxy()
    assert connect(certificate, proxy=proxy, monkeypatch=monkeypatch) == (b"hello", True)
    lines = proxy.asked.decode().splitlines()
    assert lines[0] == f"CONNECT 127.0.0.1:{proxy.port} HTTP/1.1"
    assert "Proxy-Authorization: Basic dXNlcjphIGI=" in lines  # user:a b


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b"", b"nonsense\r\n\r\n"])
def test_a_proxy_that_refuses_is_an_error_of_the_system(certificate, monkeypatch, answer):
    with pytest.raises(ConnectionError, match=r"the proxy 127\.0\.0\.1"):
        connect(certificate, proxy=Proxy(answer), monkeypatch=monkeypatch)


def test_a_proxy_that_is_reached_with_tls_is_an_error(certificate, monkeypatch):
    class WithTls(Proxy):
        async def start(self, port):
            await super().start(port)
            self.url = self.url.replace("http:", "https:")

    with pytest.raises(ConnectionError, match="by http:// only"):
        connect(certificate, proxy=WithTls(), monkeypatch=monkeypatch)


def test_a_proxy_that_answers_on_its_second_address_only(certificate, monkeypatch):
    async def both(loop, _host, port, **_):
        found = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        return [(*found, ("127.0.0.1", 1)), (*found, ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", both)
    proxy = Proxy()
    assert connect(certificate, proxy=proxy, monkeypatch=monkeypatch) == (b"hello", True)
    assert proxy.asked


def test_a_proxy_that_nobody_runs_is_an_error(certificate, monkeypatch):
    class Ended(Proxy):
        async def start(self, port):
            await super().start(port)
            self.server.close()
            await self.server.wait_closed()

    with pytest.raises(ConnectionError):
        connect(certificate, proxy=Ended(), monkeypatch=monkeypatch)


@pytest.mark.parametrize("proxy", ["http://host:port", "http://[::1"])
def test_a_proxy_that_cannot_be_read_is_no_connection(certificate, monkeypatch, proxy):
    monkeypatch.setenv("HTTPS_PROXY", proxy)

    async def use():
        client = Connection(Endpoint("spanner.invalid:443", is_secure=True), ReadAhead())
        with pytest.raises(CallError, match=r"no connection to spanner\.invalid:443") as caught:
            await client.call("/service/method", b"", [])
        return caught.value.code()

    assert asyncio.run(use()) is grpc.StatusCode.UNAVAILABLE


def test_no_proxy_names_hosts_that_are_reached_directly(certificate, monkeypatch):
    proxy = Proxy()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert connect(certificate, proxy=proxy, monkeypatch=monkeypatch) == (b"hello", True)
    assert not proxy.asked


@pytest.mark.parametrize(
    ("address", "is_secure", "host", "port"),
    [("h:9", True, "h", 9), ("h", True, "h", 443), ("[::1]:8", False, "::1", 8)],
)
def test_addresses(address, is_secure, host, port):
    endpoint = Endpoint(address, is_secure=is_secure)
    assert (endpoint._host, endpoint._port) == (host, port)


def test_a_server_whose_certificate_nobody_vouches_for_is_not_reached(certificate, monkeypatch):
    monkeypatch.delenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", raising=False)

    async def use(server):
        with pytest.raises(CallError, match="CERTIFICATE_VERIFY_FAILED") as caught:
            await server.call().next_size()
        assert not server.metadata
        return caught.value.code()

    assert run(use, sizes, certificate=certificate) is grpc.StatusCode.UNAVAILABLE
