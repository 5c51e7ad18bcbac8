"""What the engine promises beyond single statements: parameters, caching, privileges, time."""

from __future__ import annotations

from pathlib import Path

import pytest

from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.duck import Duck
from spanner_simulator.sql.parameter import Parameter
from unit.sql.conftest import NOW_US

INT64, STRING = ValueType("INT64"), ValueType("STRING")


def test_parameters_take_the_type_of_what_they_meet(world) -> None:
    assert world.rows("SELECT S FROM T WHERE Id = @key", key="3") == [["c"]]
    assert world.rows("SELECT Id FROM T WHERE S = @s", s="a") == [["1"]]
    assert world.rows("SELECT Id FROM T WHERE Id IN UNNEST(@l) ORDER BY Id", l=["1", "3"]) == [
        ["1"],
        ["3"],
    ]
    assert world.rows("SELECT Id FROM T WHERE D > @d", d="2020-01-01") == [["1"]]
    assert world.rows("SELECT Id FROM T WHERE Ts >= @t", t="2024-01-02T03:04:05.123456789Z") == [
        ["1"]
    ]
    assert world.rows("SELECT Id FROM T ORDER BY Id LIMIT @n OFFSET @o", n="1", o="1") == [["2"]]


def test_declared_types_hold_and_untyped_ones_default_by_their_form(world) -> None:
    answer = world.run("SELECT @a, @b, @c, @d", a=Parameter("1", INT64), b="x", c=True, d=1.5)

    assert answer.columns == [("", "INT64"), ("", "STRING"), ("", "BOOL"), ("", "FLOAT64")]
    assert answer.rows == [["1", "x", True, 1.5]]


def test_null_missing_unused_and_malformed_parameters(world) -> None:
    assert world.rows("SELECT Id FROM T WHERE Id = @k", k=Parameter(None, INT64)) == []
    assert world.rows("SELECT @k IS NULL", k=None) == [[True]]
    assert world.rows("SELECT 1", unused="x") == [["1"]]
    with pytest.raises(SpannerError, match="No parameter found for binding: q") as missing:
        world.run("SELECT Id FROM T WHERE Id = @q")
    assert missing.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(SpannerError, match="bind parameter k") as malformed:
        world.run("SELECT Id FROM T WHERE Id = @k", k=Parameter("x", INT64))
    assert malformed.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(SpannerError, match="LIMIT must not be negative"):
        world.run("SELECT Id FROM T LIMIT @n", n="-1")


def test_a_struct_parameter(world) -> None:
    kind = ValueType("STRUCT", fields=(("a", INT64), ("b", STRING)))

    assert world.rows("SELECT @s.b, @s.a + 1", s=Parameter(["1", "x"], kind)) == [["x", "2"]]


def test_the_types_of_undeclared_parameters_are_found_without_values(world) -> None:
    statement = world.engine.prepare("SELECT S FROM T WHERE Id = @k AND Ts < @t LIMIT @n")

    assert world.engine.parameter_types(statement, {}) == {
        "k": INT64,
        "t": ValueType("TIMESTAMP"),
        "n": INT64,
    }
    assert [name for name, _ in world.engine.columns(statement, {})] == ["S"]


def test_a_cached_statement_follows_the_schema(world) -> None:
    assert len(world.run("SELECT * FROM C").columns) == 4
    world.database.apply_ddl(["ALTER TABLE C ADD COLUMN X INT64"], now_us=NOW_US)

    assert len(world.run("SELECT * FROM C").columns) == 5


def test_one_statement_with_parameters_of_different_types(world) -> None:
    sql = "SELECT @p"

    assert world.run(sql, p=Parameter("1", INT64)).columns == [("", "INT64")]
    assert world.run(sql, p=Parameter("1", STRING)).columns == [("", "STRING")]


