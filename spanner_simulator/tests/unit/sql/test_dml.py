"""INSERT, UPDATE and DELETE of both dialects, and what they return."""

from __future__ import annotations

import pytest

from spanner_simulator.errors import Code, SpannerError
from unit.sql.conftest import NOW_US


def test_inserts_with_defaults_generated_columns_and_the_commit_timestamp(world) -> None:
    done = world.run("INSERT INTO C (Id, K) VALUES (2, 'x'), (2, 'y') THEN RETURN K, V, G")
    assert (done.count, done.rows) == (2, [["x", "7", "14"], ["y", "7", "14"]])

    world.run("INSERT T (Id, S, Ts) VALUES (9, DEFAULT, PENDING_COMMIT_TIMESTAMP())")
    ((written,),) = world.rows("SELECT Ts FROM T WHERE Id = 9")
    assert str(written).startswith("2025-06-15T")


def test_insert_or_ignore_and_insert_or_update(world) -> None:
    ignored = world.run(
        "INSERT OR IGNORE INTO T (Id, S) VALUES (1, 'q'), (10, 'n'), (10, 'm') THEN RETURN Id"
    )
    assert (ignored.count, ignored.rows) == (1, [["10"]])

    updated = world.run(
        "INSERT OR UPDATE INTO T (Id, S) VALUES (1, 'q'), (11, 'r') THEN RETURN Id, S"
    )
    assert updated.columns == [("Id", "INT64"), ("S", "STRING")]
    assert updated.rows == [["1", "q"], ["11", "r"]]
    assert world.rows("SELECT F FROM T WHERE Id = 1") == [[1.5]]


@pytest.mark.parametrize("returning", ["", " THEN RETURN Id"])
def test_an_insert_that_may_update_meets_each_row_once(world, returning: str) -> None:
    twice = f"INSERT OR UPDATE INTO T (Id, S) VALUES (1, 'q'), (1, 'r'){returning}"
    with pytest.raises(
        SpannerError, match=r"Cannot affect a row second time for key: \[1\]"
    ) as told:
        world.run(twice)

    assert told.value.code is Code.INVALID_ARGUMENT
    assert world.rows("SELECT S FROM T WHERE Id = 1") == [["a"]]


def test_insert_select_reads_its_own_transaction(world) -> None:
    inside = world.database.begin()
    world.run("INSERT INTO T (Id, S) VALUES (20, 'w')", transaction=inside)
    done = world.run(
        "INSERT INTO T (Id, S, A) SELECT Id + 100, UPPER(S), ['k'] FROM T WHERE Id >= 20 "
        "THEN RETURN Id, S, A",
        transaction=inside,
    )

    assert done.rows == [["120", "W", ["k"]]]


def test_update_writes_what_it_sets_and_nothing_else(world) -> None:
    done = world.run(
        "UPDATE T t SET t.S = (SELECT MAX(K) FROM C WHERE C.Id = t.Id), N = NULL WHERE t.Id < 3"
    )

    assert done.count == 2
    assert world.rows("SELECT S, N, F FROM T WHERE Id < 3 ORDER BY Id") == [
        ["b", None, 1.5],
        [None, None, None],
    ]


def test_update_with_parameters_and_a_condition_on_the_old_value(world) -> None:
    sql = "UPDATE C SET V = @new WHERE Id = @id AND K = @k AND V = @old"

    assert world.run(sql, new="11", id="1", k="a", old="10").count == 1
    assert world.run(sql, new="12", id="1", k="a", old="10").count == 0
    assert world.rows("SELECT V, G FROM C WHERE Id = 1 AND K = 'a'") == [["11", "22"]]


def test_delete_returns_the_rows_as_they_were_and_cascades(world) -> None:
    done = world.run("DELETE FROM T WHERE Id IN (1, 2) THEN RETURN Id, S")

    assert (done.count, done.rows) == (2, [["1", "a"], ["2", None]])
    assert world.rows("SELECT Id FROM C") == [["3"]]


