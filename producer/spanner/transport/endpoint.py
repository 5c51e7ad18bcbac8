"""The address of Spanner: host and port, TLS, and the environment's proxy.

Queries and unary calls, over `h2` and gRPC, use the same certificates and the same proxy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit
from urllib.request import (  # type: ignore[attr-defined]  # the stubs lack the last
    getproxies,
    proxy_bypass,
    proxy_bypass_environment,
)

import certifi
import grpc

from tidegate.schemas.errors import ConfigError

_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Another channel uses another connection.
    ("grpc.use_local_subchannel_pool", 1),
    # As in the client libraries: servers end connections that ping much more often.
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""gRPC's own variable."""
_HASHED_NAME = re.compile(r"[0-9a-f]{8}\.[0-9]+")
"""A certificate's name in a folder that OpenSSL reads."""
_NO_PASSWORD = b""
"""In place of a question at the terminal."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of files in PEM; empty: the authorities of the host, and no client certificate."""

    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""
    certificate: bytes = b""
    """The client certificate from the environment, found by Google's client, if `client_cert` is
    unset."""
    key: bytes = b""
    """Private key of `certificate`."""

    @property
    def is_of_deployment(self) -> bool:
        """Whether these files belong to an own deployment, which has no accounts of Google's."""
        return bool(self.ca_file or self.client_cert)

    def context(self) -> ssl.SSLContext:
        """Return TLS for a connection over `h2`.

        Trusts `ca_file`, or the file in gRPC's variable, or otherwise the host's certificates and
        certifi's.  Raises ConfigError for a file that cannot be read or is of another kind.
        """
        roots = self._roots_file
        try:
            context = ssl.create_default_context(cafile=roots or None)
        except OSError as error:
            name = "spanner_ca_file" if self.ca_file else _ROOTS_VARIABLE
            raise _unreadable(
                f"{name}: the certificates cannot be read",
                "Name a file of certificates in PEM, or leave it out",
                roots,
                error,
            ) from error
        if not roots:
            context.load_verify_locations(certifi.where())
        if self.ca_file:
            # From Python 3.13 on the default requires extensions that gRPC does not require.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.client_cert:
            self._show_certificate(context, self.client_cert, self.client_key)
        elif self.certificate:
            with TemporaryDirectory() as folder:  # only its owner may read it
                pem_file = Path(folder, "both.pem")
                pem_file.write_bytes(self.key + b"\n" + self.certificate)
                self._show_certificate(context, str(pem_file), str(pem_file))
        context.set_alpn_protocols(["h2"])
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """Return TLS for gRPC's connections, which trusts the same certificates as `context`.

        Raises ConfigError as `context` does.
        """
        context = self.context()  # gRPC itself names no file, and retries without end
        roots = self._roots_file
        return grpc.ssl_channel_credentials(
            root_certificates=Path(roots).read_bytes() if roots else _host_certificates(context),
            private_key=_content(self.client_key) or self.key or None,
            certificate_chain=_content(self.client_cert) or self.certificate or None,
        )

    @property
    def _roots_file(self) -> str:
        return self.ca_file or os.environ.get(_ROOTS_VARIABLE, "")

    @staticmethod
    def _show_certificate(context: ssl.SSLContext, cert: str, key: str) -> None:
        try:
            context.load_cert_chain(cert, key, password=_NO_PASSWORD)
        except (OSError, ValueError) as error:
            raise _unreadable(
                "spanner_client_cert: the certificate cannot be used with its key",
                "Name a certificate and, in spanner_client_key, its private key, both in PEM and "
                "readable; the key without a password",
                f"{cert}, {key}",
                error,
            ) from error


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


def _host_certificates(context: ssl.SSLContext) -> bytes:
    """Return the certificates that a default context trusts, in PEM."""
    loaded = [ssl.DER_cert_to_PEM_cert(der) for der in context.get_ca_certs(binary_form=True)]
    paths = ssl.get_default_verify_paths()
    # The file may have certificates that are not of authorities.
    files = [Path(paths.cafile)] if paths.cafile else []
    if paths.capath:  # OpenSSL reads it only when it looks for an authority
        folder = Path(paths.capath)
        files += [file for file in folder.iterdir() if _HASHED_NAME.fullmatch(file.name)]
    return "".join(loaded).encode() + b"\n".join(file.read_bytes() for file in files)


def _unreadable(message: str, hint: str, path: str, error: Exception) -> ConfigError:
    return ConfigError(message, hint=hint, path=path, cause=str(error) or type(error).__name__)


_NEXT_ADDRESS_S = 0.25
_ANSWER_BYTES_MAX = 64 << 10


class Endpoint:
    """A host and a port, `host:port`, reached with TLS or in plaintext.

    With TLS the proxy in `HTTPS_PROXY` is asked for a tunnel, unless `NO_PROXY` contains the host;
    see `proxy`.  Raises ConfigError for files of TLS that cannot be used.
    """

    def __init__(self, address: str, *, is_secure: bool, tls: Tls | None = None) -> None:
        """Start with the files of TLS; without them the host's authorities are trusted."""
        parts = urlsplit(f"//{address}")
        self.address = self.authority = address
        self.scheme = "https" if is_secure else "http"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if is_secure else 80)
        self._files = tls or Tls()
        self._tls = self._files.context() if is_secure else None

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Return TLS for gRPC's connections; None in plaintext."""
        return self._files.credentials() if self._tls is not None else None

    def channel_options(self) -> list[tuple[str, int | str]]:
        """Return the options of gRPC's connections, with the proxy that all connections use.

        gRPC itself reads only lower-case variables, in plaintext too.
        """
        proxy = self.proxy
        use_proxy = ("grpc.http_proxy", proxy) if proxy else ("grpc.enable_http_proxy", 0)
        return [*_CHANNEL_OPTIONS, use_proxy]

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
                # An address that does not answer must not delay the others.
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
        """The URL of the host's proxy in the environment; None if there is none.

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
        """Whether `no_grpc_proxy`, or `NO_PROXY` without it, has the host, alone or with the port.

        As gRPC reads them, an entry may also be a network, such as 10.0.0.0/8.
        """
        environment = os.environ.get
        names = environment("no_grpc_proxy")
        places = (self._host, self._target)
        if names is None:
            names = environment("no_proxy") or environment("NO_PROXY") or ""
            is_named = any(proxy_bypass(place) for place in places)
        else:
            excepted = {"no": names}
            is_named = any(proxy_bypass_environment(place, excepted) for place in places)
        return is_named or _is_in_network(self._host, names.split(","))

    @property
    def _target(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    async def _tunnel(self, proxy: str) -> socket.socket:
        """Return a socket that a proxy connected to the host; raises OSError."""
        parts = urlsplit(proxy)
        if parts.scheme != "http":
            raise ConnectionError(f"the proxy {parts.hostname} is reached by http:// only")
        loop = asyncio.get_running_loop()
        target = self._target
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


def _is_in_network(host: str, names: list[str]) -> bool:
    """Whether a host's address is in one of the networks among these names."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for name in names:
        try:
            network = ipaddress.ip_network(name.strip(), strict=False)
        except ValueError:
            continue
        if address in network:
            return True
    return False


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
