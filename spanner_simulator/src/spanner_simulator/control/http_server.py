"""The control port: the verbs as JSON over HTTP.

GET takes arguments in the query string, POST as a JSON object.  Answers are JSON objects, or lines
of JSON if a verb returns many.  An error has code and message; status 404 for missing objects, 403
for a web page of another origin, 400 for everything else.  A client may reset its connection at any
time; an incomplete request is not carried out.
"""

from __future__ import annotations

import ipaddress
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from spanner_simulator.control.verb import Verb, verbs_of
from spanner_simulator.control.verbs import Verbs
from spanner_simulator.errors import Code, SpannerError, invalid_argument, not_found

# How often the accepting thread checks for a shutdown, in seconds.
_POLL_S = 0.05
_BODY_BYTES_MAX = 16 * 1024 * 1024
_SIZE_DIGITS_MAX = 20
_VERBS = verbs_of(Verbs)
_STATUSES = {Code.NOT_FOUND: HTTPStatus.NOT_FOUND, Code.PERMISSION_DENIED: HTTPStatus.FORBIDDEN}


class _ControlServer(ThreadingHTTPServer):
    daemon_threads = True
    # With it, two simulators could listen on one control port.
    allow_reuse_port = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], verbs: Verbs) -> None:
        self.verbs = verbs
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of a handler on standard error, but not a client's lost connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def start_control_server(verbs: Verbs, host: str, port: int) -> ThreadingHTTPServer:
    """A control server that answers in its own thread; OSError if the port is in use."""
    server = _ControlServer((host, port), verbs)
    threading.Thread(
        target=server.serve_forever, args=(_POLL_S,), name="simulator-control", daemon=True
    ).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    server: _ControlServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base names it so
        """Write no access log: standard error is for errors."""

    def do_GET(self) -> None:  # the base's name
        """The list of verbs, or a question."""
        if self._is_foreign():
            return
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._refuse_and_close("The arguments of a GET stand in its query string.")
            return
        split = urlsplit(self.path)
        if split.path == "/":
            self._send(HTTPStatus.OK, {"verbs": [_describe(verb) for verb in _VERBS.values()]})
            return
        pairs = parse_qsl(split.query, keep_blank_values=True)
        arguments = dict(pairs)
        if len(arguments) < len(pairs):
            self._refuse(invalid_argument("Each argument may be given once."))
            return
        self._call(split.path, arguments, is_text=True)

    def do_POST(self) -> None:  # the base's name
        """An action."""
        if self._is_foreign():
            return
        size = self.headers.get("Content-Length") or "0"
        is_sized = "Transfer-Encoding" not in self.headers and len(size) <= _SIZE_DIGITS_MAX
        if not (is_sized and size.isdecimal()) or int(size) > _BODY_BYTES_MAX:
            self._refuse_and_close(f"Content-Length must be a number up to {_BODY_BYTES_MAX}.")
            return
        body = self.rfile.read(int(size))
        if len(body) < int(size):
            # What has arrived may be valid JSON by chance.
            self._refuse_and_close(f"The body ended after {len(body)} of {size} bytes.")
            return
        try:
            arguments = orjson.loads(body or b"{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            self._refuse(invalid_argument("The body must be a JSON object."))
            return
        split = urlsplit(self.path)
        if split.query:
            self._refuse(invalid_argument("The arguments of a POST stand in its body."))
            return
        self._call(split.path, arguments, is_text=False)

    def _is_foreign(self) -> bool:
        """Reject requests of pages with another origin: a browser names the page's origin.

        Its own origin is one with an address or localhost, because any other name of a page may
        resolve to this machine.
        """
        origin = self.headers.get("Origin")
        if origin is None:
            return False
        host = self.headers.get("Host", "")
        if origin == f"http://{host}" and _is_of_this_machine(origin):
            return False
        self.close_connection = True
        message = f"The control port takes no requests of pages of {origin!r}."
        self._refuse(SpannerError(Code.PERMISSION_DENIED, message))
        return True

    def _call(self, path: str, arguments: Mapping[str, Any], *, is_text: bool) -> None:
        verb = _VERBS.get(path.removeprefix("/"))
        if verb is None:
            self._refuse(not_found(f"No such path: {path}. GET / lists the verbs."))
            return
        if verb.method != self.command:
            self._refuse(invalid_argument(f"{path} is for {verb.method}, not {self.command}."))
            return
        try:
            keywords = verb.read(arguments, is_text=is_text)
            answer = getattr(self.server.verbs, verb.keyword)(**keywords)
            if verb.is_lines:
                self._send_lines(iter(answer))
            elif isinstance(answer, list):
                self._send(HTTPStatus.OK, {verb.keyword: answer})
            else:
                self._send(HTTPStatus.OK, answer)
        except SpannerError as error:
            self._refuse(error)
        except (CancelledError, RuntimeError):
            if self.server.verbs.is_running:
                raise
            # The simulator is ending.
            self.close_connection = True

    def _refuse(self, error: SpannerError) -> None:
        self._send(
            _STATUSES.get(error.code, HTTPStatus.BAD_REQUEST),
            {"code": error.code.name, "message": error.message},
        )

    def _refuse_and_close(self, message: str) -> None:
        self.close_connection = True
        self._refuse(invalid_argument(message))

    def _send(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        body = orjson.dumps(document)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_lines(self, lines: Iterator[dict[str, Any]]) -> None:
        """Send one JSON line for each element, as they come; stop when the client has gone."""
        # An error comes with the first element, before the status is sent.
        first = next(lines, None)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            if first is not None:
                self._send_chunk(first)
            for line in lines:
                self._send_chunk(line)
            self.wfile.write(b"0\r\n\r\n")
        except (SpannerError, ConnectionError):
            # A chunked body without its last chunk is incomplete by the rules of HTTP.
            self.close_connection = True

    def _send_chunk(self, document: dict[str, Any]) -> None:
        body = orjson.dumps(document) + b"\n"
        self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))


def _is_of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _describe(verb: Verb) -> dict[str, Any]:
    return {
        "method": verb.method,
        "path": f"/{verb.name}",
        "summary": verb.summary,
        "arguments": [
            {"name": argument.name, "type": argument.type_name, "required": argument.is_required}
            | ({} if argument.is_required else {"default": argument.default})
            for argument in verb.arguments
        ],
    }