def test_privileges_are_asked_for_each_table(world) -> None:
    asked: list[tuple[str, str]] = []

    def check(table: str, privilege: str) -> None:
        asked.append((table, privilege))

    world.run("SELECT 1 FROM T, information_schema.tables", check=check)
    world.run("UPDATE C SET V = 1 WHERE Id = 1 THEN RETURN V", check=check)

    assert asked == [("T", "SELECT"), ("C", "UPDATE"), ("C", "SELECT")]


def test_the_time_is_the_caller_s(world) -> None:
    assert world.rows("SELECT UNIX_MICROS(CURRENT_TIMESTAMP()), CURRENT_DATE('UTC')") == [
        [str(NOW_US), "2025-06-15"]
    ]


def test_reads_in_the_past_and_inside_a_transaction(world) -> None:
    inside = world.database.begin()
    world.run("UPDATE T SET S = 'new' WHERE Id = 1", transaction=inside)

    assert world.rows("SELECT S FROM T WHERE Id = 1") == [["a"]]
    assert world.run("SELECT S FROM T WHERE Id = 1", transaction=inside).rows == [["new"]]
    assert world.run("SELECT S || '!' FROM T WHERE Id = 1", transaction=inside).rows == [["new!"]]


def test_a_commit_timestamp_cannot_be_read_before_its_commit(world) -> None:
    inside = world.database.begin()
    world.run("UPDATE T SET Ts = PENDING_COMMIT_TIMESTAMP() WHERE Id = 1", transaction=inside)

    assert world.run("SELECT S FROM T WHERE Id = 1", transaction=inside).rows == [["a"]]
    with pytest.raises(SpannerError):
        world.run("SELECT Ts FROM T WHERE Id = 1", transaction=inside)


def test_dml_is_no_query(world) -> None:
    statement = world.engine.prepare("DELETE FROM T WHERE TRUE")
    with pytest.raises(SpannerError, match="DML statements can only be performed"):
        world.engine.query(statement, {}, transaction=None, read_us=None, now_us=NOW_US)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("s IS NOT NULL", ["1", "3"]),
        ("s IS NULL", ["2"]),
        ("id NOT IN (1, 2)", ["3"]),
        ("id NOT BETWEEN 1 AND 2", ["3"]),
        ("s NOT LIKE 'a%'", ["3"]),
        ("b IS NOT TRUE", ["2", "3"]),
        ("b IS NOT FALSE", ["1", "2"]),
        ("id NOT IN (SELECT id FROM c)", ["2"]),
        ("NOT EXISTS (SELECT 1 FROM c WHERE c.id = t.id)", ["2"]),
    ],
)
def test_negations_mean_the_same_in_both_dialects(
    shared_world, shared_pg_world, where: str, ids: list[str]
) -> None:
    sql = f"SELECT id FROM t WHERE {where} ORDER BY id"

    assert shared_world.rows(sql) == [[one] for one in ids]
    assert shared_pg_world.rows(sql) == [[one] for one in ids]


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT * FROM read_csv('/etc/passwd')", Code.UNIMPLEMENTED),
        ("SELECT * FROM '/etc/passwd'", Code.INVALID_ARGUMENT),
        ("SELECT read_text('/etc/passwd')", Code.UNIMPLEMENTED),
        ("ATTACH 'x' AS y", Code.INVALID_ARGUMENT),
        ("COPY T TO 'x'", Code.INVALID_ARGUMENT),
        ("PRAGMA version", Code.INVALID_ARGUMENT),
        ("SELECT * FROM duckdb_settings()", Code.UNIMPLEMENTED),
        ("SELECT * FROM pg_catalog.pg_class", Code.INVALID_ARGUMENT),
        ("SELECT * FROM SPANNER_SYS.QUERY_STATS_TOP_MINUTE", Code.INVALID_ARGUMENT),
        ("CREATE TABLE X (Id INT64) PRIMARY KEY (Id)", Code.UNIMPLEMENTED),
        ("", Code.INVALID_ARGUMENT),
        (";", Code.INVALID_ARGUMENT),
        ("SELECT ((((", Code.INVALID_ARGUMENT),
        ("SELECT \x00", Code.INVALID_ARGUMENT),
        ("SELECT 1 AS a FROM T GROUP BY b.c.d", Code.INVALID_ARGUMENT),
    ],
)
def test_what_is_refused_is_refused_in_spanner_s_words(shared_world, sql: str, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        shared_world.run(sql)

    assert caught.value.code is code
    assert "duckdb" not in caught.value.message.lower() or "duckdb" in sql


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT '$now_ns' || S FROM T WHERE Id = 1", [["$now_nsa"]]),
        ("SELECT '$p_a' || S AS `$p_a` FROM T WHERE Id = 1 ORDER BY @a", [["$p_aa"]]),
        ("SELECT @ab || S FROM T WHERE Id = 1 ORDER BY @a", [["xa"]]),
        ("SELECT S || @été FROM T WHERE Id = 1", [["az"]]),
        ("SELECT CAST(@ab AS STRING(1)) || CAST(@long AS STRING(2))", [["xlo"]]),
    ],
)
def test_only_parameters_that_are_asked_for_reach_duckdb(world, sql, rows) -> None:
    assert world.rows(sql, a="1", ab="x", été="z", long="long") == rows


