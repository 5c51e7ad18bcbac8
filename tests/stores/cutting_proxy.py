"""A proxy in front of a store: from some request on it refuses all, or it loses one answer.

So a program that is killed between two requests looks to the store: nothing more comes.  A client
does not repeat a request that is refused, as it does one whose answer is lost.
"""

from __future__ import annotations

import http.client
import importlib
import json
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PATIENCE_S = 60.0
_CONTROL = "/_proxy"
_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")


class CuttingProxy:
    """A proxy that runs, as a process of its own: delta-rs holds Python's lock while it waits."""

    def __init__(self, port, *dialect):
        """Pass everything to a port of this machine; `dialect` names a module of this folder."""
        command = [sys.executable, "-m", "tests.stores.cutting_proxy", str(port), *dialect]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.address = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def refuse(self, *, after, carries_out=False):
        """Pass so many requests more, and refuse all others; the first may be carried out."""
        self._set(left=after, first="carry out" if carries_out else "refuse", later="refuse")

    def lose_answer(self, *, after):
        """Pass so many requests more, and lose the answer to the next one alone."""
        self._set(left=after, first="lose", later="pass")

    def heal(self):
        """Pass everything again; return whether there was a request that was not answered."""
        return self._set(left=None, first="pass", later="pass")["has_cut"]

    def _set(self, **rule):
        request = urllib.request.Request(
            f"{self.address}{_CONTROL}", data=json.dumps(rule).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            return json.loads(answer.read())

    def close(self):
        self._process.terminate()
        self._process.wait(_PATIENCE_S)


class _Proxy:
    """The proxy itself."""

    def __init__(self, port, dialect=None):
        self._dialect = dialect
        self._lock = threading.Lock()
        self._rule = {"left": None, "first": "pass", "later": "pass"}
        self._has_cut = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(port))
        self._server.daemon_threads = True

    def serve(self):
        sys.stdout.write(f"{self._server.server_port}\n")
        sys.stdout.flush()
        self._server.serve_forever()

    def _changed(self, rule):
        with self._lock:
            before, self._rule, self._has_cut = self._has_cut, rule, False
            return {"has_cut": before}

    def _verdict(self):
        with self._lock:
            left = self._rule["left"]
            if left is None:
                return "pass"
            if left > 0:
                self._rule["left"] -= 1
                return "pass"
            verdict = self._rule["later" if self._has_cut else "first"]
            self._has_cut = True
            return verdict

    def _handler(proxy, port):  # noqa: N805 - the handler inside has a self of its own
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self):
                try:
                    super().handle_one_request()
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            def pass_on(self):
                body = self._body()
                if self.path == _CONTROL:
                    self._answer(json.dumps(proxy._changed(json.loads(body))).encode())
                    return
                verdict = proxy._verdict()
                if verdict == "refuse":
                    self._refuse()
                    return
                command, path = self.command, self.path
                if proxy._dialect:
                    command, path = proxy._dialect.to_server(command, path, self.headers)
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
                try:
                    server.putrequest(command, path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        if name.lower() not in (*_HOP_BY_HOP, "content-length", "expect"):
                            server.putheader(name, value)
                    server.putheader("Content-Length", str(len(body)))
                    server.endheaders(body)
                    answer = server.getresponse()
                    data = answer.read()
                finally:
                    server.close()
                if verdict == "carry out":
                    self._refuse()
                    return
                if verdict == "lose":
                    self.close_connection = True
                    return
                headers = answer.getheaders()
                if proxy._dialect:
                    headers, data = proxy._dialect.from_server(
                        self.command, self.path, answer.status, headers, data
                    )
                self.send_response_only(answer.status, answer.reason)
                for name, value in headers:
                    if name.lower() not in (*_HOP_BY_HOP, "content-length"):
                        self.send_header(name, value)
                if self.command == "HEAD":
                    self.send_header("Content-Length", answer.headers.get("Content-Length", "0"))
                elif answer.status not in (204, 304):
                    self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def _answer(self, data):
                self.send_response_only(200, "OK")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _refuse(self):
                self.send_response_only(403, "Forbidden")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _body(self):
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = pass_on  # noqa: N815 - the names are http.server's

            def log_message(self, *_):
                pass

        return Handler


if __name__ == "__main__":
    port, *dialects = sys.argv[1:]
    _Proxy(
        int(port), *(importlib.import_module(f"tests.stores.{dialect}") for dialect in dialects)
    ).serve()
