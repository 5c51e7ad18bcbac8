"""google.spanner.v1.Spanner: sessions, transactions, reads, queries, commits.

Every method is a coroutine over raw messages that answers or raises `SpannerError`; `grpc_server`
turns that into a status.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.cloud.spanner_v1 import types as spanner
from google.protobuf import empty_pb2

from tidegate.spanner_simulator.core.change_streams.change_stream_call import is_change_stream_query
from tidegate.spanner_simulator.core.rows.mutations import Delete, Mutation
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.change_stream_query import serve_change_stream_query
from tidegate.spanner_simulator.server.messages import (
    metadata_bytes,
    mutation,
    timestamp_message,
)
from tidegate.spanner_simulator.server.sql_select import (
    ResultRows,
    result_messages,
    run_query,
    run_read,
)
from tidegate.spanner_simulator.server.transaction_selection import (
    Selected,
    begin_transaction,
    precommit_token,
    select_transaction,
)
from tidegate.spanner_simulator.server.wire_bytes import message_bytes, plain_bytes, row_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tidegate.spanner_simulator.server.host import Host, Session
    from tidegate.spanner_simulator.server.messages import Message

__all__ = ["SpannerService"]

_WRITE_PRIVILEGES = {
    "insert": ("INSERT",),
    "update": ("UPDATE",),
    "insert_or_update": ("INSERT", "UPDATE"),
    "replace": ("INSERT", "DELETE"),
}


class SpannerService:
    """See the module; the method names are the API's, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    # -- sessions

    async def create_session(self, request: Message) -> Message:
        """Create a session; `multiplexed` is echoed, which clients insist on."""
        return _session_message(
            self._host.create_session(
                request.database,
                role=request.session.creator_role,
                is_multiplexed=request.session.multiplexed,
            )
        )

    async def batch_create_sessions(self, request: Message) -> Message:
        """Create up to a hundred sessions."""
        reply = spanner.BatchCreateSessionsResponse.pb()()
        for _ in range(max(1, min(100, request.session_count))):
            session = self._host.create_session(
                request.database,
                role=request.session_template.creator_role,
                is_multiplexed=request.session_template.multiplexed,
            )
            reply.session.append(_session_message(session))
        return reply

    async def get_session(self, request: Message) -> Message:
        """Find a session."""
        return _session_message(self._host.session(request.name))

    async def list_sessions(self, request: Message) -> Message:
        """All sessions of a database, on one page."""
        hosted = self._host.database(request.database)
        found = [one for one in self._host.sessions.values() if one.database is hosted]
        reply = spanner.ListSessionsResponse.pb()()
        reply.sessions.extend(_session_message(one) for one in found)
        return reply

    async def delete_session(self, request: Message) -> Message:
        """Forget a session; an unknown one is no error."""
        self._host.sessions.pop(request.name, None)
        return empty_pb2.Empty()

    # -- transactions

    async def begin_transaction(self, request: Message) -> Message:
        """Start a transaction."""
        session = self._host.session(request.session)
        _, message = await begin_transaction(
            self._host, session, request.options, tag=request.request_options.transaction_tag
        )
        return message

    async def commit(self, request: Message) -> Message:
        """Apply mutations, atomically, at one new commit timestamp."""
        host = self._host
        session = host.session(request.session)
        database = session.database.database
        match request.WhichOneof("transaction"):
            case "transaction_id":
                transaction = database.transaction(request.transaction_id)
            case "single_use_transaction":
                if request.single_use_transaction.WhichOneof("mode") != "read_write":
                    raise SpannerError(
                        Code.INVALID_ARGUMENT, "A single-use commit needs a read-write transaction."
                    )
                transaction = database.begin()
                transaction.exclude_from_streams = (
                    request.single_use_transaction.exclude_txn_from_change_streams
                )
            case _:
                raise SpannerError(Code.INVALID_ARGUMENT, "A commit needs a transaction.")
        transaction.tag = request.request_options.transaction_tag or transaction.tag
        mutations = [mutation(one) for one in request.mutations]
        if session.role:
            for one in mutations:
                _check_write(session, one)
        commit_us = database.commit(transaction, mutations, now_us=host.now_us())
        reply = spanner.CommitResponse.pb()(commit_timestamp=timestamp_message(commit_us))
        if request.return_commit_stats:
            reply.commit_stats.mutation_count = sum(_mutation_count(one) for one in mutations)
        return reply

    async def rollback(self, request: Message) -> Message:
        """End a transaction without effect."""
        session = self._host.session(request.session)
        session.database.database.rollback(request.transaction_id)
        return empty_pb2.Empty()

    # -- reads and queries

    async def read(self, request: Message) -> bytes:
        """Rows by key set, in one message."""
        return await self._one_result(request, run_read)

    async def streaming_read(self, request: Message) -> AsyncIterator[bytes]:
        """Rows by key set."""
        async for message in self._stream(request, run_read):
            yield message

    async def execute_sql(self, request: Message) -> bytes:
        """A SELECT, in one message."""
        if is_change_stream_query(request.sql):
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "Change stream queries are not supported for the ExecuteSql API. Change stream "
                "queries must be strong reads executed via single use transactions using the "
                "ExecuteStreamingSql API.",
            )
        return await self._one_result(request, run_query)

    async def execute_streaming_sql(self, request: Message) -> AsyncIterator[bytes]:
        """A SELECT or a change stream query."""
        if is_change_stream_query(request.sql):
            session = self._host.session(request.session)
            async for message in serve_change_stream_query(self._host, session, request):
                yield message
            return
        async for message in self._stream(request, run_query):
            yield message

    async def _one_result(
        self, request: Message, run: Callable[[Session, Message, Selected], ResultRows]
    ) -> bytes:
        session = self._host.session(request.session)
        selected = await select_transaction(self._host, session, request.transaction)
        result = run(session, request, selected)
        reply = spanner.ResultSet.pb()()
        reply.metadata.ParseFromString(metadata_bytes(result.columns, selected.begun))
        for row in result.rows:
            partial = spanner.PartialResultSet.pb().FromString(
                message_bytes([row_bytes([plain_bytes(value) for value in row])])
            )
            reply.rows.add().values.extend(partial.values)
        token = _token_of(session, selected)
        if token is not None:
            reply.precommit_token.CopyFrom(token)
        serialised: bytes = reply.SerializeToString()
        return serialised

    async def _stream(
        self, request: Message, run: Callable[[Session, Message, Selected], ResultRows]
    ) -> AsyncIterator[bytes]:
        session = self._host.session(request.session)
        selected = await select_transaction(self._host, session, request.transaction)
        skip = 0
        if request.resume_token:
            selected, skip = _resume(selected, request.resume_token)
        result = run(session, request, selected)
        token = _token_of(session, selected)
        for message in result_messages(
            result.rows,
            metadata_bytes(result.columns, selected.begun),
            resume_prefix=b"rd.%d" % (selected.read_us or 0),
            skip=skip,
            precommit_token=None if token is None else token.SerializeToString(),
        ):
            yield message


