from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.messages import timestamp_us_of

DATABASE = "projects/p/instances/inst/databases/bank"


def test_a_database_is_found_by_its_full_or_short_name(rig) -> None:
    assert rig.host.database("bank") is rig.host.database(DATABASE)
    for wrong in ("nope", "projects/p/instances/inst/databases/nope"):
        with pytest.raises(SpannerError, match="Database not found"):
            rig.host.database(wrong)


def test_a_frozen_clock_keeps_up_with_schemas_and_with_what_nobody_watches(rig) -> None:
    rig.database.apply_ddl(["DROP CHANGE STREAM Bank"], now_us=rig.now_us)
    session = rig.session()
    rig.host.clock.freeze()
    for number in range(3):
        rig.host.session(session).database.database.clock.read_now_us(rig.host.now_us())
        (at_us,) = rig.database.apply_ddl(
            [f"CREATE TABLE T{number} (A INT64) PRIMARY KEY (A)"], now_us=rig.host.now_us()
        )
        assert rig.host.now_us() == at_us
        seen = rig.run(rig.spanner.execute_sql(rig.query(session, f"SELECT * FROM T{number}")))
        assert spanner.ResultSet.pb().FromString(seen).metadata.row_type.fields[0].name == "A"
        committed = rig.insert(session, number)
        assert timestamp_us_of(committed.commit_timestamp) == rig.host.now_us()


def test_a_database_made_again_has_tokens_of_its_own(rig) -> None:
    first = set(rig.database.streams.state("Bank").partitions.by_token)
    rig.host.remove_instance("projects/p/instances/inst")
    rig.create()
    assert first.isdisjoint(rig.database.streams.state("Bank").partitions.by_token)


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("nonsense", Code.INVALID_ARGUMENT, "Invalid project uri: nonsense"),
        (f"{DATABASE}/sessions/s", Code.NOT_FOUND, f"Session not found: {DATABASE}/sessions/s"),
        (f"{DATABASE}x/sessions/s", Code.NOT_FOUND, f"Database not found: {DATABASE}x"),
        (
            "projects/p/instances/no/databases/d/sessions/s",
            Code.NOT_FOUND,
            "Instance not found: projects/p/instances/no",
        ),
    ],
)
def test_what_is_missing_of_a_session_is_named(rig, name: str, code: Code, words: str) -> None:
    with pytest.raises(SpannerError) as caught:
        rig.host.session(name)
    assert (caught.value.code, caught.value.message) == (code, words)


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