def test_a_refused_statement_has_no_effect(world) -> None:
    inside = world.database.begin()
    with pytest.raises(SpannerError) as caught:
        world.run("INSERT INTO T (Id) VALUES (50), (1)", transaction=inside)
    assert caught.value.code is Code.ALREADY_EXISTS

    assert world.run("SELECT Id FROM T WHERE Id = 50", transaction=inside).rows == []


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("INSERT INTO T VALUES (13)", "INVALID_ARGUMENT", "INSERT must specify a column list"),
        ("INSERT INTO T (Id, S) VALUES (16)", "INVALID_ARGUMENT", "Has 1, expected 2"),
        ("INSERT INTO T (Id, Id) VALUES (1, 2)", "INVALID_ARGUMENT", "duplicate name: Id"),
        ("INSERT INTO T (Id, Q) VALUES (1, 2)", "INVALID_ARGUMENT", "Column Q is not present"),
        ("INSERT INTO Q (Id) VALUES (1)", "INVALID_ARGUMENT", "Table not found: Q"),
        ("INSERT INTO C (Id, K, G) VALUES (1, 'z', 1)", "INVALID_ARGUMENT", "non-writable"),
        ("INSERT INTO T (Id) VALUES (NULL)", "FAILED_PRECONDITION", "null value"),
        ("UPDATE T SET S = 'u'", "INVALID_ARGUMENT", "UPDATE must have a WHERE clause"),
        ("UPDATE T SET Id = 9 WHERE Id = 1", "INVALID_ARGUMENT", "primary key column"),
        ("UPDATE T SET S = 1 WHERE Id = 1", "INVALID_ARGUMENT", "cannot be assigned to S"),
        ("UPDATE T SET Q = 1 WHERE Id = 1", "INVALID_ARGUMENT", "Unrecognized name: Q"),
        ("UPDATE T SET S='a', S='b' WHERE Id = 1", "INVALID_ARGUMENT", "more than once"),
        ("UPDATE C SET G = 1 WHERE Id = 1", "INVALID_ARGUMENT", "non-writable column: G"),
        (
            "UPDATE T SET D = PENDING_COMMIT_TIMESTAMP() WHERE Id = 1",
            "INVALID_ARGUMENT",
            "TIMESTAMP cannot be assigned to D",
        ),
        ("DELETE FROM T WHERE Id = 1 THEN RETURN WITH ACTION Id", "UNIMPLEMENTED", "WITH ACTION"),
        ("UPDATE T SET S = 'x' FROM C WHERE TRUE", "UNIMPLEMENTED", "FROM in UPDATE"),
        ("WITH x AS (SELECT 1) DELETE FROM T WHERE TRUE", "UNIMPLEMENTED", "WITH in DELETE"),
        ("DELETE FROM T", "INVALID_ARGUMENT", "DELETE must have a WHERE clause"),
        ("DELETE FROM T WHERE COUNT(*) = 1", "INVALID_ARGUMENT", "not allowed in WHERE"),
    ],
)
def test_refusals(world, sql: str, code: str, message: str) -> None:
    with pytest.raises(SpannerError, match=message) as caught:
        world.run(sql)

    assert caught.value.code.name == code


