from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.messages import plain_of, timestamp_us_of

DATABASE = "projects/p/instances/inst/databases/bank"


def read_request(session: str, **fields):
    request = spanner.ReadRequest.pb()(
        session=session, table="Accounts", columns=["Id", "Balance"], **fields
    )
    request.key_set.all_ = True
    return request


def test_sessions_are_made_echoed_listed_and_forgotten(rig) -> None:
    single = rig.session(multiplexed=True)
    request = spanner.BatchCreateSessionsRequest.pb()(database=DATABASE, session_count=3)
    batch = rig.run(rig.spanner.batch_create_sessions(request)).session
    found = rig.run(rig.spanner.get_session(spanner.GetSessionRequest.pb()(name=single)))
    rig.run(rig.spanner.delete_session(spanner.DeleteSessionRequest.pb()(name=single)))
    left = rig.run(rig.spanner.list_sessions(spanner.ListSessionsRequest.pb()(database=DATABASE)))

    assert found.multiplexed
    assert sorted(one.name for one in left.sessions) == sorted(one.name for one in batch)
    with pytest.raises(SpannerError, match=f"Session not found: {single}"):
        rig.run(rig.spanner.get_session(spanner.GetSessionRequest.pb()(name=single)))


def test_a_single_use_commit_answers_with_timestamp_and_count(rig) -> None:
    reply = rig.insert(rig.session(), 1, return_commit_stats=True)

    assert timestamp_us_of(reply.commit_timestamp) == rig.now_us
    assert reply.commit_stats.mutation_count == 2


def test_the_transaction_tag_of_the_commit_or_of_begin_reaches_the_log(rig) -> None:
    session = rig.session()
    begin = spanner.BeginTransactionRequest.pb()(session=session)
    begin.options.read_write.SetInParent()
    begin.request_options.transaction_tag = "from-begin"
    for key, tag in ((1, ""), (2, "from-commit")):
        transaction = rig.run(rig.spanner.begin_transaction(begin))
        options = {"transaction_tag": tag}
        rig.insert(session, key, transaction_id=transaction.id, request_options=options)
    log = rig.database.streams.state("Bank").log.transactions

    assert [one.facts.transaction_tag for one in log] == ["from-begin", "from-commit"]


def test_read_and_streaming_read_agree(rig) -> None:
    session = rig.session()
    for key in (2, 1):
        rig.insert(session, key)
    whole = spanner.ResultSet.pb().FromString(rig.run(rig.spanner.read(read_request(session))))
    (partial,) = rig.collect(rig.spanner.streaming_read(read_request(session)))

    assert [[plain_of(v) for v in row.values] for row in whole.rows] == [["1", "10"], ["2", "10"]]
    assert [plain_of(value) for value in partial.values] == ["1", "10", "2", "10"]
    assert [field.name for field in whole.metadata.row_type.fields] == ["Id", "Balance"]


def test_a_resumed_read_goes_on_at_the_same_time_after_the_same_row(rig, monkeypatch) -> None:
    monkeypatch.setattr("tidegate.spanner_simulator.server.sql_select._MESSAGE_BYTES_MAX", 1)
    session = rig.session()
    for key in (1, 2, 3):
        rig.insert(session, key)
    request = read_request(session)
    first, *rest = rig.collect(rig.spanner.streaming_read(request))
    rig.insert(session, 0)
    request.resume_token = first.resume_token
    again = rig.collect(rig.spanner.streaming_read(request))

    values = [[plain_of(value) for value in one.values] for one in again]
    assert values == [[plain_of(value) for value in one.values] for one in rest]
    request.resume_token = b"nonsense"
    with pytest.raises(SpannerError, match="Invalid resume_token"):
        rig.collect(rig.spanner.streaming_read(request))


def test_a_transaction_begun_inline_is_aborted_by_a_conflict(rig) -> None:
    session = rig.session(multiplexed=True)
    request = read_request(session)
    request.transaction.begin.read_write.SetInParent()
    (message,) = rig.collect(rig.spanner.streaming_read(request))
    rig.insert(session, 5)

    assert message.precommit_token.precommit_token
    with pytest.raises(SpannerError) as caught:
        rig.insert(session, 6, transaction_id=message.metadata.transaction.id)
    assert caught.value.code is Code.ABORTED


def test_rollback_ends_a_transaction(rig) -> None:
    session = rig.session()
    transaction = rig.database.begin()
    rig.run(
        rig.spanner.rollback(
            spanner.RollbackRequest.pb()(session=session, transaction_id=transaction.transaction_id)
        )
    )

    with pytest.raises(SpannerError, match="rolled back"):
        rig.insert(session, 1, transaction_id=transaction.transaction_id)


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


def test_execute_streaming_sql_serves_both(rig) -> None:
    session = rig.session()
    (select,) = rig.collect(rig.spanner.execute_streaming_sql(rig.query(session, "SELECT 1")))
    changes = rig.collect(rig.spanner.execute_streaming_sql(rig.change_query(session, None)))

    assert plain_of(select.values[0]) == "1"
    assert len(changes[0].values) == 2


def test_a_role_may_do_what_it_was_granted(rig) -> None:
    from tidegate.spanner_simulator.core.schema.ddl import parse_ddl

    def ddl(statement: str) -> None:
        rig.database.apply_ddl([parse_ddl(statement)], now_us=rig.now_us)

    ddl("CREATE ROLE clerk")
    session = rig.session(role="clerk")
    with pytest.raises(SpannerError, match="SELECT on table Accounts is missing") as caught:
        rig.run(rig.spanner.read(read_request(session)))
    assert caught.value.code is Code.PERMISSION_DENIED
    with pytest.raises(SpannerError, match="INSERT on table Accounts is missing"):
        rig.insert(session, 1)
    with pytest.raises(SpannerError, match="SELECT on change stream Bank is missing"):
        rig.collect(rig.spanner.execute_streaming_sql(rig.change_query(session, None)))
    ddl("GRANT SELECT, INSERT ON TABLE Accounts TO ROLE clerk")
    rig.insert(session, 1)
    assert rig.run(rig.spanner.read(read_request(session)))


def test_a_commit_needs_a_transaction_that_can_write(rig) -> None:
    session = rig.session()
    nothing = spanner.CommitRequest.pb()(session=session)
    read_only = spanner.CommitRequest.pb()(session=session)
    read_only.single_use_transaction.read_only.strong = True
    for request in (nothing, read_only):
        with pytest.raises(SpannerError) as caught:
            rig.run(rig.spanner.commit(request))
        assert caught.value.code is Code.INVALID_ARGUMENT
