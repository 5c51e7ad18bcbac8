from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.database import DatabaseSettings
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.host import Host
from spanner_simulator.server.messages import timestamp_us_of

DATABASE = "projects/p/instances/inst/databases/bank"


def test_a_database_is_found_by_its_full_or_short_name(rig) -> None:
    assert rig.host.database("bank") is rig.host.database(DATABASE)
    for wrong in ("nope", "projects/p/instances/inst/databases/nope"):
        with pytest.raises(SpannerError, match="Database not found"):
            rig.host.database(wrong)


def test_dropping_a_database_ends_its_sessions_and_queries(rig) -> None:
    session = rig.session()
    reader = rig.host.database("bank").attach("token")
    rig.host.drop_database(DATABASE)

    assert reader.fault is not None
    assert reader.fault.code is Code.NOT_FOUND
    with pytest.raises(SpannerError, match="Database not found"):
        rig.host.session(session)


def test_holds_end_with_their_database(rig) -> None:
    rig.host.holds.hold([*rig.database.streams.state("Bank").partitions.by_token, "another"])
    rig.host.drop_database(DATABASE)

    assert list(rig.host.holds) == ["another"]


def test_readers_are_woken_interrupted_and_forgotten(rig) -> None:
    hosted = rig.host.database("bank")
    first, second = hosted.attach("a"), hosted.attach("b")
    hosted.database.streams.listener(["a", "nobody"])

    assert (first.news.is_set(), second.news.is_set()) == (True, False)
    assert hosted.interrupt(["a", "b"], SpannerError(Code.UNAVAILABLE, "x")) == 2
    hosted.detach("a", first)
    assert hosted.interrupt(["a", "b"], SpannerError(Code.UNAVAILABLE, "x")) == 1


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


def test_a_frozen_clock_keeps_up_with_the_first_schema() -> None:
    host = Host(seed=1, settings=DatabaseSettings(), frozen_at_us=1_000_000)
    database = host.create_database("a")
    at_us = database.apply_ddl(
        ["CREATE TABLE T (A INT64) PRIMARY KEY (A)", "CREATE CHANGE STREAM S FOR T"],
        now_us=host.now_us(),
    )
    host.add_database(database)

    assert host.now_us() == at_us[-1]


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
