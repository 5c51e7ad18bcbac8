"""INSERT, UPDATE and DELETE beside their answers, which are among those of `test_query_binder`."""

from __future__ import annotations

import pytest

from spanner_simulator.errors import Code, SpannerError
from unit.sql.conftest import NOW_US


def test_the_commit_timestamp(world) -> None:
    world.run("INSERT T (Id, S, Ts) VALUES (9, DEFAULT, PENDING_COMMIT_TIMESTAMP())")
    ((written,),) = world.rows("SELECT Ts FROM T WHERE Id = 9")
    assert str(written).startswith("2025-06-15T")


def test_constants_need_no_computing_and_come_out_the_same(world) -> None:
    world.run("INSERT INTO C (Id, K, V) VALUES (2, @k, @v)", k="ab", v="3")
    assert world.rows("SELECT K, V FROM C WHERE Id = 2") == [["ab", "3"]]

    world.run("UPDATE C SET V = @v WHERE Id = 2 AND K = @k", v=None, k="ab")
    assert world.rows("SELECT V FROM C WHERE Id = 2") == [[None]]
    assert world.run("DELETE FROM C WHERE Id = 2 AND K = @k", k="ab").count == 1


KEYED = (
    "CREATE TABLE U (Id STRING(36) DEFAULT (GENERATE_UUID()), S STRING(9)) PRIMARY KEY (Id)",
    "CREATE TABLE K (Id INT64 DEFAULT (7), S STRING(9)) PRIMARY KEY (Id)",
    "CREATE TABLE G (Id INT64, Twice INT64 AS (Id * 2) STORED, S STRING(9)) PRIMARY KEY (Twice)",
    (
        "CREATE TABLE L (Id INT64, Moment TIMESTAMP OPTIONS (allow_commit_timestamp=true)) "
        "PRIMARY KEY (Id, Moment)"
    ),
)


@pytest.fixture(name="keyed")
def keyed_fixture(world):
    world.database.apply_ddl(KEYED, now_us=NOW_US)
    return world


def test_a_key_that_the_statement_does_not_name_is_known_all_the_same(keyed) -> None:
    done = keyed.run("INSERT INTO U (S) VALUES ('x'), ('y') THEN RETURN Id, S")
    assert [row[1] for row in done.rows] == ["x", "y"]
    assert sorted(done.rows) == sorted(keyed.rows("SELECT Id, S FROM U"))
    assert keyed.run("INSERT INTO K (S) VALUES ('x') THEN RETURN Id, S").rows == [["7", "x"]]
    assert keyed.run("INSERT OR IGNORE INTO K (S) VALUES ('y')").count == 0
    assert keyed.run("INSERT OR UPDATE INTO K (S) VALUES ('z') THEN RETURN S").rows == [["z"]]
    with pytest.raises(SpannerError, match=r"second time for key: \[7\]"):
        keyed.run("INSERT OR UPDATE INTO K (S) VALUES ('a'), ('b')")
    assert keyed.rows("SELECT Id, S FROM K") == [["7", "z"]]


def test_a_generated_key_is_known_as_well(keyed) -> None:
    returned = keyed.run("INSERT INTO G (Id, S) VALUES (1, 'x') THEN RETURN Twice, S").rows
    assert returned == [["2", "x"]]
    assert keyed.run("INSERT OR IGNORE INTO G (Id, S) VALUES (1, 'y'), (2, 'y')").count == 1
    updated = keyed.run("INSERT OR UPDATE INTO G (Id, S) VALUES (1, 'z') THEN RETURN S")
    assert updated.rows == [["z"]]
    assert keyed.run("DELETE FROM G WHERE Id = 1 THEN RETURN Twice").rows == [["2"]]


def test_a_row_whose_key_awaits_its_commit_can_be_returned_but_for_that(keyed) -> None:
    insert = "INSERT INTO L (Id, Moment) VALUES (1, PENDING_COMMIT_TIMESTAMP()) THEN RETURN"
    assert keyed.run(f"{insert} Id").rows == [["1"]]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO K (Id) VALUES (50) THEN RETURN 1 / (Id - 50)", Code.OUT_OF_RANGE),
        ("INSERT INTO K (Id) VALUES (50), (50) THEN RETURN Id", Code.ALREADY_EXISTS),
        ("INSERT INTO K (Id) VALUES (50), (1)", Code.ALREADY_EXISTS),
        (
            "INSERT INTO T (Id, Ts) VALUES (50, PENDING_COMMIT_TIMESTAMP()) THEN RETURN Ts",
            Code.FAILED_PRECONDITION,
        ),
    ],
)
def test_what_is_refused_or_cannot_be_returned_is_not_written(keyed, sql: str, code: Code) -> None:
    inside = keyed.database.begin()
    keyed.run("INSERT INTO K (Id) VALUES (1)", transaction=inside)
    with pytest.raises(SpannerError) as caught:
        keyed.run(sql, transaction=inside)
    keyed.database.commit(inside, [], now_us=NOW_US)
    assert caught.value.code is code
    assert keyed.rows("SELECT Id FROM K") == [["1"]]
    assert keyed.rows("SELECT Id FROM T WHERE Id = 50") == []


def test_what_is_returned_may_ask_other_tables(keyed) -> None:
    sql = "INSERT INTO K (Id) VALUES (@id) THEN RETURN Id, (SELECT COUNT(*) FROM C) AS n"
    asked: list[tuple[str, str]] = []

    done = keyed.run(sql, id="5", check=lambda *one: asked.append(one))
    assert done.rows == [["5", "3"]]
    assert asked == [("K", "INSERT"), ("C", "SELECT"), ("K", "SELECT")]

    keyed.database.apply_ddl(["DROP TABLE C"], now_us=NOW_US)
    with pytest.raises(SpannerError, match="Table not found: C"):
        keyed.run(sql, id="6")


def test_a_row_that_an_insert_ignores_must_still_be_there_at_the_commit(world) -> None:
    inside = world.database.begin()
    world.run("INSERT OR IGNORE INTO T (Id, S) VALUES (2, 'q')", transaction=inside)
    world.run("DELETE FROM T WHERE Id = 2")
    with pytest.raises(SpannerError) as caught:
        world.database.commit(inside, [], now_us=NOW_US)
    assert caught.value.code is Code.ABORTED
