"""Answers reads and SELECT statements: the core's rows as result messages or one result set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.sql_engine import run_select
from tidegate.spanner_simulator.core.values import Plain, ValueType, encode
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.messages import key_set, parameters
from tidegate.spanner_simulator.server.wire_bytes import message_bytes, plain_bytes, row_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.spanner_simulator.server.host import Session
    from tidegate.spanner_simulator.server.messages import Message
    from tidegate.spanner_simulator.server.transaction_selection import Selected

__all__ = ["ResultRows", "result_messages", "run_query", "run_read"]

_MESSAGE_BYTES_MAX = 900_000


@dataclass(frozen=True, slots=True)
class ResultRows:
    """Named, typed columns and rows in plain form."""

    columns: list[tuple[str, ValueType]]
    rows: list[list[Plain]]


def run_read(session: Session, request: Message, selected: Selected) -> ResultRows:
    """Read or StreamingRead by key set; indexes are not supported."""
    database = session.database.database
    if request.index:
        raise SpannerError(Code.UNIMPLEMENTED, "The simulator does not support: reads by index")
    table = database.catalogue.table(request.table)
    _check_select(session, table.name)
    columns = [table.column(name) for name in request.columns]
    found = database.read(
        table,
        key_set(request.key_set),
        transaction=selected.transaction,
        read_us=selected.read_us,
        limit=request.limit,
    )
    typed = [(column.name, column.value_type) for column in columns]
    return ResultRows(
        typed, [[encode(kind, row.get(name)) for name, kind in typed] for row in found]
    )


def run_query(session: Session, request: Message, selected: Selected) -> ResultRows:
    """A SELECT of the subset that the simulator knows."""
    if request.query_mode not in (0, 2, 3, 4):
        raise SpannerError(Code.UNIMPLEMENTED, "The simulator does not support: query plans")
    columns, rows = run_select(
        session.database.database,
        request.sql,
        parameters(request),
        transaction=selected.transaction,
        read_us=selected.read_us,
        check_select=lambda table: _check_select(session, table),
    )
    return ResultRows(
        columns,
        [
            [encode(kind, value) for (_, kind), value in zip(columns, row, strict=True)]
            for row in rows
        ],
    )


def _check_select(session: Session, table: str) -> None:
    role = session.role
    catalogue = session.database.database.catalogue
    if role and not catalogue.has_privilege(role, "TABLE", table, "SELECT"):
        raise SpannerError(
            Code.PERMISSION_DENIED,
            f"Role {role} does not have required privileges: SELECT on table {table} is missing.",
        )


def result_messages(
    rows: Sequence[list[Plain]],
    metadata: bytes,
    *,
    resume_prefix: bytes,
    skip: int,
    precommit_token: bytes | None,
) -> Iterator[bytes]:
    """PartialResultSets from row `skip` on; a token says how many rows have been sent."""
    pending: list[bytes] = []
    size = 0
    first: bytes | None = metadata
    for index in range(skip, len(rows)):
        encoded = row_bytes([plain_bytes(value) for value in rows[index]])
        if pending and size + len(encoded) > _MESSAGE_BYTES_MAX:
            token = b"%s.%d" % (resume_prefix, index)
            yield message_bytes(pending, metadata=first, resume_token=token)
            pending, size, first = [], 0, None
        pending.append(encoded)
        size += len(encoded)
    yield message_bytes(
        pending,
        metadata=first,
        resume_token=b"%s.%d" % (resume_prefix, len(rows)),
        precommit_token=precommit_token,
    )
