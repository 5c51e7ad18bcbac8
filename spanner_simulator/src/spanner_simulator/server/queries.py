"""ExecuteSql, ExecuteStreamingSql, ExecuteBatchDml and PartitionQuery.

A repeated statement with a sequence number gets the same answer and does not run again.
`statements` runs statements, `change_stream_query` change stream queries.  Statements run on the
event loop, because they are short: about 1 us for each row that is scanned and 3 us for each that
is sent, in messages between which other calls can run.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.change_stream_call import is_change_stream_query
from spanner_simulator.core.change_streams.query_errors import wrong_method
from spanner_simulator.errors import Code, SpannerError, invalid_argument, unsupported
from spanner_simulator.server.change_stream_query import serve_change_stream_query
from spanner_simulator.server.host import Host, Session
from spanner_simulator.server.messages import Message, plain_of
from spanner_simulator.server.open_transactions import Answered
from spanner_simulator.server.read_shares import (
    answer,
    answer_partitions,
    answer_stream,
    share_of,
)
from spanner_simulator.server.results import Reply, ResumePoint
from spanner_simulator.server.statements import SqlRequest, run_dml, run_statement
from spanner_simulator.server.statuses import status_message
from spanner_simulator.server.transaction_selection import Selected, selected_transaction
from spanner_simulator.server.type_messages import metadata_bytes

_MODE = spanner.ExecuteSqlRequest.QueryMode


class QueryMethods:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def execute_sql(self, request: Message) -> bytes:
        """A query or DML, answered in one message."""
        if is_change_stream_query(request.sql):
            raise wrong_method()
        return await answer(self._host, request, functools.partial(self._run, request))

    def execute_streaming_sql(
        self, request: Message, context: Any = None
    ) -> AsyncGenerator[bytes, None]:
        """A query or DML, or a change stream query, answered in as many messages as necessary.

        `context` is the call's, which faults of change stream queries need.
        """
        if is_change_stream_query(request.sql):
            session = self._host.session(request.session)
            return serve_change_stream_query(self._host, session, request, context)
        run = functools.partial(self._run, request)
        return answer_stream(self._host, request, run, digest=_digest(request))

    def _run(self, request: Message, session: Session, selected: Selected) -> Reply:
        if request.query_mode not in (_MODE.NORMAL, _MODE.PLAN):
            raise unsupported("statistics of queries")
        statement = SqlRequest(request.sql, request.params, request.param_types)
        share = share_of(request, "query", _digest(request), selected)
        reply = run_statement(
            session,
            statement,
            selected,
            seqno=request.seqno,
            now_us=self._host.now_us(),
            must_be_partitionable=share is not None,
            is_plan=request.query_mode == _MODE.PLAN,
        )
        return reply if share is None else replace(reply, rows=share.of(reply.rows))

    async def execute_batch_dml(self, request: Message) -> Message:
        """DML statements one after the other, until one fails; its status ends the list."""
        session = self._host.session(request.session)
        if not request.statements:
            raise invalid_argument("Request must contain at least one DML statement")
        tag = request.request_options.transaction_tag
        selection = selected_transaction(self._host, session, request.transaction, tag=tag)
        async with selection as selected:
            opened = selected.writing()
            if opened.mode != "read_write":
                raise invalid_argument(
                    "ExecuteBatchDml is only supported within a read-write transaction."
                )
            statements = [
                SqlRequest(statement.sql, statement.params, statement.param_types)
                for statement in request.statements
            ]
            identities = tuple(statement.identity() for statement in statements)
            sql = request.statements[0].sql
            before = opened.replayed(request.seqno, identities, sql=sql)
            if before is None:
                reply = self._batch(session, statements, selected)
                before = Answered(identities, reply, None)
                opened.note_answer(request.seqno, before)
            message = spanner.ExecuteBatchDmlResponse.pb()()
            message.CopyFrom(before.reply)
            if selected.has_begun and not message.result_sets:
                # The client gets no id of the transaction, and could not end it.
                session.database.database.rollback(opened.transaction_id)
            token = selected.precommit_token()
            if token is not None:
                message.precommit_token.CopyFrom(token)
            return message

    def _batch(self, session: Session, statements: list[SqlRequest], selected: Selected) -> Message:
        reply = spanner.ExecuteBatchDmlResponse.pb()()
        reply.status.SetInParent()
        for index, statement in enumerate(statements):
            try:
                done = run_dml(
                    session, statement, selected, index=index, now_us=self._host.now_us()
                )
            except SpannerError as error:
                if error.code is Code.ABORTED:
                    raise
                reply.status.CopyFrom(status_message(error))
                break
            result = reply.result_sets.add()
            begun = selected.begun if index == 0 else None
            result.metadata.ParseFromString(metadata_bytes([], begun))
            result.stats.CopyFrom(done.stats)
        return reply

    async def partition_query(self, request: Message) -> Message:
        """Tokens for shares of a query."""
        statement = SqlRequest(request.sql, request.params, request.param_types)

        def run(session: Session, selected: Selected) -> Reply:
            now_us = self._host.now_us()
            return run_statement(
                session, statement, selected, now_us=now_us, must_be_partitionable=True
            )

        return await answer_partitions(
            self._host, request, run, kind="query", digest=_digest(request)
        )


def _digest(request: Message) -> int:
    bound = sorted((name, repr(plain_of(value))) for name, value in request.params.fields.items())
    return ResumePoint.digest(request.sql, bound)