DEEP = 2000


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "+".join(["1"] * DEEP),
        "SELECT " + "(" * DEEP + "1" + ")" * DEEP,
        "SELECT " + "||".join(["S"] * DEEP) + " FROM T",
        " UNION ALL ".join(["SELECT 1"] * DEEP),
        "UPDATE T SET F = " + "+".join(["1"] * DEEP) + " WHERE Id = 1",
    ],
    ids=["sum", "parentheses", "texts", "union", "update"],
)
def test_what_is_nested_too_deeply_is_refused_and_nothing_breaks(world, sql: str) -> None:
    with pytest.raises(SpannerError, match="nested so deeply") as caught:
        world.run(sql)
    assert caught.value.code is Code.UNIMPLEMENTED
    assert world.rows("SELECT " + "+".join(["1"] * 100)) == [["100"]]


def test_a_long_list_is_not_deep(world) -> None:
    conditions = " OR ".join(f"Id = {number}" for number in range(DEEP))
    assert len(world.rows(f"SELECT Id FROM T WHERE {conditions}")) == 3


def test_queries_need_no_working_directory(tmp_path: Path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    duck = Duck()

    assert duck.run("SELECT 1 + 1", {}, {}) == [(2,)]
    duck.close()


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT Id, UPPER(S) AS C FROM T t WHERE t.Id > @p AND Id IN UNNEST(@q)", None),
        ("SELECT * FROM T@{FORCE_INDEX=TByS}", None),
        ("SELECT 1", None),
        ("SELECT Id FROM T ORDER BY Id", "ORDER BY"),
        ("SELECT DISTINCT Id FROM T", "DISTINCT"),
        ("SELECT MAX(Id) + 1 FROM T", "an aggregate function"),
        ("SELECT x.Id FROM T x, T y", "a join"),
        ("SELECT ARRAY(SELECT Id FROM T) FROM T", "a subquery"),
        ("SELECT x FROM UNNEST([1, 2]) AS x", "no table in FROM"),
        ("SELECT Id FROM T UNION ALL SELECT Id FROM T", "no single SELECT"),
        ("WITH x AS (SELECT 1 AS y) SELECT y FROM x", "WITH"),
    ],
)
def test_what_looks_at_several_rows_at_once_has_no_shares(shared_world, sql, reason) -> None:
    engine = shared_world.engine
    if reason is None:
        engine.check_partitionable(engine.prepare(sql))
        return
    with pytest.raises(SpannerError, match=reason) as caught:
        engine.check_partitionable(engine.prepare(sql))
    assert caught.value.code is Code.INVALID_ARGUMENT
