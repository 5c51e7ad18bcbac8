"""The Spanner that a real worker program reads: a gRPC server in a process of its own.

Answers the catalogue's queries for the benchmark's table, reads of it with as many rows as it was
started with, and change stream queries with what it is sent on standard input, a JSON list a line:

    ["release", share]          that share of the prepared changes, for all stream partitions; a
                                query that begins later has those from its start on
    ["pace", rate, seconds, n, fault]   changes in real time, a row in each message; every nth is of
                                one of 100 keys whose changes cannot be published; 0: none
    ["split"]                   the newest stream partition ends; its child has one change

A stream partition without news sends a heartbeat as often as its query asks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import grpc
from google.cloud.spanner_v1.types import ExecuteSqlRequest, ReadRequest, ResultSet, Session

from benchmarks.measuring import Child
from benchmarks.producer.responses import (
    STREAM,
    TABLE,
    Case,
    Fault,
    change_response,
    children_response,
    heartbeat_response,
    records_before,
    responses,
    table_name,
    value,
    written_ns,
)
from benchmarks.producer.table_rows import table_responses
from tidegate.schemas.instants import parse_rfc3339_ns

_SESSION = "projects/p/instances/i/databases/d/sessions/s"
_SERVICE = "google.spanner.v1.Spanner"
_SERVER_OPTIONS = [
    # A worker sends all its queries at once, and one process accepts them one after the other.
    # gRPC's server cancels calls at random once more than 1,000 wait for that, and those that have
    # waited for 30 s.
    ("grpc.server.max_pending_requests", 1_000_000),
    ("grpc.server.max_pending_requests_hard_limit", 1_000_000),
    ("grpc.server_max_unrequested_time_in_server", 3_600),
]
_POISON_KEYS = 100


def _catalogue(tables: int) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of a database with so many tables: how a query begins -> its rows."""
    names = [{"table_schema": "", "table_name": table_name(number)} for number in range(tables)]
    capture = {"option_name": "value_capture_type", "option_value": "OLD_AND_NEW_VALUES"}
    return {
        "SELECT option_value ": [],
        "SELECT CURRENT_TIMESTAMP() ": [{"now": f"{datetime.now(UTC):%FT%TZ}"}],
        "SELECT table_schema, table_name, table_type ": [
            {**name, "table_type": "BASE TABLE"} for name in names
        ],
        "SELECT * ": [{"change_stream_name": STREAM, "all": False}],
        "SELECT option_name, ": [capture],
        "SELECT table_schema, table_name, all_columns ": [
            {**name, "all_columns": True} for name in names
        ],
        "SELECT table_schema, table_name, column_name FROM ": [],
        "SELECT table_schema, table_name, column_name, spanner_type": [
            {
                **name,
                "column_name": column.name,
                "spanner_type": column.type.code,
                "ordinal_position": str(column.ordinal),
                "is_generated": "NEVER",
            }
            for name in names
            for column in TABLE.columns
        ],
        "SELECT table_schema, table_name, column_name, ordinal_position": [
            {**name, "column_name": column.name, "ordinal_position": "1"}
            for name in names
            for column in TABLE.key_columns
        ],
    }


class SourceProcess:
    """The server, seen from the benchmark; `address` is its host and port."""

    def __init__(self, case: Case, *, changes: int, stream_partitions: int, rows: int = 0) -> None:
        """Start it with so many prepared changes in all, and a table with so many rows."""
        self._child = Child(__name__)
        self.close = self._child.close
        self.address = self.ask(case.rows, case.mods, case.tables, changes, stream_partitions, rows)

    def ask(self, *command: Any) -> str:
        """Send a command; return its answer, which comes at once."""
        return self._child.ask(json.dumps(command))


