"""Where Spanner is reached for streaming calls: address, TLS, and the environment's proxy."""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import unquote, urlsplit
from urllib.request import (  # type: ignore[attr-defined]  # the stubs lack the last
    getproxies,
    proxy_bypass,
    proxy_bypass_environment,
)

from tidegate.producer.spanner.tls import Tls

_NEXT_ADDRESS_S = 0.25
_ANSWER_BYTES_MAX = 64 << 10


class Endpoint:
    """A host and a port, `host:port`, reached with TLS or in plaintext.

    With TLS a proxy that `HTTPS_PROXY` names is asked for a tunnel, unless `NO_PROXY` has the host;
    see `proxy`.
    Raises ConfigError for files of TLS that cannot be used.
    """

    def __init__(self, address: str, *, is_secure: bool, tls: Tls | None = None) -> None:
        """Take the files of TLS; without them the host's authorities are trusted."""
        parts = urlsplit(f"//{address}")
        self.address = self.authority = address
        self.scheme = "https" if is_secure else "http"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if is_secure else 80)
        self._tls = (tls or Tls()).context() if is_secure else None

    async def connect(self, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Open a connection; raises OSError."""
        loop = asyncio.get_running_loop()
        proxy = self.proxy
        name = self._host if self._tls else None
        if proxy is None:
            await loop.create_connection(
                protocol,
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=name,
                # An address that answers nothing holds up none of the others.
                happy_eyeballs_delay=_NEXT_ADDRESS_S,
            )
            return
        tunnel = await self._tunnel(proxy)
        try:
            await loop.create_connection(protocol, sock=tunnel, ssl=self._tls, server_hostname=name)
        except BaseException:
            tunnel.close()
            raise

    def speaks_http2(self, transport: asyncio.Transport) -> bool:
        """Whether the server agreed on HTTP/2; in plaintext it is not negotiated."""
        tls = transport.get_extra_info("ssl_object")
        return self._tls is None or (tls is not None and tls.selected_alpn_protocol() == "h2")

    @property
    def proxy(self) -> str | None:
        """The URL of the proxy that the environment names for the host; None without one.

        The first of gRPC's variables: `grpc_proxy`, `https_proxy`, `http_proxy`, and `HTTPS_PROXY`,
        which gRPC itself does not read.
        """
        if self._tls is None or self._is_excepted:
            return None
        environment = os.environ.get
        named = environment("grpc_proxy") or getproxies().get("https") or environment("http_proxy")
        if not named:
            return None
        return named if "//" in named else f"http://{named}"

    @property
    def _is_excepted(self) -> bool:
        """Whether `no_grpc_proxy`, or `NO_PROXY` without it, has the host."""
        environment = os.environ.get
        names = environment("no_grpc_proxy")
        if names is None:
            return bool(proxy_bypass(self._host))
        return bool(proxy_bypass_environment(self._host, {"no": names}))

    async def _tunnel(self, proxy: str) -> socket.socket:
        """Return a socket that a proxy connected to the host; raises OSError."""
        parts = urlsplit(proxy)
        if parts.scheme != "http":
            raise ConnectionError(f"the proxy {parts.hostname} is reached by http:// only")
        loop = asyncio.get_running_loop()
        host = f"[{self._host}]" if ":" in self._host else self._host
        target = f"{host}:{self._port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            lines.append(f"Proxy-Authorization: Basic {b64encode(login).decode()}")
        tunnel = await _connected(parts.hostname or "", parts.port or 80)
        try:
            await loop.sock_sendall(tunnel, "\r\n".join([*lines, "", ""]).encode())
            status = await _status(tunnel)
        except BaseException:
            tunnel.close()
            raise
        if status.split()[1:2] != ["200"]:
            tunnel.close()
            raise ConnectionError(f"the proxy {parts.hostname} opened no tunnel: {status!r}")
        return tunnel


async def _connected(host: str, port: int) -> socket.socket:
    """Return a socket that is connected to the first address that answers; raises OSError."""
    loop = asyncio.get_running_loop()
    failed: OSError = ConnectionError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        opened = socket.socket(family, kind, protocol)
        opened.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        try:
            await loop.sock_connect(opened, address)
        except OSError as error:
            failed = error
            opened.close()
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise failed


async def _status(tunnel: socket.socket) -> str:
    """Read a proxy's answer to its end; return the first line."""
    loop, answer = asyncio.get_running_loop(), b""
    # A byte at a time: what follows belongs to TLS.
    while not answer.endswith(b"\r\n\r\n") and len(answer) < _ANSWER_BYTES_MAX:
        byte = await loop.sock_recv(tunnel, 1)
        if not byte:
            break
        answer += byte
    return answer.split(b"\r\n", 1)[0].decode(errors="replace")
