from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

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
