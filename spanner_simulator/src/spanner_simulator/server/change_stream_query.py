"""Serves change stream queries: checks in order, then rows as they come, until the end.

A waiting query sleeps until new data or its heartbeat.  Injected faults occur here, exact to the
row; a held stream partition sends nothing at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from spanner_simulator.core.change_streams import query_errors
from spanner_simulator.core.change_streams.change_stream_call import (
    CallArguments,
    ChangeStreamCall,
    check_partition,
    check_start,
    parse_call,
    resolve,
)
from spanner_simulator.core.change_streams.change_streams import StreamState
from spanner_simulator.core.change_streams.stream_query import (
    ROWS_PER_POLL_MAX,
    PartitionQuery,
    Position,
    Step,
    initial_rows,
    without_ending,
)
from spanner_simulator.errors import invalid_argument, not_found
from spanner_simulator.server.change_faults import CallFault
from spanner_simulator.server.change_messages import ChangeMessages
from spanner_simulator.server.host import Host, HostedDatabase, Reader, Session
from spanner_simulator.server.messages import Message, parameters
from spanner_simulator.server.type_messages import value_type_of


async def serve_change_stream_query(
    host: Host, session: Session, request: Message, context: Any = None
) -> AsyncGenerator[bytes, None]:
    """All messages of one query.  Raises `SpannerError` for the status that ends it.

    `context` is the call's, whose connection a fault may cut.
    """
    hosted = session.database
    database = hosted.database
    call = parse_call(
        request.sql, database.catalogue, role=session.role, types=_declared_types(request)
    )
    if request.partition_token or request.data_boost_enabled:
        raise invalid_argument("Change stream queries do not take partition tokens of queries.")
    state = database.streams.state(call.stream.name)
    arguments = resolve(
        call,
        parameters(request),
        now_us=host.now_us(),
        kept_since_us=state.partitions.kept_since_us,
        is_resumed=bool(request.resume_token),
    )
    _check_transaction(request.transaction)
    form = hosted.encoder.form(call.stream, database.catalogue.dialect)
    messages = ChangeMessages(hosted.encoder, form, _identity(call, arguments))
    resumed = messages.parse_resume_token(request.resume_token)
    planned = host.faults.plan(
        "ExecuteStreamingSql", database=database.name, stream=state.name, token=arguments.token
    )
    serving = _Serving(host, hosted, state, messages, CallFault(host, planned, context))
    if arguments.token is None:
        async for message in serving.initial(arguments.start_ns, resumed):
            yield message
        return
    partition = check_partition(
        call.stream,
        state.partitions,
        arguments.token,
        start_ns=arguments.start_ns,
        now_us=host.now_us(),
    )
    if resumed is not None and resumed.data_index > partition.records.end:
        raise invalid_argument("Invalid resume_token: it is ahead of the stream partition.")
    if len(hosted.readers.get(partition.token, ())) >= query_errors.READERS_MAX:
        raise query_errors.too_many_readers()
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
    reader = hosted.attach(partition.token)
    try:
        async for message in serving.follow(query, reader):
            yield message
    finally:
        hosted.detach(partition.token, reader)


@dataclass(frozen=True, slots=True)
class _Serving:
    """One query that has passed its checks."""

    host: Host
    hosted: HostedDatabase
    state: StreamState
    messages: ChangeMessages
    fault: CallFault

    async def initial(self, start_ns: int, resumed: Position | None) -> AsyncGenerator[bytes, None]:
        """The stream partitions active at the start, once that time has come."""
        messages, fault = self.messages, self.fault
        if await fault.at_open():
            return
        await self.host.clock.sleep_until(start_ns // 1000)
        self._check_there()
        partitions, now_us = self.state.partitions, self.host.now_us()
        # The wait may have been long enough for the start to expire.
        check_start(
            self.hosted.database.catalogue.stream(self.state.name),
            start_ns,
            now_us=now_us,
            kept_since_us=partitions.kept_since_us,
        )
        # Those that were active then must not split or merge at that time any more.
        self.hosted.database.clock.close(-(-start_ns // 1000))
        done = resumed.serial if resumed is not None else 0
        messages.position = Position(0, done, done)
        rows = initial_rows(partitions, start_ns)[done:]
        allowed = fault.rows_before_it(len(rows), sent=0)
        for message in messages.rows(rows[:allowed]):
            yield await fault.slowed(message)
        if fault.is_due(allowed) and await fault.strike():
            return
        for message in messages.rows(rows[allowed:]):
            yield message
        if not messages.has_sent:
            yield messages.empty()
        await fault.at_end()

    async def follow(self, query: PartitionQuery, reader: Reader) -> AsyncGenerator[bytes, None]:
        """Read a stream partition to the query's end."""
        messages, fault, partition = self.messages, self.fault, query.partition
        sent = 0
        if await fault.at_open():
            return
        while True:
            await self._until_free(reader, partition.token)
            reader.news.clear()
            if fault.is_due(sent) and await fault.strike():
                return
            messages.position = query.position
            step = self._poll(query, sent)
            for message in messages.records(partition, step.data):
                yield await self._when_free(message, reader, partition.token)
                # Much may have expired while the client was busy with this one.
                query.check_retention(messages.position, self._earliest_us())
            sent += len(step.data)
            allowed = fault.rows_before_it(len(step.rows), sent=sent)
            for message in messages.rows(step.rows[:allowed]):
                yield await self._when_free(message, reader, partition.token)
            sent += allowed
            if allowed < len(step.rows) and await fault.strike():
                return
            for message in messages.rows(step.rows[allowed:]):
                yield await self._when_free(message, reader, partition.token)
            if step.is_finished:
                if not await fault.at_end() and not messages.has_sent:
                    yield messages.empty()
                return
            if not fault.is_due(sent):
                await self._pause(reader, step.wake_at_us)

    def _poll(self, query: PartitionQuery, sent: int) -> Step:
        step = query.poll(
            self.host.now_us(),
            earliest_us=self._earliest_us(),
            data_max=self.fault.rows_before_it(ROWS_PER_POLL_MAX, sent=sent),
        )
        if step.is_finished and self.fault.hides_the_end:
            return without_ending(query.partition, step)
        return step

    def _earliest_us(self) -> int:
        self._check_there()
        retention_us = self.hosted.database.catalogue.stream(self.state.name).retention_us
        return max(self.host.now_us() - retention_us, self.state.partitions.kept_since_us)

    def _check_there(self) -> None:
        name = self.hosted.database.name
        if self.host.databases.get(name) is not self.hosted:
            raise not_found(f"Database not found: {name}")
        if self.state.is_dropped:
            raise not_found(f"Change Stream not found: {self.state.name}")

    async def _when_free(self, message: bytes, reader: Reader, token: str) -> bytes:
        slowed = await self.fault.slowed(message)
        await self._until_free(reader, token)
        return slowed

    async def _until_free(self, reader: Reader, token: str) -> None:
        """Wait while the stream partition is held; raise the error that ends the query."""
        while True:
            if reader.fault is not None:
                raise reader.fault
            self._check_there()
            if token not in self.host.holds:
                return
            reader.news.clear()
            await self.host.clock.wait(reader.news, None)

    async def _pause(self, reader: Reader, wake_at_us: int) -> None:
        """Wait for new data or a due row, with a moment for more data to gather."""
        if wake_at_us > self.host.now_us():
            await self.host.clock.wait(reader.news, wake_at_us)
            if reader.news.is_set() and self.host.linger_s > 0:
                await asyncio.sleep(self.host.linger_s)
                return
        await asyncio.sleep(0)


def _declared_types(request: Message) -> dict[str, str]:
    """Declared types by lower-case name; UNSPECIFIED counts as undeclared."""
    types: dict[str, str] = {}
    for name, message in request.param_types.items():
        kind = value_type_of(message)
        if kind is not None:
            element = kind.element
            types[name.lower()] = kind.code if element is None else f"ARRAY<{element.code}>"
    return types


def _check_transaction(selector: Message) -> None:
    match selector.WhichOneof("selector"):
        case None:
            return
        case "single_use":
            mode = selector.single_use.WhichOneof("mode")
            bound = selector.single_use.read_only.WhichOneof("timestamp_bound")
            if mode in (None, "read_only") and bound in (None, "strong"):
                return
        case _:
            pass
    raise query_errors.wrong_transaction()


def _identity(call: ChangeStreamCall, arguments: CallArguments) -> str:
    """What two statements have in common when one resumes the other."""
    parts = (call.function, call.stream.created_us, arguments.start_ns, arguments.end_ns)
    return f"{parts}|{arguments.token}"