def _token_of(session: Session, selected: Selected) -> Message | None:
    if selected.transaction is None:
        return None
    return precommit_token(session, selected.transaction)


def _resume(selected: Selected, token: bytes) -> tuple[Selected, int]:
    """Go on at the same read time, after the rows that were sent."""
    parts = token.split(b".")
    if len(parts) != 3 or parts[0] != b"rd" or not (parts[1] + parts[2]).isdigit():
        raise SpannerError(Code.INVALID_ARGUMENT, "Invalid resume_token.")
    read_us = int(parts[1]) or None
    return Selected(selected.transaction, read_us, selected.begun), int(parts[2])


def _session_message(session: Session) -> Message:
    message = spanner.Session.pb()(
        name=session.name, creator_role=session.role, multiplexed=session.is_multiplexed
    )
    message.create_time.CopyFrom(timestamp_message(session.created_us))
    message.approximate_last_use_time.CopyFrom(timestamp_message(session.created_us))
    return message


def _check_write(session: Session, one: Mutation) -> None:
    needed = ("DELETE",) if isinstance(one, Delete) else _WRITE_PRIVILEGES[one.kind]
    catalogue = session.database.database.catalogue
    for privilege in needed:
        if not catalogue.has_privilege(session.role, "TABLE", one.table, privilege):
            raise SpannerError(
                Code.PERMISSION_DENIED,
                f"Role {session.role} does not have required privileges: {privilege} on table "
                f"{one.table} is missing.",
            )


def _mutation_count(one: Mutation) -> int:
    return 1 if isinstance(one, Delete) else len(one.columns) * len(one.rows)
