"""Serves change stream queries: checks in order, then rows as they come, until the end.

Every message carries a resume token of its own that says how far the query got; the same statement
with that token goes on right after it. A waiting query sleeps until news or its heartbeat.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.change_streams.change_stream_call import (
    CallArguments,
    ChangeStreamCall,
    check_partition,
    parse_call,
    resolve,
)
from tidegate.spanner_simulator.core.change_streams.stream_query import (
    PartitionQuery,
    Position,
    initial_rows,
)
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.change_rows import CHANGE_RECORD_METADATA
from tidegate.spanner_simulator.server.messages import parameters
from tidegate.spanner_simulator.server.wire_bytes import message_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tidegate.spanner_simulator.core.change_streams.change_streams import StreamState
    from tidegate.spanner_simulator.core.change_streams.stream_query import StreamRow
    from tidegate.spanner_simulator.server.host import Host, HostedDatabase, Session
    from tidegate.spanner_simulator.server.messages import Message

__all__ = ["serve_change_stream_query"]

_MESSAGE_BYTES_MAX = 900_000


async def serve_change_stream_query(
    host: Host, session: Session, request: Message
) -> AsyncIterator[bytes]:
    """All messages of one query. Raises `SpannerError` for the status that ends it."""
    hosted = session.database
    database = hosted.database
    call = parse_call(request.sql, database.catalogue, role=session.role)
    arguments = resolve(call, parameters(request), now_us=host.now_us())
    _check_transaction(request.transaction)
    state = database.streams.state(call.stream.name)
    messages = _Messages(hosted, _digest(call, arguments))
    resumed = messages.parse_resume_token(request.resume_token)
    await asyncio.sleep(max(0, arguments.start_ns // 1000 - host.now_us()) / 1e6)
    if arguments.token is None:
        done = resumed.serial if resumed is not None else 0
        rows = initial_rows(state.partitions, arguments.start_ns)
        messages.position = Position(0, done, done)
        for message in messages.cut(rows[done:]):
            yield message
        if rows[done:] == []:
            yield messages.empty()
        return
    partition = check_partition(
        call.stream,
        state.partitions,
        arguments.token,
        start_ns=arguments.start_ns,
        now_us=host.now_us(),
    )
    query = PartitionQuery(
        partition,
        database.clock,
        start_ns=arguments.start_ns,
        end_ns=arguments.end_ns,
        heartbeat_us=arguments.heartbeat_us,
        opened_at_us=host.now_us(),
        resume=resumed,
        separate_children=host.separate_children,
    )
    async for message in _follow(host, session, state, query, messages):
        yield message


async def _follow(
    host: Host,
    session: Session,
    state: StreamState,
    query: PartitionQuery,
    messages: _Messages,
) -> AsyncIterator[bytes]:
    hosted, token = session.database, query.partition.token
    reader = hosted.attach(token)
    try:
        while True:
            if reader.fault is not None:
                raise reader.fault
            if state.is_dropped:
                raise SpannerError(Code.NOT_FOUND, f"Change Stream not found: {state.name}")
            reader.news.clear()
            messages.position = query.position
            step = query.poll(host.now_us())
            for message in messages.cut(step.rows):
                yield message
            if step.is_finished:
                if not messages.has_sent:
                    yield messages.empty()
                return
            wait_us = step.wake_at_us - host.now_us()
            if wait_us > 0 and not reader.news.is_set():
                await _wait(reader.news, wait_us / 1e6)
            if reader.news.is_set() and host.linger_s > 0:
                await asyncio.sleep(host.linger_s)
            else:
                await asyncio.sleep(0)
    finally:
        hosted.detach(token, reader)


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass


def _check_transaction(selector: Message) -> None:
    match selector.WhichOneof("selector"):
        case None:
            return
        case "single_use":
            mode = selector.single_use.WhichOneof("mode")
            bound = selector.single_use.read_only.WhichOneof("timestamp_bound")
            if mode in (None, "read_only") and bound in (None, "strong"):
                return
            what = "stale reads" if mode == "read_only" else "read-write transactions"
        case _:
            what = "multi use transactions"
    raise SpannerError(
        Code.INVALID_ARGUMENT,
        f"Change stream queries are not supported for {what}. Change stream queries must be "
        "strong reads executed via single use transactions using the ExecuteStreamingSql API.",
    )


def _digest(call: ChangeStreamCall, arguments: CallArguments) -> int:
    text = f"{call.function.lower()}|{arguments.start_ns}|{arguments.end_ns}|{arguments.token}"
    return zlib.crc32(text.encode())


class _Messages:
    """Cuts rows into messages and numbers them; `position` is before the next row."""

    def __init__(self, hosted: HostedDatabase, digest: int) -> None:
        self.position = Position(0, 0, 0)
        self.has_sent = False
        self._hosted = hosted
        self._digest = digest

    def parse_resume_token(self, token: bytes) -> Position | None:
        """The position of an earlier message of the same query; INVALID_ARGUMENT otherwise."""
        if not token:
            return None
        parts = token.split(b".")
        if len(parts) == 5 and parts[0] == b"cs" and all(part.isdigit() for part in parts[1:]):
            digest, data_index, child_index, serial = (int(part) for part in parts[1:])
            if digest == self._digest:
                return Position(data_index, child_index, serial)
        raise SpannerError(
            Code.INVALID_ARGUMENT, "Invalid resume_token: it belongs to another query."
        )

    def cut(self, rows: Sequence[StreamRow]) -> Iterator[bytes]:
        """Messages of at most about a megabyte; a single larger row is a message of its own."""
        pending: list[bytes] = []
        size = 0
        for row in rows:
            encoded = self._hosted.encoder.encode(row)
            if pending and size + len(encoded) > _MESSAGE_BYTES_MAX:
                yield self._message(pending)
                pending, size = [], 0
            pending.append(encoded)
            size += len(encoded)
            self.position = self.position.after(row)
        if pending:
            yield self._message(pending)

    def empty(self) -> bytes:
        """A message without rows, so that even an empty answer carries its metadata."""
        return self._message([])

    def _message(self, rows: list[bytes]) -> bytes:
        position = self.position
        token = b"cs.%d.%d.%d.%d" % (
            self._digest,
            position.data_index,
            position.child_index,
            position.serial,
        )
        metadata = None if self.has_sent else CHANGE_RECORD_METADATA
        self.has_sent = True
        return message_bytes(rows, metadata=metadata, resume_token=token)
