"""A small HTTP server: `/metrics` for Prometheus, `/healthz` and `/readyz` for a supervisor.

A program may serve pages of JSON beside them.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from tidegate.program.health import Health
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.program.settings_stream import StreamSettings


_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_JSON = ("Content-Type", "application/json")


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per request: a client that sends nothing must not hold up a probe."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], *, family: socket.AddressFamily) -> None:
        self.address_family = family
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing about clients that reset their connection."""


class _Handler(WSGIRequestHandler):
    """Requests that are no lines in the program's log."""

    timeout = 10.0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Write nothing."""


class StatusServer:
    """Serves from a thread of its own until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        registry: CollectorRegistry,
        health: Health,
        pages: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        """Start to serve; port 0 takes a free one.  Raises ConfigError for a port that is taken.

        `pages` return JSON, by their paths; any thread may call them.
        """
        self._pages = dict(pages or {})
        self._metrics = make_wsgi_app(registry)
        self._health = health
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _Server((host, port), family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    f"metrics_port: port {port} is taken", hint="Choose another, or 0 for no server"
                ) from error
            raise ConfigError(
                f"metrics_host: cannot listen on {host!r}, port {port}: {error.strerror}",
                hint="Name an address of this machine",
            ) from error
        self._server.set_app(self._answer)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="status-server", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.server_port

    def close(self) -> None:
        """Stop serving; returns when the port is free."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics":
                page: Iterable[bytes] = self._metrics(environ, start_response)
                return page
            case "/healthz":
                status, text = _status(self._health.fault)
            case "/readyz":
                status, text = _status(self._health.not_ready, warning=self._health.warning)
            case path if path in self._pages:
                start_response("200 OK", [_JSON])
                return [_line(self._pages[path]())]
            case _:
                known = ", ".join(["/metrics", *self._pages, "/healthz"])
                status, text = "404 Not Found", f"try {known} or /readyz"
        start_response(status, [_TEXT])
        return [_line(text)]


def serve_status(
    settings: StreamSettings,
    *,
    registry: CollectorRegistry,
    health: Health,
    pages: Mapping[str, Callable[[], str]] | None = None,
) -> AbstractContextManager[object]:
    """Serve while the context lasts, if the settings name a port.  Raises ConfigError."""
    if not settings.metrics_port:
        return nullcontext()
    return StatusServer(
        settings.metrics_host, settings.metrics_port, registry=registry, health=health, pages=pages
    )


def _line(text: str) -> bytes:
    """Return a line in UTF-8; what has none, such as a byte of a name, is escaped as in JSON."""
    return f"{text}\n".encode(errors="backslashreplace")


def _status(fault: str, *, warning: str = "") -> tuple[str, str]:
    if fault:
        return "503 Service Unavailable", fault
    return "200 OK", f"ok, but {warning}" if warning else "ok"
