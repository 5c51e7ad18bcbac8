from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.messages import plain_of


def read_request(session: str, **fields):
    request = spanner.ReadRequest.pb()(
        session=session, table="Accounts", columns=["Id", "Balance"], **fields
    )
    request.key_set.all_ = True
    return request


def test_a_resumed_read_goes_on_at_the_same_time_after_the_same_row(rig, monkeypatch) -> None:
    monkeypatch.setattr("spanner_simulator.server.results._MESSAGE_BYTES_MAX", 1)
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


def test_a_role_may_do_what_it_was_granted(rig) -> None:
    def ddl(statement: str) -> None:
        rig.database.apply_ddl([statement], now_us=rig.now_us)

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


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"limit": -1}, "INVALID_ARGUMENT", "Limit must be non-negative"),
        ({"partition_token": b"zz"}, "INVALID_ARGUMENT", "Invalid partition token"),
        ({"resume_token": b"zz"}, "INVALID_ARGUMENT", "Invalid resume_token"),
        ({"partition_token": b"zz", "limit": 1}, "INVALID_ARGUMENT", "A limit cannot"),
        ({"table": "Nope"}, "NOT_FOUND", "Table not found: Nope"),
        ({"columns": ["Nope"]}, "NOT_FOUND", "Column not found in table Accounts: Nope"),
        ({"index": "Nope"}, "NOT_FOUND", "No index 'Nope' was found for table 'Accounts'"),
    ],
)
def test_reads_that_make_no_sense(rig, fields, code: str, words: str) -> None:
    request = read_request(rig.session())
    if "columns" in fields:
        request.ClearField("columns")
    request.MergeFrom(spanner.ReadRequest.pb()(**fields))
    with pytest.raises(SpannerError, match=words) as caught:
        rig.collect(rig.spanner.streaming_read(request))
    assert caught.value.code is Code[code]


def test_a_read_by_index_has_the_order_and_the_columns_of_the_index(rig) -> None:
    rig.database.apply_ddl(["CREATE INDEX ByBalance ON Accounts (Balance DESC)"], now_us=rig.now_us)
    session = rig.session()
    for key, balance in ((1, 5), (2, 7), (3, 6)):
        rig.write(session, Id=str(key), Balance=str(balance))
    request = read_request(session, index="bybalance")
    whole = spanner.ResultSet.pb().FromString(rig.run(rig.spanner.read(request)))
    one = spanner.ReadRequest.pb()(
        session=session, table="Accounts", columns=["Id"], index="ByBalance", limit=1
    )
    one.key_set.keys.add().values.add(string_value="6")
    assert [plain_of(row.values[0]) for row in whole.rows] == ["2", "3", "1"]
    found = spanner.ResultSet.pb().FromString(rig.run(rig.spanner.read(one)))
    assert [plain_of(row.values[0]) for row in found.rows] == ["3"]
    request.columns.append("Name")
    with pytest.raises(SpannerError, match="does not have a column named Name") as caught:
        rig.run(rig.spanner.read(request))
    assert caught.value.code is Code.NOT_FOUND
    request.index = "Nope"
    with pytest.raises(SpannerError, match="No index 'Nope' was found for table 'Accounts'"):
        rig.run(rig.spanner.read(request))
