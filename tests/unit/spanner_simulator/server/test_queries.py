from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server.messages import plain_of


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
