"""Queries and DML over an engine whose answers the test sets: what surrounds it is tested."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


def test_a_resumed_query_stays_in_its_transaction(rig, monkeypatch) -> None:
    monkeypatch.setattr("spanner_simulator.server.results._MESSAGE_BYTES_MAX", 1)
    session = rig.session()
    for key in (1, 2):
        rig.insert(session, key)
    request = rig.query(session, "SELECT Id FROM Accounts ORDER BY Id")
    request.transaction.begin.read_write.SetInParent()
    first, second = rig.collect(rig.spanner.execute_streaming_sql(request))
    request.transaction.id = first.metadata.transaction.id
    request.resume_token = first.resume_token
    (again,) = rig.collect(rig.spanner.execute_streaming_sql(request))
    assert list(again.values) == list(second.values)
    rig.insert(session, 3)
    with pytest.raises(SpannerError) as caught:
        rig.insert(session, 4, transaction_id=request.transaction.id)
    assert caught.value.code is Code.ABORTED


def test_a_batch_that_is_aborted_says_so_and_when_to_retry(rig) -> None:
    """Its transaction has written under a schema that is no more."""
    session = rig.session(multiplexed=True)
    request = spanner.ExecuteBatchDmlRequest.pb()(
        session=session, statements=[{"sql": "INSERT INTO Accounts (Id) VALUES (1)"}], seqno=1
    )
    request.transaction.begin.read_write.SetInParent()
    begun = rig.run(rig.spanner.execute_batch_dml(request))
    assert begun.precommit_token.seq_num == 2
    rig.database.apply_ddl(["CREATE TABLE T (A INT64) PRIMARY KEY (A)"], now_us=rig.now_us)
    request.transaction.id = begun.result_sets[0].metadata.transaction.id
    request.statements[0].sql = "INSERT INTO Accounts (Id) VALUES (2)"
    request.seqno = 2
    again = [
        lambda: rig.run(rig.spanner.execute_batch_dml(request)),
        lambda: rig.insert(session, 3, transaction_id=request.transaction.id),
    ]
    for act in again:
        with pytest.raises(SpannerError) as caught:
            act()
        assert caught.value.code is Code.ABORTED
        assert caught.value.retry_delay_ms


def test_a_plan_is_only_columns_and_parameters(rig) -> None:
    request = rig.query(rig.session(), "SELECT Id FROM Accounts WHERE Balance = @b")
    request.query_mode = spanner.ExecuteSqlRequest.QueryMode.PLAN
    reply = spanner.ResultSet.pb().FromString(rig.run(rig.spanner.execute_sql(request)))
    request.query_mode = spanner.ExecuteSqlRequest.QueryMode.PROFILE
    assert [one.name for one in reply.metadata.row_type.fields] == ["Id"]
    assert [one.name for one in reply.metadata.undeclared_parameters.fields] == ["b"]
    with pytest.raises(SpannerError, match="statistics of queries"):
        rig.run(rig.spanner.execute_sql(request))


INT64 = ValueType("INT64")


@dataclass
class ToldEngine:
    """Each statement is what its first word says; DML touches 3 rows, or fails."""

    fails: SpannerError | None = None
    returns: bool = False
    asked: list[Any] = field(default_factory=list)

    def prepare(self, sql: str) -> Any:
        kind = "query" if sql.startswith("SELECT") else "dml"
        return SimpleNamespace(sql=sql, kind=kind, is_insert=sql.startswith("INSERT"))

    def query(self, statement: Any, parameters: Any, **how: Any) -> Any:
        self.asked.append((statement.sql, parameters, how["read_us"]))
        return SimpleNamespace(columns=[("n", INT64)], rows=[[1], [2]])

    def dml(self, statement: Any, parameters: Any, **how: Any) -> Any:
        self.asked.append((statement.sql, parameters, how["transaction"]))
        if self.fails is not None:
            raise self.fails
        columns = [("n", INT64)] if self.returns else []
        rows = [[7]] if self.returns else []
        return SimpleNamespace(count=3, columns=columns, rows=rows)


@pytest.fixture
def engine(rig) -> ToldEngine:
    told = ToldEngine()
    rig.host.databases["projects/p/instances/inst/databases/bank"].engine = told
    return told


@pytest.fixture
def session(rig) -> str:
    return rig.session()


def begin(rig, session: str, mode: str = "read_write") -> bytes:
    request = spanner.BeginTransactionRequest.pb()(session=session, options={mode: {}})
    return rig.run(rig.spanner.begin_transaction(request)).id


def run(rig, session: str, sql: str, transaction: dict[str, Any] | None = None, **fields: Any):
    request = spanner.ExecuteSqlRequest.pb()(
        session=session, sql=sql, transaction=transaction, **fields
    )
    return spanner.ResultSet.pb().FromString(rig.run(rig.spanner.execute_sql(request)))


def batch(rig, session: str, transaction: dict[str, Any], *statements: str, seqno: int = 1):
    request = spanner.ExecuteBatchDmlRequest.pb()(
        session=session,
        transaction=transaction,
        statements=[{"sql": one} for one in statements],
        seqno=seqno,
    )
    return rig.run(rig.spanner.execute_batch_dml(request))


def test_a_statement_sent_twice_runs_once(rig, engine, session) -> None:
    transaction = {"id": begin(rig, session)}
    first = run(rig, session, "UPDATE", transaction, seqno=1)
    assert run(rig, session, "UPDATE", transaction, seqno=1) == first
    assert len(engine.asked) == 1
    with pytest.raises(SpannerError, match="different request"):
        run(rig, session, "DELETE", transaction, seqno=1)


def test_an_error_is_repeated_too_but_not_an_abort(rig, engine, session) -> None:
    transaction = {"id": begin(rig, session)}
    for code, seqno, calls in ((Code.ALREADY_EXISTS, 1, 1), (Code.ABORTED, 2, 3)):
        engine.fails = SpannerError(code, "no")
        for _ in range(2):
            with pytest.raises(SpannerError, match="no"):
                run(rig, session, "UPDATE", transaction, seqno=seqno)
        assert len(engine.asked) == calls


@pytest.mark.parametrize(
    ("transaction", "words"),
    [
        (None, "may not be performed in single-use"),
        ({"begin": {"read_only": {}}}, "Current transaction type is ReadOnly"),
        ({"single_use": {"read_write": {}}}, "should be read_only"),
    ],
)
def test_dml_needs_a_transaction_that_writes(rig, engine, session, transaction, words) -> None:
    with pytest.raises(SpannerError, match=words) as caught:
        run(rig, session, "UPDATE", transaction, seqno=1)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert engine.asked == []


def test_partitioned_dml_is_one_statement_committed_at_once(rig, engine, session) -> None:
    transaction = {"id": begin(rig, session, "partitioned_dml")}
    reply = run(rig, session, "DELETE", transaction, seqno=1)
    assert reply.stats.row_count_lower_bound == 3
    assert engine.asked[0][2].state == "COMMITTED"
    assert run(rig, session, "DELETE", transaction, seqno=1) == reply
    with pytest.raises(SpannerError, match="may only be used to execute one statement"):
        run(rig, session, "DELETE", transaction, seqno=2)


def test_a_batch_stops_at_its_first_error(rig, engine, session) -> None:
    transaction = {"id": begin(rig, session)}
    reply = batch(rig, session, transaction, "UPDATE", "SELECT 1", "UPDATE")
    assert [one.stats.row_count_exact for one in reply.result_sets] == [3]
    assert reply.status.code == Code.INVALID_ARGUMENT.value
    assert reply.status.message == "Statement 1: 'SELECT 1' is not valid DML."
    assert batch(rig, session, transaction, "UPDATE", "SELECT 1", "UPDATE") == reply
    assert len(engine.asked) == 1


def test_a_batch_names_the_transaction_that_it_begins(rig, engine, session) -> None:
    begin_one = {"begin": {"read_write": {}}}
    reply = batch(rig, session, begin_one, "UPDATE", "DELETE")
    failed = batch(rig, session, begin_one, "SELECT")
    assert reply.result_sets[0].metadata.transaction.id
    assert not reply.result_sets[1].metadata.HasField("transaction")
    assert not failed.result_sets
    with pytest.raises(SpannerError, match="at least one DML statement"):
        batch(rig, session, begin_one)
    with pytest.raises(SpannerError, match="only supported within a read-write"):
        batch(rig, session, {"id": begin(rig, session, "partitioned_dml")}, "UPDATE")


def test_partitioned_dml_returns_no_rows(rig, engine, session) -> None:
    transaction = {"id": begin(rig, session, "partitioned_dml")}
    engine.returns = True
    with pytest.raises(SpannerError, match="THEN RETURN"):
        run(rig, session, "UPDATE", transaction, seqno=1)
    assert engine.asked[0][2].state == "ACTIVE"
