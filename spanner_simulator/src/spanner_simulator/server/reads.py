"""Read, StreamingRead and PartitionRead: rows by key set, of a table or an index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.mutation_messages import key_set
from spanner_simulator.server.read_shares import Share, check_partitioning, share_count
from spanner_simulator.server.results import (
    Reply,
    ResumePoint,
    reply_messages,
    reply_result_set,
)
from spanner_simulator.server.transaction_selection import (
    Selected,
    selected_transaction,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from spanner_simulator.core.database import Database
    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.core.schema.statements import ColumnDefinition
    from spanner_simulator.server.host import Host, Session
    from spanner_simulator.server.messages import Message


class ReadMethods:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def read(self, request: Message) -> bytes:
        """Rows by key set, in one message."""
        session = self._host.session(request.session)
        tag = request.request_options.transaction_tag
        selection = selected_transaction(self._host, session, request.transaction, tag=tag)
        async with selection as selected:
            reply = _run(session, request, selected)
            return reply_result_set(reply, begun=selected.begun, token=selected.precommit_token())

    async def streaming_read(self, request: Message) -> AsyncGenerator[bytes, None]:
        """Rows by key set."""
        session = self._host.session(request.session)
        digest = _digest(request)
        tag = request.request_options.transaction_tag
        selection = selected_transaction(self._host, session, request.transaction, tag=tag)
        async with selection as found:
            selected, resume = found, ResumePoint(found.read_us or 0, 0)
            if request.resume_token:
                resume = ResumePoint.parse(request.resume_token, digest)
                selected = found.resumed(
                    resume, session.database.database, now_us=self._host.now_us()
                )
            reply = _run(session, request, selected)
        for message in reply_messages(
            reply,
            begun=selected.begun,
            token=selected.precommit_token(),
            digest=digest,
            resume=resume,
        ):
            yield message

    async def partition_read(self, request: Message) -> Message:
        """Tokens for shares of a read, to be read in the same transaction."""
        session = self._host.session(request.session)
        check_partitioning(request.transaction, request.partition_options)
        async with selected_transaction(self._host, session, request.transaction) as selected:
            opened = selected.read_only_transaction()
            # The same read, in the request that has all its options.
            whole = spanner.ReadRequest.pb()(
                table=request.table,
                index=request.index,
                columns=request.columns,
                key_set=request.key_set if request.HasField("key_set") else None,
            )
            reply = _run(session, whole, selected)
            size = sum(len(repr(row)) for row in reply.rows)
            count = share_count(request.partition_options, rows=len(reply.rows), size=size)
        message = spanner.PartitionResponse.pb()()
        if selected.begun is not None:
            message.transaction.CopyFrom(selected.begun)
        digest = _digest(request)
        for index in range(count):
            share = Share("read", digest, opened.transaction_id, index, count)
            message.partitions.add(partition_token=share.token())
        return message


def _digest(request: Message) -> int:
    keys = request.key_set.SerializeToString(deterministic=True)
    return ResumePoint.digest(
        request.table.lower(), request.index.lower(), tuple(request.columns), keys
    )


def _run(session: Session, request: Message, selected: Selected) -> Reply:
    if not request.HasField("key_set"):
        raise SpannerError(
            Code.INVALID_ARGUMENT, "No value provided for required field: ReadRequest.key_set"
        )
    if request.limit < 0:
        raise SpannerError(Code.INVALID_ARGUMENT, "Limit must be non-negative.")
    selected.check_reading()
    selected.check_directed(request)
    database = session.database.database
    table = database.catalogue.table(request.table)
    _check_select(session, table.name)
    columns = _columns(database, table, request)
    share = None
    if request.partition_token:
        if request.limit:
            raise SpannerError(
                Code.INVALID_ARGUMENT, "A limit cannot be combined with a partition token."
            )
        share = Share.parse(request.partition_token, "read", _digest(request))
        share.check_transaction(selected)
    found = database.read(
        table,
        key_set(request.key_set),
        transaction=selected.transaction,
        read_us=selected.read_us,
        limit=request.limit,
        index=request.index or None,
        columns=request.columns,
    )
    names = [column.name for column in columns]
    typed = [(column.name, column.value_type) for column in columns]
    rows = [[row.get(name) for name in names] for row in found]
    return Reply(typed, rows if share is None else share.of(rows))


def _columns(database: Database, table: Table, request: Message) -> list[ColumnDefinition]:
    if not request.index:
        return [table.column(name) for name in request.columns]
    present = database.index_table(table, request.index).by_name
    for name in request.columns:
        if table.column(name).name.lower() not in present:
            raise SpannerError(
                Code.NOT_FOUND,
                f"Index '{request.index}' which indexes '{table.name}' does not have a column "
                f"named {name}. Reads with an index can only query columns present in the index "
                "(see https://cloud.google.com/spanner/docs/secondary-indexes#read-with-index).",
            )
    return [table.column(name) for name in request.columns]


def _check_select(session: Session, table: str) -> None:
    role = session.role
    catalogue = session.database.database.catalogue
    if role and not catalogue.has_privilege(role, "TABLE", table, "SELECT"):
        raise SpannerError(
            Code.PERMISSION_DENIED,
            f"Role {role} does not have required privileges: SELECT on table {table} is missing.",
        )
