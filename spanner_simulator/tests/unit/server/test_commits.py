from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.messages import timestamp_us_of


def begin(rig, session: str, mode: str = "read_write", **options):
    request = spanner.BeginTransactionRequest.pb()(session=session, options={mode: {}, **options})
    return rig.run(rig.spanner.begin_transaction(request))


def rollback(rig, session: str, transaction_id: bytes) -> None:
    request = spanner.RollbackRequest.pb()(session=session, transaction_id=transaction_id)
    rig.run(rig.spanner.rollback(request))


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


def test_a_commit_sent_twice_is_one_commit(rig) -> None:
    session = rig.session()
    transaction = begin(rig, session)
    first = rig.insert(session, 1, transaction_id=transaction.id)
    again = rig.insert(session, 1, transaction_id=transaction.id)
    assert again.commit_timestamp == first.commit_timestamp
    assert len(rig.database.streams.state("Bank").log.transactions) == 1
    with pytest.raises(SpannerError, match="Cannot rollback a transaction after it has been comm"):
        rollback(rig, session, transaction.id)


def test_a_multiplexed_session_commits_with_its_precommit_token(rig) -> None:
    session = rig.session(multiplexed=True)
    transaction = begin(rig, session)
    forged = spanner.MultiplexedSessionPrecommitToken.pb()(precommit_token=b"x", seq_num=1)
    with pytest.raises(SpannerError, match="precommit token"):
        rig.insert(session, 1, transaction_id=transaction.id, precommit_token=forged)

    token = transaction.precommit_token
    assert rig.insert(session, 1, transaction_id=transaction.id, precommit_token=token)


def groups(*keys: int):
    row = {"table": "Accounts", "columns": ["Id", "Balance"]}
    return [{"mutations": [{"insert": {**row, "values": [[str(key), "1"]]}}]} for key in keys]


def test_each_group_of_a_batch_write_has_its_own_fate(rig) -> None:
    rig.now_us += 10
    request = spanner.BatchWriteRequest.pb(
        spanner.BatchWriteRequest(session=rig.session(), mutation_groups=groups(1, 1, 2))
    )

    async def gather():
        return [one async for one in rig.spanner.batch_write(request)]

    replies = [spanner.BatchWriteResponse.pb().FromString(one) for one in rig.run(gather())]
    assert [list(one.indexes) for one in replies] == [[0], [1], [2]]
    assert [one.status.code for one in replies] == [0, Code.ALREADY_EXISTS.value, 0]
    assert timestamp_us_of(replies[2].commit_timestamp) > timestamp_us_of(
        replies[0].commit_timestamp
    )
    assert not replies[1].HasField("commit_timestamp")


def test_what_fails_in_a_transaction_without_a_name_leaves_none_behind(rig) -> None:
    session = rig.session()
    rig.insert(session, 1)
    request = spanner.BatchWriteRequest.pb(
        spanner.BatchWriteRequest(session=session, mutation_groups=groups(1))
    )
    queue = spanner.CommitRequest.pb()(session=session, mutations=[{"ack": {}}])
    queue.single_use_transaction.read_write.SetInParent()
    with pytest.raises(SpannerError, match="already exists"):
        rig.insert(session, 1)
    with pytest.raises(SpannerError, match="mutations of kind ack"):
        rig.run(rig.spanner.commit(queue))

    async def write() -> int:
        return len([one async for one in rig.spanner.batch_write(request)])

    assert rig.run(write()) == 1
    states = {one.state for one in rig.database._transactions._by_id.values()}
    assert states == {"COMMITTED", "ROLLED_BACK"}


def test_a_batch_write_ends_with_its_database(rig) -> None:
    request = spanner.BatchWriteRequest.pb(
        spanner.BatchWriteRequest(session=rig.session(), mutation_groups=groups(1, 2))
    )
    replies = []

    async def write() -> None:
        async for one in rig.spanner.batch_write(request):
            replies.append(one)
            rig.host.drop_database(rig.database.name)

    with pytest.raises(SpannerError, match="Database not found"):
        rig.run(write())
    assert len(replies) == 1
