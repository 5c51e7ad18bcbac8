from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import SpannerError

DATABASE = "projects/p/instances/inst/databases/bank"


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


def test_a_batch_has_at_least_one_and_no_multiplexed_session(rig) -> None:
    request = spanner.BatchCreateSessionsRequest.pb()(database=DATABASE)
    with pytest.raises(SpannerError, match="session_count must be positive"):
        rig.run(rig.spanner.batch_create_sessions(request))
    request.session_count = 1
    request.session_template.multiplexed = True
    with pytest.raises(SpannerError, match="in a batch"):
        rig.run(rig.spanner.batch_create_sessions(request))


def test_a_deleted_session_takes_its_transactions_along(rig) -> None:
    session = rig.session()
    begin = spanner.BeginTransactionRequest.pb()(session=session)
    begin.options.read_write.SetInParent()
    opened = rig.run(rig.spanner.begin_transaction(begin))
    core = rig.database.transaction(opened.id)
    rig.run(rig.spanner.delete_session(spanner.DeleteSessionRequest.pb()(name=session)))

    assert core.state == "ROLLED_BACK"
