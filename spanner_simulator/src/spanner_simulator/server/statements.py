"""Runs one SQL statement of a request in the transaction that it selected.

Decides what may run where (DML only in read-write and partitioned DML transactions) and what the
client gets for it; what the statement means is decided by the engine.
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
    """A statement with its parameters, as the request has them."""

    sql: str
    params: Message
    param_types: Message

    def identity(self) -> bytes:
        """A digest of what makes two requests the same one, sent twice."""
        digest = blake2b(f"{self.sql}\0".encode(), digest_size=16)
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
    is_plan: bool = False,
) -> Reply:
    """A query's rows, or what DML has done; `is_plan`: only columns and parameters."""
    engine = session.database.engine
    statement = engine.prepare(one.sql)
    if is_plan:
        parameters = one.parameters()
        undeclared = list(engine.parameter_types(statement, parameters).items())
        return Reply(engine.columns(statement, parameters), [], undeclared=undeclared)
    if statement.kind == "dml":
        if must_be_partitionable:
            raise invalid_argument("DML statements cannot be partitioned.")
        return _dml_once(session, one, selected, seqno=seqno, now_us=now_us)
    selected.check_reading()
    if must_be_partitionable:
        engine.check_partitionable(statement)
    result = engine.query(
        statement,
        one.parameters(),
        transaction=selected.transaction,
        read_us=selected.read_us,
        now_us=now_us,
        check_privilege=session.check_privilege,
    )
    return Reply(result.columns, list(result.rows))


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
        raise invalid_argument(f"Statement {index}: '{one.sql}' is not valid DML.")
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
        one.parameters(),
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
