"""Runs one SQL statement of a request in the transaction that it selected.

Decides what may run where (DML only in read-write and partitioned DML transactions) and what the
client gets for it; the engine decides what the statement means.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from spanner_simulator.errors import Code, SpannerError, invalid_argument
from spanner_simulator.server.host import Session
from spanner_simulator.server.messages import Message, plain_of
from spanner_simulator.server.open_transactions import Answered
from spanner_simulator.server.results import Reply, count_stats
from spanner_simulator.server.transaction_selection import Selected
from spanner_simulator.server.type_messages import value_type_of
from spanner_simulator.sql.parameter import Parameter


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A statement with its parameters, as in the request."""

    sql: str
    params: Message
    param_types: Message

    def identity(self) -> bytes:
        """A digest that is equal for one request that is sent twice."""
        digest = blake2b(f"{self.sql}\0".encode(), digest_size=16)
        digest.update(self.params.SerializeToString(deterministic=True))
        return digest.digest()

    def parameters(self) -> dict[str, Parameter]:
        """The bound values by lower-case name, with their declared types.

        A type without a value declares a parameter that is NULL.
        """
        types = {name.lower(): value_type_of(message) for name, message in self.param_types.items()}
        parameters = {
            name.lower(): Parameter(plain_of(value), types.get(name.lower()))
            for name, value in self.params.fields.items()
        }
        for name, value_type in types.items():
            parameters.setdefault(name, Parameter(None, value_type))
        return parameters


def run_statement(
    session: Session,
    request: SqlRequest,
    selected: Selected,
    *,
    seqno: int = 0,
    now_us: int,
    must_be_partitionable: bool = False,
    is_plan: bool = False,
) -> Reply:
    """A query's rows, or the result of DML; `is_plan`: only columns and parameters."""
    engine = session.database.engine
    statement = engine.prepare(request.sql)
    if is_plan:
        parameters = request.parameters()
        undeclared = list(engine.parameter_types(statement, parameters).items())
        return Reply(engine.columns(statement, parameters), [], undeclared=undeclared)
    if statement.kind == "dml":
        if must_be_partitionable:
            raise invalid_argument("DML statements cannot be partitioned.")
        return _dml_once(session, request, selected, seqno=seqno, now_us=now_us)
    selected.check_reading()
    if must_be_partitionable:
        engine.check_partitionable(statement)
    result = engine.query(
        statement,
        request.parameters(),
        transaction=selected.transaction,
        read_us=selected.read_us,
        now_us=now_us,
        check_privilege=session.check_privilege,
    )
    return Reply(result.columns, list(result.rows))


def _dml_once(
    session: Session, request: SqlRequest, selected: Selected, *, seqno: int, now_us: int
) -> Reply:
    opened = selected.writing()
    identity = request.identity()
    before = opened.replayed(seqno, identity, sql=request.sql)
    if before is None:
        try:
            before = Answered(identity, run_dml(session, request, selected, now_us=now_us), None)
        except SpannerError as error:
            if error.code is Code.ABORTED:
                raise
            before = Answered(identity, None, error)
        opened.note_answer(seqno, before)
    if before.error is not None:
        raise before.error
    reply: Reply = before.reply
    return reply


def run_dml(
    session: Session, request: SqlRequest, selected: Selected, *, index: int = 0, now_us: int
) -> Reply:
    """The result of a DML statement; partitioned DML is committed at once."""
    opened = selected.writing()
    engine = session.database.engine
    statement = engine.prepare(request.sql)
    if statement.kind != "dml":
        raise invalid_argument(f"Statement {index}: '{request.sql}' is not valid DML.")
    is_partitioned = opened.mode == "partitioned_dml"
    if is_partitioned:
        if statement.is_insert:
            raise invalid_argument("INSERT is not supported for Partitioned DML")
        if opened.answered:
            raise invalid_argument(
                "PartitionedDml transaction may only be used to execute one statement"
            )
    done = engine.dml(
        statement,
        request.parameters(),
        transaction=opened.core,
        now_us=now_us,
        check_privilege=session.check_privilege,
    )
    stats = count_stats(done.count, is_exact=not is_partitioned)
    if is_partitioned:
        if done.columns:
            raise invalid_argument("THEN RETURN is not supported for Partitioned DML")
        session.database.database.commit(opened.core, [], now_us=now_us)
    return Reply(done.columns, list(done.rows), stats)
