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
