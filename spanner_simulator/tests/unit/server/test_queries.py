from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.messages import plain_of


def test_execute_sql_answers_a_select_and_refuses_change_streams(rig) -> None:
    session = rig.session()
    reply = rig.run(rig.spanner.execute_sql(rig.query(session, "SELECT COUNT(*) FROM Accounts")))

    assert plain_of(spanner.ResultSet.pb().FromString(reply).rows[0].values[0]) == "0"
    with pytest.raises(SpannerError) as caught:
        rig.run(rig.spanner.execute_sql(rig.change_query(session, None)))
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == (
        "Change stream queries are not supported for the ExecuteSql API. Change stream queries "
        "must be strong reads executed via single use transactions using the ExecuteStreamingSql "
        "API."
    )


SCAN = "SELECT Id FROM Accounts WHERE Balance = @balance"


def test_the_shares_of_a_query_are_the_whole(rig) -> None:
    session = rig.session()
    for key in range(9):
        rig.insert(session, key)
    request = spanner.PartitionQueryRequest.pb()(
        session=session, sql=SCAN, params={"balance": "10"}, partition_options={"max_partitions": 3}
    )
    request.transaction.begin.read_only.strong = True
    parts = rig.run(rig.spanner.partition_query(request))
    rig.insert(session, 99)
    found = []
    for part in parts.partitions:
        query = rig.query(session, SCAN, balance="10")
        query.transaction.id = parts.transaction.id
        query.partition_token = part.partition_token
        messages = rig.collect(rig.spanner.execute_streaming_sql(query))
        found.extend(plain_of(value) for one in messages for value in one.values)
        query.params.update({"balance": "11"})
        with pytest.raises(SpannerError, match="different request"):
            rig.collect(rig.spanner.execute_streaming_sql(query))

    assert len(parts.partitions) == 3
    assert sorted(found) == [str(key) for key in range(9)]


@pytest.mark.parametrize(
    "sql", ["SELECT COUNT(*) FROM Accounts", "DELETE FROM Accounts WHERE true"]
)
def test_what_has_no_shares_is_refused(rig, sql: str) -> None:
    request = spanner.PartitionQueryRequest.pb()(session=rig.session(), sql=sql)
    request.transaction.begin.read_only.strong = True
    with pytest.raises(SpannerError, match=r"partition") as caught:
        rig.run(rig.spanner.partition_query(request))
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("is_resumed", [True, False])
def test_what_may_be_gone_is_not_read(rig, monkeypatch, is_resumed: bool) -> None:
    monkeypatch.setattr("spanner_simulator.server.results._MESSAGE_BYTES_MAX", 1)
    session = rig.session()
    for key in (1, 2, 3):
        rig.insert(session, key)
    request = rig.query(session, "SELECT Id FROM Accounts ORDER BY Id")
    if not is_resumed:
        request.transaction.begin.read_only.strong = True
    first, *_ = rig.collect(rig.spanner.execute_streaming_sql(request))
    if is_resumed:
        request.resume_token = first.resume_token
    else:
        request.transaction.id = first.metadata.transaction.id
    rig.now_us += 3_600_000_001
    with pytest.raises(SpannerError, match="exceeded the maximum timestamp staleness") as caught:
        rig.collect(rig.spanner.execute_streaming_sql(request))
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_a_role_queries_and_changes_what_it_was_granted(rig) -> None:
    rig.database.apply_ddl(
        ["CREATE ROLE clerk", "GRANT SELECT ON TABLE Accounts TO ROLE clerk"], now_us=rig.now_us
    )
    session = rig.session(role="clerk")
    rig.run(rig.spanner.execute_sql(rig.query(session, "SELECT Id FROM Accounts")))
    delete = rig.query(session, "DELETE FROM Accounts WHERE true")
    delete.transaction.begin.read_write.SetInParent()
    with pytest.raises(SpannerError, match="DELETE on table Accounts is missing") as caught:
        rig.run(rig.spanner.execute_sql(delete))
    assert caught.value.code is Code.PERMISSION_DENIED


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