class _Source:
    """The stream partitions: what each has still to send; None ends its query."""

    def __init__(self, case: Case, changes: int, stream_partitions: int) -> None:
        self._tokens = [f"token-{number}-0123456789abcdef" for number in range(stream_partitions)]
        self._metadata, *self._prepared = responses(case, changes // stream_partitions)
        self._rows = case.rows
        self._released = 0
        self._waiting: dict[str, asyncio.Queue[bytes | None]] = {}
        self._first: dict[str, bytes] = {}
        """The first message of a child whose query has not begun."""
        self._is_live = False

    async def answer(
        self, token: str | None, start_ns: int, heartbeat_s: float
    ) -> AsyncIterator[bytes]:
        """Yield the responses of a query."""
        if token is None:
            for message in children_response(tuple(self._tokens)):
                yield message
            return
        # What a worker had read and not published when its slot went to another one is read again.
        until = self._released
        self._waiting[token] = waiting = asyncio.Queue()
        yield self._metadata
        if token in self._first:
            yield self._first.pop(token)
        for message in self._prepared[records_before(start_ns) // self._rows : until]:
            yield message
        while True:
            try:
                message = await asyncio.wait_for(waiting.get(), heartbeat_s)
            except TimeoutError:
                if waiting.empty():  # else a release has come since, which is behind that time
                    yield heartbeat_response(self._now_ns())
                continue
            if message is None:
                return
            yield message

    def _now_ns(self) -> int:
        """Return the time up to which a stream partition that waits has sent everything."""
        return time.time_ns() if self._is_live else written_ns(self._released * self._rows)

    async def command(self, name: str, *arguments: Any) -> str:
        """Carry out one command; return its answer."""
        match name:
            case "release":
                until = self._released + round(len(self._prepared) * arguments[0])
                messages = self._prepared[self._released : until]
                self._released = until
                for waiting in self._waiting.values():
                    for message in messages:
                        waiting.put_nowait(message)
            case "pace":
                self._is_live = True
                await self._pace(*arguments)
            case "split":
                self._is_live = True
                self._split()
        return str(len(self._waiting))

    async def _pace(
        self, rate: int, seconds: float, poison_every: int = 0, fault: str = Fault.DAMAGED
    ) -> None:
        """Send changes as they are due, in turn over the stream partitions."""
        queues, began = list(self._waiting.values()), time.monotonic()
        for number in range(round(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            message = change_response(number, time.time_ns())
            if poison_every and number % poison_every == 0:
                round_number, key = divmod(number // poison_every, _POISON_KEYS)
                # Of every second round only the key is the reason: its earlier changes are parked.
                why = Fault(fault) if round_number % 2 == 0 else None
                message = change_response(-1 - key, time.time_ns(), fault=why)
            queues[number % len(queues)].put_nowait(message)

    def _split(self) -> None:
        parent = self._tokens[-1]
        child = f"child-{len(self._tokens)}-0123456789abcdef"
        self._tokens.append(child)
        at_ns = time.time_ns()
        self._first[child] = change_response(len(self._tokens), at_ns)
        waiting = self._waiting.pop(parent)
        waiting.put_nowait(children_response((child,), parent=parent, start_ns=at_ns)[0])
        waiting.put_nowait(None)


def _catalogue_rows(sql: str, catalogue: Mapping[str, list[dict[str, Any]]]) -> bytes:
    """Answer one of the catalogue's queries."""
    answers = (rows for start, rows in catalogue.items() if sql.startswith(start))
    if (rows := next(answers, None)) is None:
        raise LookupError(f"the benchmark's source has no answer to {sql!r}")
    result = ResultSet.pb()()
    for name in rows[0] if rows else ("option_value",):
        result.metadata.row_type.fields.add(name=name)
    for row in rows:
        result.rows.add(values=[value(item) for item in row.values()])
    return bytes(result.SerializeToString())


_REQUESTS = {"StreamingRead": ReadRequest}
"""What a method is asked, if not an `ExecuteSqlRequest`."""


async def started(
    streams: dict[str, Any], options: Sequence[Any] = (), *, tables: int = 1
) -> grpc.aio.Server:
    """Start a server of sessions, the catalogue and these streaming methods; print its address."""
    catalogue = _catalogue(tables)

    async def session(_request: bytes, _context: Any) -> bytes:
        return bytes(Session.pb()(name=_SESSION, multiplexed=True).SerializeToString())

    async def execute(request: Any, _context: Any) -> bytes:
        return _catalogue_rows(request.sql, catalogue)

    handlers = {
        "CreateSession": grpc.unary_unary_rpc_method_handler(session),
        "ExecuteSql": grpc.unary_unary_rpc_method_handler(
            execute, request_deserializer=ExecuteSqlRequest.pb().FromString
        ),
    }
    for name, stream in streams.items():
        request = _REQUESTS.get(name, ExecuteSqlRequest)
        handlers[name] = grpc.unary_stream_rpc_method_handler(
            stream, request_deserializer=request.pb().FromString
        )
    server = grpc.aio.server(options=[*_SERVER_OPTIONS, *options])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    print(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    return server


async def _serve() -> None:
    *of_case, changes, stream_partitions, rows_of_table = json.loads(sys.stdin.readline())
    case = Case(*of_case)
    source = _Source(case, changes, stream_partitions)

    async def stream(request: Any, _context: Any) -> AsyncIterator[bytes]:
        asked = request.params
        heartbeat_s = int(asked["heartbeat_milliseconds"]) / 1_000
        start_ns = parse_rfc3339_ns(asked["start_timestamp"])
        async for message in source.answer(asked["partition_token"], start_ns, heartbeat_s):
            yield message

    async def table(request: Any, _context: Any) -> AsyncIterator[bytes]:
        for message in table_responses(request, rows_of_table):
            yield message

    # It ends when nothing refers to it.
    _server = await started(
        {"ExecuteStreamingSql": stream, "StreamingRead": table}, tables=case.tables
    )
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read_lines() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=read_lines, daemon=True).start()
    while True:
        command = json.loads(await lines.get())
        if command[0] == "pace":
            task = asyncio.create_task(source.command(*command))  # noqa: RUF006, F841 - until killed
            print("ok", flush=True)
        else:
            print(await source.command(*command), flush=True)


def main() -> None:
    """Serve until the process is ended."""
    asyncio.run(_serve())
