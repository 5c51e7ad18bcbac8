"""Read, StreamingRead and PartitionRead: rows by key set, of a table or an index."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.database import Database
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import ColumnDefinition
from spanner_simulator.errors import invalid_argument, not_found
from spanner_simulator.server.host import Host, Session
from spanner_simulator.server.messages import Message
from spanner_simulator.server.mutation_messages import key_set
from spanner_simulator.server.read_shares import answer, answer_partitions, answer_stream, share_of
from spanner_simulator.server.results import Reply, ResumePoint
from spanner_simulator.server.transaction_selection import Selected


class ReadMethods:
    """The methods by their API names, in snake case."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def read(self, request: Message) -> bytes:
        """Rows by key set, in one message."""
        return await answer(self._host, request, functools.partial(_run, request))

    def streaming_read(self, request: Message) -> AsyncGenerator[bytes, None]:
        """Rows by key set."""
        run = functools.partial(_run, request)
        return answer_stream(self._host, request, run, digest=_digest(request))

    async def partition_read(self, request: Message) -> Message:
        """Tokens for shares of a read."""
        # The same read, in the request that has all its options.
        complete_request = spanner.ReadRequest.pb()(
            table=request.table,
            index=request.index,
            columns=request.columns,
            key_set=request.key_set if request.HasField("key_set") else None,
        )
        run = functools.partial(_run, complete_request)
        return await answer_partitions(
            self._host, request, run, kind="read", digest=_digest(request)
        )


def _digest(request: Message) -> int:
    keys = request.key_set.SerializeToString(deterministic=True)
    return ResumePoint.digest(
        request.table.lower(), request.index.lower(), tuple(request.columns), keys
    )


def _run(request: Message, session: Session, selected: Selected) -> Reply:
    if not request.HasField("key_set"):
        raise invalid_argument("No value provided for required field: ReadRequest.key_set")
    if request.limit < 0:
        raise invalid_argument("Limit must be non-negative.")
    selected.check_reading()
    database = session.database.database
    table = database.catalogue.table(request.table)
    session.check_privilege(table.name, "SELECT")
    columns = _columns(database, table, request)
    if request.partition_token and request.limit:
        raise invalid_argument("A limit cannot be combined with a partition token.")
    share = share_of(request, "read", _digest(request), selected)
    read_rows = database.read(
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
    rows = [[row.get(name) for name in names] for row in read_rows]
    return Reply(typed, rows if share is None else share.of(rows))


def _columns(database: Database, table: Table, request: Message) -> list[ColumnDefinition]:
    if not request.index:
        return [table.column(name) for name in request.columns]
    present = database.index_table(table, request.index).by_name
    for name in request.columns:
        if table.column(name).name.lower() not in present:
            raise not_found(
                f"Index '{request.index}' which indexes '{table.name}' does not have a column "
                f"named {name}. Reads with an index can only query columns present in the index "
                "(see https://cloud.google.com/spanner/docs/secondary-indexes#read-with-index)."
            )
    return [table.column(name) for name in request.columns]
