"""The Spanner of the benchmark: answers change stream queries with prepared bytes.

In the worker's process (`LocalChannels`), or as a gRPC server in a process of its own
(`python -m benchmarks.producer.feed`), whose CPU time then does not count.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
from google.cloud.spanner_v1.types import ExecuteSqlRequest, Session

from benchmarks.producer.responses import Case, children_response, responses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Feed", "FeedProcess", "LocalChannels"]

_SESSION = "projects/p/instances/i/databases/d/sessions/s"
_SERVICE = "google.spanner.v1.Spanner"
_POLL_S = 0.05


class Feed:
    """Some stream partitions with the same responses, which are held back until `go` is set."""

    def __init__(self, case: Case, changes: int, tokens: tuple[str, ...]) -> None:
        self.go = threading.Event()
        self.initial = children_response(tokens)
        self.messages = responses(case, changes // len(tokens))

    def answer(self, request: Any, is_active: Callable[[], bool]) -> Iterator[bytes]:
        """Yield a query's responses; ends with the initial query, or with the caller."""
        if request.params["partition_token"] is None:
            yield from self.initial
            return
        while not self.go.wait(_POLL_S):
            if not is_active():
                return
        yield from self.messages
        while is_active():
            threading.Event().wait(_POLL_S)


class LocalChannels:
    """Stands for `SpannerChannels`, whose responses are serialised messages."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def stream_session(self) -> str:
        """Return the name of a session."""
        return _SESSION

    def accept(self) -> None:
        """Do nothing: no call is rejected here."""

    def stream(self, method: str, request: Any, session: str) -> _LocalResponses:  # noqa: ARG002 - its signature
        """Begin a query."""
        return _LocalResponses(self._feed, request)


class _LocalResponses:
    def __init__(self, feed: Feed, request: Any) -> None:
        self._feed = feed
        self._is_active = True
        self._is_initial = request.params["partition_token"] is None
        self._messages = iter(feed.initial if self._is_initial else feed.messages)
        self._next = b""

    async def next_size(self) -> int | None:
        message = await self._following()
        if message is None:
            return None
        self._next = message
        return len(message)

    async def read(self, *, pause_s: float) -> bytes:  # noqa: ARG002 - its signature
        return self._next

    async def _following(self) -> bytes | None:
        await asyncio.sleep(0)  # as a connection does: other queries have their turn
        while self._is_active:
            if self._is_initial or self._feed.go.is_set():
                message = next(self._messages, None)
                if message is not None or self._is_initial:
                    return message
            await asyncio.sleep(_POLL_S)
        return None

    def cancel(self) -> None:
        self._is_active = False

    close = cancel


# ---------------------------------------------------------------- in a process of its own


class FeedProcess:
    """A gRPC server in a child process; `address` is its host and port."""

    def __init__(self, case: Case, changes: int, tokens: tuple[str, ...]) -> None:
        program = f"from {__name__} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._ask(json.dumps([case.rows, case.mods, changes, tokens]))

    def release(self) -> None:
        """Let the queries return their changes."""
        self._ask("go")

    def hold(self) -> None:
        """Hold back what the next queries return."""
        self._ask("hold")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


def serve() -> None:
    """Serve until standard input ends."""
    rows, mods, changes, tokens = json.loads(sys.stdin.readline())
    feed = Feed(Case(rows, mods), changes, tuple(tokens))

    def stream(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        return feed.answer(request, context.is_active)

    handlers = {
        "CreateSession": grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: Session.pb()(name=_SESSION, multiplexed=True),
            response_serializer=Session.pb().SerializeToString,
        ),
        "ExecuteStreamingSql": grpc.unary_stream_rpc_method_handler(
            stream, request_deserializer=ExecuteSqlRequest.pb().FromString
        ),
    }
    server = grpc.server(ThreadPoolExecutor(max_workers=50))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    print(address, flush=True)
    for line in sys.stdin:
        if line.strip() == "go":
            feed.go.set()
        else:
            feed.go.clear()
        print("ok", flush=True)
