"""Runs one SQL statement of a request in the transaction that it selected.

Decides what may run where (DML only in read-write and partitioned DML transactions) and what the
client gets for it; what the statement means is decided by the engine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.messages import plain_of
from spanner_simulator.server.open_transactions import Answered
from spanner_simulator.server.results import Reply, count_stats
from spanner_simulator.server.type_messages import value_type_of
from spanner_simulator.sql.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanner_simulator.server.host import Session
    from spanner_simulator.server.messages import Message
    from spanner_simulator.server.transaction_selection import Selected


_MODE = spanner.ExecuteSqlRequest.QueryMode


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A statement with its parameters, as the request has them."""

    sql: str
    params: Message
    param_types: Message
    mode: int = 0

    def identity(self) -> bytes:
        """A digest of what makes two requests the same one, sent twice."""
        digest = blake2b(f"{self.mode} {self.sql}\0".encode(), digest_size=16)
        digest.update(self.params.SerializeToString(deterministic=True))
        return digest.digest()

    def parameters(self) -> dict[str, Parameter]:
        """The bound values by lower-case name, with their declared types.

        A type without a value declares a parameter that is NULL.
        """
        types = {name.lower(): value_type_of(one) for name, one in self.param_types.items()}
        found = {
            name.lower(): Parameter(plain_of(value), types.get(name.lower()))
            for name, value in self.params.fields.items()
        }
        for name, value_type in types.items():
            found.setdefault(name, Parameter(None, value_type))
        return found


def run_statement(
    session: Session,
    one: SqlRequest,
    selected: Selected,
    *,
    seqno: int = 0,
    now_us: int,
    must_be_partitionable: bool = False,
) -> Reply:
    """A query's rows, or what DML has done."""
    engine = session.database.engine
    statement = engine.prepare(one.sql)
    if statement.kind == "dml":
        if must_be_partitionable:
            raise SpannerError(Code.INVALID_ARGUMENT, "DML statements cannot be partitioned.")
        return _dml_once(session, one, selected, seqno=seqno, now_us=now_us)
    selected.check_reading()
    if must_be_partitionable:
        engine.check_partitionable(statement)
    parameters = one.parameters()
    if one.mode == _MODE.PLAN:
        undeclared = list(engine.parameter_types(statement, parameters).items())
        columns = engine.columns(statement, parameters)
        return Reply(columns, [], _execution_stats(one), undeclared)
    started_s = time.perf_counter()
    result = engine.query(
        statement,
        parameters,
        transaction=selected.transaction,
        read_us=selected.read_us,
        now_us=now_us,
        check_privilege=_privilege_check(session),
    )
    rows = list(result.rows)
    stats = _execution_stats(one, rows=len(rows), elapsed_s=time.perf_counter() - started_s)
    return Reply(result.columns, rows, stats)


def _execution_stats(
    one: SqlRequest, *, rows: int = 0, elapsed_s: float = 0.0, stats: Message | None = None
) -> Message | None:
    """What the query mode asks for beside the rows; the plan is one node that says there is none.

    `stats` is what to add it to.
    """
    if one.mode == _MODE.NORMAL:
        return stats
    found = spanner.ResultSetStats.pb()() if stats is None else stats
    if one.mode != _MODE.WITH_STATS:
        found.query_plan.plan_nodes.add(display_name="No query plan")
    if one.mode != _MODE.PLAN:
        found.query_stats["rows_returned"] = str(rows)
        found.query_stats["elapsed_time"] = f"{elapsed_s * 1000:.2f} msecs"
        found.query_stats["query_text"] = one.sql
    return found


def _dml_once(
    session: Session, one: SqlRequest, selected: Selected, *, seqno: int, now_us: int
) -> Reply:
    opened = selected.writing()
    asked = one.identity()
    before = opened.replayed(seqno, asked, sql=one.sql)
    if before is None:
        try:
            before = Answered(asked, run_dml(session, one, selected, now_us=now_us), None)
        except SpannerError as error:
            if error.code is Code.ABORTED:
                raise
            before = Answered(asked, None, error)
        opened.note_answer(seqno, before)
    if before.error is not None:
        raise before.error
    reply: Reply = before.reply
    return reply


def run_dml(
    session: Session, one: SqlRequest, selected: Selected, *, index: int = 0, now_us: int
) -> Reply:
    """What a DML statement has done; partitioned DML is committed at once."""
    opened = selected.writing()
    engine = session.database.engine
    statement = engine.prepare(one.sql)
    if statement.kind != "dml":
        raise SpannerError(
            Code.INVALID_ARGUMENT, f"Statement {index}: '{one.sql}' is not valid DML."
        )
    is_partitioned = opened.mode == "partitioned_dml"
    if is_partitioned:
        if statement.is_insert:
            raise SpannerError(Code.INVALID_ARGUMENT, "INSERT is not supported for Partitioned DML")
        if opened.answered:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "PartitionedDml transaction may only be used to execute one statement",
            )
    parameters = one.parameters()
    if one.mode == _MODE.PLAN:
        undeclared = list(engine.parameter_types(statement, parameters).items())
        columns = engine.columns(statement, parameters)
        return Reply(columns, [], _execution_stats(one, stats=count_stats(0)), undeclared)
    started_s = time.perf_counter()
    done = engine.dml(
        statement,
        parameters,
        transaction=opened.core,
        now_us=now_us,
        check_privilege=_privilege_check(session),
    )
    opened.dml_rows += done.count
    stats = count_stats(done.count, is_exact=not is_partitioned)
    if is_partitioned:
        if done.columns:
            raise SpannerError(
                Code.INVALID_ARGUMENT, "THEN RETURN is not supported for Partitioned DML"
            )
        session.database.database.commit(opened.core, [], now_us=now_us)
    rows = list(done.rows)
    elapsed_s = time.perf_counter() - started_s
    stats = _execution_stats(one, rows=len(rows), elapsed_s=elapsed_s, stats=stats)
    return Reply(done.columns, rows, stats)


def _privilege_check(session: Session) -> Callable[[str, str], None]:
    role = session.role
    catalogue = session.database.database.catalogue

    def check(table: str, privilege: str) -> None:
        if role and not catalogue.has_privilege(role, "TABLE", table, privilege):
            raise SpannerError(
                Code.PERMISSION_DENIED,
                f"Role {role} does not have required privileges: {privilege} on table {table} is "
                "missing.",
            )

    return check