def test_postgres_upserts_and_returning(pg_world) -> None:
    run = pg_world.run
    kept = run("INSERT INTO t (id, s) VALUES (1, 'q') ON CONFLICT (id) DO NOTHING RETURNING id")
    assert (kept.count, kept.rows) == (0, [])
    changed = run(
        "INSERT INTO t (id, s) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE "
        "SET id = excluded.id, s = excluded.s RETURNING id, s || '!' AS loud",
        p1="1",
        p2="q",
    )
    assert (changed.columns, changed.rows) == ([("id", "INT64"), ("loud", "STRING")], [["1", "q!"]])
    assert run("INSERT INTO t VALUES (11)").count == 1
    assert run("UPDATE t SET s = 'b' WHERE id = 11 RETURNING *").rows[0][:2] == ["11", "b"]
    assert run("DELETE FROM t WHERE id = ANY(ARRAY[11, 12]) RETURNING id").rows == [["11"]]


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        (
            "INSERT INTO t (id, s) VALUES (1, 'q') ON CONFLICT DO NOTHING",
            "INVALID_ARGUMENT",
            "ON CONFLICT target must list all key columns",
        ),
        (
            "INSERT INTO t (id, s) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET s = excluded.s",
            "UNIMPLEMENTED",
            "SET without id",
        ),
        (
            "INSERT INTO t (id, s) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET s = 'z'",
            "UNIMPLEMENTED",
            "SET s to anything but excluded.s",
        ),
        (
            "INSERT INTO t (id) VALUES (1) ON CONFLICT ON CONSTRAINT x DO NOTHING",
            "UNIMPLEMENTED",
            "ON CONFLICT ON",
        ),
        ("INSERT INTO t DEFAULT VALUES", "UNIMPLEMENTED", "DEFAULT in INSERT"),
        ("DELETE FROM t USING c WHERE true", "UNIMPLEMENTED", "USING in DELETE"),
        ("UPDATE t SET (s, b) = ('x', true)", "UNIMPLEMENTED", "this form of SET"),
        ("INSERT INTO nope (id) VALUES (1)", "NOT_FOUND", 'relation "nope" does not exist'),
        ("INSERT INTO t (nope) VALUES (1)", "INVALID_ARGUMENT", 'of relation "t" does not exist'),
    ],
)
def test_postgres_refusals(pg_world, sql: str, code: str, message: str) -> None:
    with pytest.raises(SpannerError, match=message) as caught:
        pg_world.run(sql)

    assert caught.value.code.name == code


@pytest.mark.parametrize(
    ("sql", "parameters", "expected"),
    [
        ("INSERT INTO C (Id, K, V) VALUES (2, CAST('abc' AS STRING(2)), @v)", {"v": "3"}, "ab"),
        ("INSERT INTO C (Id, K, V) VALUES (2, @k, 3)", {"k": "ab"}, "ab"),
        ("INSERT INTO C (Id, K, V) VALUES (2, CONCAT('a', 'b'), 3)", {}, "ab"),
    ],
)
def test_constants_need_no_computing_and_come_out_the_same(
    world, sql, parameters, expected
) -> None:
    world.run(sql, **parameters)
    assert world.rows("SELECT K, V FROM C WHERE Id = 2") == [[expected, "3"]]

    world.run("UPDATE C SET V = @v WHERE Id = 2 AND K = @k", v=None, k=expected)
    assert world.rows("SELECT V FROM C WHERE Id = 2") == [[None]]
    assert world.run("DELETE FROM C WHERE Id = 2 AND K = @k", k=expected).count == 1


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
    assert keyed.run("INSERT OR IGNORE INTO K (S) VALUES ('y') THEN RETURN Id").rows == []
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
    with pytest.raises(SpannerError, match="pending commit timestamp"):
        keyed.run(f"{insert} Moment")


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("INSERT INTO K (Id) VALUES (50) THEN RETURN 1 / (Id - 50)", Code.OUT_OF_RANGE),
        ("INSERT INTO K (Id) VALUES (50), (50) THEN RETURN Id", Code.ALREADY_EXISTS),
        (
            "INSERT INTO T (Id, Ts) VALUES (50, PENDING_COMMIT_TIMESTAMP()) THEN RETURN Ts",
            Code.FAILED_PRECONDITION,
        ),
    ],
)
def test_what_cannot_be_returned_is_not_written(keyed, sql: str, code: Code) -> None:
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


def test_a_row_that_an_insert_ignores_must_still_be_there_at_the_commit(keyed) -> None:
    inside = keyed.database.begin()
    keyed.run("INSERT OR IGNORE INTO T (Id, S) VALUES (2, 'q')", transaction=inside)
    keyed.run("DELETE FROM T WHERE Id = 2")

    with pytest.raises(SpannerError) as caught:
        keyed.database.commit(inside, [], now_us=NOW_US)
    assert caught.value.code is Code.ABORTED


def test_a_text_that_is_too_long_is_too_long_for_its_column(world) -> None:
    with pytest.raises(SpannerError, match=r"size limit for this column: C\.K") as caught:
        world.run("INSERT INTO C (Id, K) VALUES (1, @k)", k="x" * 21)
    assert caught.value.code is Code.FAILED_PRECONDITION
