"""The control port: JSON over HTTP for tests and demos, beside the API that clients see.

Verbs run on the server's event loop, one after the other with everything else, so a split is as
atomic as a commit. Answers are JSON objects; a refusal has its code and message, status 400 or 404.
"""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import orjson

from tidegate.spanner_simulator.core.key_encoding import decode_key
from tidegate.spanner_simulator.core.values import encode
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tidegate.spanner_simulator.core.change_streams.churn import ChurnKind
    from tidegate.spanner_simulator.core.change_streams.stream_partitions import StreamPartition
    from tidegate.spanner_simulator.core.database import Database
    from tidegate.spanner_simulator.core.values import Plain
    from tidegate.spanner_simulator.server.host import Host, HostedDatabase

__all__ = ["Control", "start_control_server"]

_T = TypeVar("_T")
_TIMEOUT_S = 60
# How long a shutdown may wait for the accepting thread to look up.
_POLL_S = 0.05
_WEIGHTS: dict[ChurnKind, float] = {"split": 1.0, "merge": 1.0, "move": 0.5}


class Control:
    """The verbs, for any thread but the event loop's own. All raise `SpannerError`."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._loop = loop

    def _on_loop(self, act: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_TIMEOUT_S)

    def health(self) -> dict[str, Any]:
        """Whether the event loop answers, and what it serves."""
        return self._on_loop(lambda: {"status": "ok", "databases": list(self._host.databases)})

    def stream_partitions(self, *, database: str, stream: str) -> list[dict[str, Any]]:
        """The live stream partitions in key order."""

        def act() -> list[dict[str, Any]]:
            hosted = self._host.database(database)
            state = hosted.database.streams.state(stream)
            return [_describe(hosted, one) for one in state.partitions.live]

        return self._on_loop(act)

    def split(
        self,
        *,
        database: str,
        stream: str,
        token: str | None = None,
        table: str | None = None,
        key: list[Plain] | None = None,
    ) -> dict[str, Any]:
        """Split by token, at a table's key, or the busiest one."""
        return self._change(
            database,
            lambda one, now_us: one.streams.split(
                stream, now_us=now_us, token=token, table=table, key=key
            ),
        )

    def merge(
        self, *, database: str, stream: str, tokens: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Merge neighbours by token, or the least busy pair."""
        return self._change(
            database,
            lambda one, now_us: one.streams.merge(stream, now_us=now_us, tokens=tokens or ()),
        )

    def move(self, *, database: str, stream: str, token: str | None = None) -> dict[str, Any]:
        """Move by token, or the busiest one."""
        return self._change(
            database,
            lambda one, now_us: one.streams.move(stream, now_us=now_us, token=token),
        )

    def _change(
        self, database: str, act: Callable[[Database, int], list[StreamPartition]]
    ) -> dict[str, Any]:
        def run() -> dict[str, Any]:
            hosted = self._host.database(database)
            children = act(hosted.database, self._host.now_us())
            return {
                "start_timestamp_us": children[0].start_us,
                "parents": list(children[0].parents),
                "children": [_describe(hosted, child) for child in children],
            }

        return self._on_loop(run)

    def churn(
        self,
        *,
        database: str,
        stream: str,
        enabled: bool = True,
        mean_life_ms: int = 5000,
        weights: dict[ChurnKind, float] | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Start the churn policy of a change stream anew, or end it."""
        chosen = _WEIGHTS if weights is None else weights
        if mean_life_ms < 1 or set(chosen) - set(_WEIGHTS) or sum(chosen.values()) <= 0:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "churn needs mean_life_ms >= 1 and weights among split, merge, move, not all 0",
            )

        def act() -> dict[str, Any]:
            hosted = self._host.database(database)
            if enabled:
                self._host.start_churn(
                    hosted, stream, mean_life_ms=mean_life_ms, weights=chosen, seed=seed
                )
            else:
                self._host.stop_churn(hosted, hosted.database.streams.state(stream).name)
            return {"enabled": enabled}

        return self._on_loop(act)

    def interrupt(
        self,
        *,
        database: str,
        stream: str,
        token: str | None = None,
        code: str = "UNAVAILABLE",
    ) -> dict[str, Any]:
        """End running queries of a change stream (or of one stream partition) with a status."""
        if code not in Code.__members__:
            raise SpannerError(Code.INVALID_ARGUMENT, f"Unknown status code: {code}")

        def act() -> dict[str, Any]:
            hosted = self._host.database(database)
            state = hosted.database.streams.state(stream)
            tokens = [token] if token else list(state.partitions.by_token)
            fault = SpannerError(Code[code], "Injected by the control port")
            return {"interrupted": hosted.interrupt(tokens, fault)}

        return self._on_loop(act)

    def commit_log(self, *, database: str, stream: str, first: int = 0) -> Iterator[dict[str, Any]]:
        """Transactions from number `first` on, as far as they are committed now."""
        log = self._on_loop(
            lambda: self._host.database(database).database.streams.state(stream).log.transactions
        )
        # The list only grows and its entries never change, so any thread may read it.
        for index in range(max(0, first), len(log)):
            yield log[index].as_json()


