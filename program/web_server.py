"""An HTTP server for a few pages: a thread for each request, and no line in the program's log."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Self, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from tidegate.schemas.errors import ConfigError

Application: TypeAlias = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


class _Server(ThreadingMixIn, WSGIServer):
    """A thread per request: a client that sends nothing must not hold up another."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], *, family: socket.AddressFamily) -> None:
        self.address_family = family
        super().__init__(address, _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing about clients that reset their connection."""


class _Handler(WSGIRequestHandler):
    """Requests that are not written to the program's log."""

    timeout = 10.0

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Write nothing."""


class WebServer:
    """Serves an application from its thread until it is closed."""

    def __init__(
        self, application: Application, host: str, port: int, *, settings: str, hint: str
    ) -> None:
        """Start to serve; port 0 selects a free one.

        `settings` is the text before `host` and `port` in the names of their settings, `hint` the
        fix for a port that is taken.  Raises ConfigError for such a port, and for a host that is
        not an address of this machine.
        """
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._server = _Server((host, port), family=family)
        except (OSError, UnicodeError) as error:  # UnicodeError: not a name, such as `a..b`
            reason = "not a host's name"
            if isinstance(error, OSError):
                if error.errno == errno.EADDRINUSE:
                    raise ConfigError(f"{settings}port: port {port} is taken", hint=hint) from error
                reason = error.strerror or str(error)
            raise ConfigError(
                f"{settings}host: cannot listen on {host!r}, port {port}: {reason}",
                hint="Name an address of this machine",
            ) from error
        self._server.set_app(application)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="web-server", daemon=True
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
