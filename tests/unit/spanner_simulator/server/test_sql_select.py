from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.core.values import ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.messages import plain_of
from tidegate.spanner_simulator.server.sql_select import result_messages, run_query, run_read
from tidegate.spanner_simulator.server.transaction_selection import Selected


def test_a_read_gives_typed_columns_in_the_order_asked_for(rig) -> None:
    name = rig.session()
    rig.insert(name, 7)
    request = spanner.ReadRequest.pb()(
        session=name, table="accounts", columns=["balance", "Id", "Name"]
    )
    request.key_set.keys.add().values.add(string_value="7")
    result = run_read(rig.host.session(name), request, Selected(None, rig.now_us))

    assert result.columns == [
        ("Balance", ValueType("INT64")),
        ("Id", ValueType("INT64")),
        ("Name", ValueType("STRING")),
    ]
    assert result.rows == [["10", "7", None]]


def test_reads_by_index_and_query_plans_are_refused(rig) -> None:
    session = rig.host.session(rig.session())
    read = spanner.ReadRequest.pb()(table="Accounts", index="I")
    plan = spanner.ExecuteSqlRequest.pb()(sql="SELECT 1", query_mode=1)
    for act in (
        lambda: run_read(session, read, Selected(None, rig.now_us)),
        lambda: run_query(session, plan, Selected(None, rig.now_us)),
    ):
        with pytest.raises(SpannerError) as caught:
            act()
        assert caught.value.code is Code.UNIMPLEMENTED


def test_a_query_encodes_its_values(rig) -> None:
    session = rig.host.session(rig.session())
    request = rig.query(session.name, "SELECT 1 AS one, TRUE, NULL")
    result = run_query(session, request, Selected(None, rig.now_us))

    assert result.rows == [["1", True, None]]
    assert [name for name, _ in result.columns] == ["one", "", ""]


def test_messages_are_cut_numbered_and_carry_metadata_once(monkeypatch) -> None:
    monkeypatch.setattr("tidegate.spanner_simulator.server.sql_select._MESSAGE_BYTES_MAX", 10)
    written = result_messages(
        [["aaaaaa"], ["b"], ["c"]], b"", resume_prefix=b"rd.5", skip=0, precommit_token=b""
    )
    parsed = [spanner.PartialResultSet.pb().FromString(one) for one in written]

    assert [plain_of(value) for one in parsed for value in one.values] == ["aaaaaa", "b", "c"]
    assert [one.resume_token for one in parsed] == [b"rd.5.1", b"rd.5.3"]
    assert [one.HasField("metadata") for one in parsed] == [True, False]
    assert [one.HasField("precommit_token") for one in parsed] == [False, True]


def test_an_empty_result_is_one_message_with_metadata() -> None:
    (written,) = result_messages([], b"", resume_prefix=b"rd.0", skip=0, precommit_token=None)

    assert spanner.PartialResultSet.pb().FromString(written).HasField("metadata")