def _describe(hosted: HostedDatabase, one: StreamPartition) -> dict[str, Any]:
    return {
        "token": one.token,
        "start_timestamp_us": one.start_us,
        "parents": list(one.parents),
        "low": _bound(hosted.database, one.low),
        "high": None if one.high is None else _bound(hosted.database, one.high),
        "tables": _tables(hosted.database, one),
        "records": len(one.records),
        "recently_written_keys": len(set(one.recent_keys)),
        "readers": len(hosted.readers.get(one.token, ())),
    }


def _bound(database: Database, key: bytes) -> dict[str, Any]:
    """A border as table and key where it is one, always as hexadecimal digits."""
    for table in database.catalogue.tables.values():
        if key == table.prefix:
            return {"table": table.name, "key": [], "hex": key.hex()}
        values = decode_key(key, table.prefix, table.key_parts)
        if values is not None:
            plain = [
                encode(kind, value)
                for (kind, _), value in zip(table.key_parts, values, strict=True)
            ]
            return {"table": table.name, "key": plain, "hex": key.hex()}
    return {"table": None, "key": None, "hex": key.hex()}


def _tables(database: Database, one: StreamPartition) -> list[str]:
    return [
        table.name
        for table in database.catalogue.tables.values()
        if (one.high is None or table.prefix < one.high) and one.low < table.prefix[:-1] + b"\x01"
    ]


class _ControlServer(ThreadingHTTPServer):
    daemon_threads = True
    # Two simulators on one control port would be a trap.
    allow_reuse_port = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], control: Control) -> None:
        self.control = control
        super().__init__(address, _Handler)


def start_control_server(control: Control, host: str, port: int) -> ThreadingHTTPServer:
    """A control server that answers on a thread of its own; OSError when the port is taken."""
    server = _ControlServer((host, port), control)
    threading.Thread(
        target=server.serve_forever, args=(_POLL_S,), name="simulator-control", daemon=True
    ).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    server: _ControlServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """No access log: standard error is for what went wrong."""

    def do_GET(self) -> None:  # the base's name
        """GET verbs; arguments in the query string."""
        split = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        control = self.server.control
        match split.path:
            case "/health":
                self._answer(control.health)
            case "/stream-partitions":
                self._answer(
                    lambda: {"stream_partitions": control.stream_partitions(**_only(query))}
                )
            case "/commit-log":
                self._commit_log(query)
            case _:
                self._send(HTTPStatus.NOT_FOUND, {"message": f"no such path: {split.path}"})

    def do_POST(self) -> None:  # the base's name
        """POST verbs; arguments in a JSON object."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            arguments = orjson.loads(body or b"{}")
        except ValueError:
            arguments = None
        if not isinstance(arguments, dict):
            self._send(HTTPStatus.BAD_REQUEST, {"message": "the body must be a JSON object"})
            return
        control = self.server.control
        verbs: dict[str, Callable[..., dict[str, Any]]] = {
            "/split": control.split,
            "/merge": control.merge,
            "/move": control.move,
            "/churn": control.churn,
            "/interrupt": control.interrupt,
        }
        verb = verbs.get(self.path)
        if verb is None:
            self._send(HTTPStatus.NOT_FOUND, {"message": f"no such path: {self.path}"})
            return
        self._answer(lambda: verb(**arguments))

    def _answer(self, act: Callable[[], dict[str, Any]]) -> None:
        try:
            self._send(HTTPStatus.OK, act())
        except SpannerError as error:
            self._refuse(error)
        except TypeError as error:
            self._send(HTTPStatus.BAD_REQUEST, {"message": f"wrong arguments: {error}"})

    def _refuse(self, error: SpannerError) -> None:
        missing = error.code is Code.NOT_FOUND
        self._send(
            HTTPStatus.NOT_FOUND if missing else HTTPStatus.BAD_REQUEST,
            {"code": error.code.name, "message": error.message},
        )

    def _commit_log(self, query: dict[str, str]) -> None:
        try:
            first = int(query.get("from", "0"))
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, {"message": "from must be a whole number"})
            return
        try:
            lines = [
                orjson.dumps(one) + b"\n"
                for one in self.server.control.commit_log(**_only(query), first=first)
            ]
        except SpannerError as error:
            self._refuse(error)
            return
        self._send_bytes(HTTPStatus.OK, b"".join(lines), "application/x-ndjson")

    def _send(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        self._send_bytes(status, orjson.dumps(document), "application/json")

    def _send_bytes(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _only(query: dict[str, str]) -> dict[str, str]:
    for name in ("database", "stream"):
        if name not in query:
            raise SpannerError(Code.INVALID_ARGUMENT, f"The argument {name} is missing.")
    return {name: query[name] for name in ("database", "stream")}
