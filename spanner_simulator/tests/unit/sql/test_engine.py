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


def test_declared_types_hold_and_untyped_ones_default_by_their_form(shared_world) -> None:
    kind = ValueType("STRUCT", fields=(("x", INT64), ("y", STRING)))
    listed = ValueType("ARRAY", INT64)
    answer = shared_world.run(
        "SELECT @a, @b, @c, @d, @e, @f, @s.y, @s.x + 1, 2 IN UNNEST(@l), 1 = @n",
        a=Parameter("1", INT64), b="x", c=True, d=1.5, e=[2.0], f=[],
        s=Parameter(["1", "z"], kind), l=Parameter(["2"], listed), n=Parameter(None, INT64),
    )  # fmt: skip
    assert [kind for _, kind in answer.columns[:4]] == ["INT64", "STRING", "BOOL", "FLOAT64"]
    assert answer.rows == [["1", "x", True, 1.5, [2.0], [], "z", "2", True, None]]


@pytest.mark.parametrize(
    ("sql", "parameter", "message"),
    [
        ("SELECT Id FROM T WHERE Id = @q", None, "No parameter found for binding: q"),
        ("SELECT Id FROM T WHERE Id = @k", Parameter("x", INT64), "bind parameter k"),
        ("SELECT Id FROM T LIMIT @k", "-1", "LIMIT must not be negative"),
    ],
)
def test_parameters_that_are_refused(shared_world, sql, parameter, message) -> None:
    with pytest.raises(SpannerError, match=message):
        shared_world.run(sql, k=parameter)


def test_the_types_of_undeclared_parameters_are_found_without_values(shared_world) -> None:
    engine = shared_world.engine
    statement = engine.prepare("SELECT S FROM T WHERE Id = @k AND Ts < @t LIMIT @n")
    types = {"k": INT64, "t": ValueType("TIMESTAMP"), "n": INT64}
    assert engine.parameter_types(statement, {}) == types
    assert [name for name, _ in engine.columns(statement, {})] == ["S"]


def test_a_cached_statement_follows_the_schema_and_the_types_of_its_parameters(world) -> None:
    assert world.run("SELECT @p", p=Parameter("1", INT64)).columns == [("", "INT64")]
    assert world.run("SELECT @p", p=Parameter("1", STRING)).columns == [("", "STRING")]
    assert len(world.run("SELECT * FROM C").columns) == 4
    world.database.apply_ddl(["ALTER TABLE C ADD COLUMN X INT64"], now_us=NOW_US)
    assert len(world.run("SELECT * FROM C").columns) == 5


def test_privileges_are_asked_for_each_table(world) -> None:
    asked: list[tuple[str, str]] = []

    def check(table: str, privilege: str) -> None:
        asked.append((table, privilege))

    world.run("SELECT 1 FROM T, information_schema.tables", check=check)
    world.run("UPDATE C SET V = 1 WHERE Id = 1 THEN RETURN V", check=check)
    assert asked == [("T", "SELECT"), ("C", "UPDATE"), ("C", "SELECT")]


def test_reads_inside_a_transaction_see_its_writes_but_no_pending_timestamp(world) -> None:
    inside = world.database.begin()
    update = "UPDATE T SET S = 'new', Ts = PENDING_COMMIT_TIMESTAMP() WHERE Id = 1"
    world.run(update, transaction=inside)
    assert world.rows("SELECT S FROM T WHERE Id = 1") == [["a"]]
    assert world.run("SELECT S FROM T WHERE Id = 1", transaction=inside).rows == [["new"]]
    assert world.run("SELECT S || '!' FROM T WHERE Id = 1", transaction=inside).rows == [["new!"]]
    with pytest.raises(SpannerError):
        world.run("SELECT Ts FROM T WHERE Id = 1", transaction=inside)


def test_dml_is_no_query(world) -> None:
    statement = world.engine.prepare("DELETE FROM T WHERE TRUE")
    with pytest.raises(SpannerError, match="DML statements can only be performed"):
        world.engine.query(statement, {}, transaction=None, read_us=None, now_us=NOW_US)


DEEP = 2000


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT " + "(" * DEEP + "1" + ")" * DEEP,
        " UNION ALL ".join(["SELECT 1"] * DEEP),
        "UPDATE T SET F = " + "+".join(["1"] * DEEP) + " WHERE Id = 1",
    ],
    ids=["parentheses", "union", "update"],
)
def test_what_is_nested_too_deeply_is_refused_and_nothing_breaks(world, sql: str) -> None:
    with pytest.raises(SpannerError, match="nested so deeply") as caught:
        world.run(sql)
    assert caught.value.code is Code.UNIMPLEMENTED
    conditions = " OR ".join(f"Id = {number}" for number in range(DEEP))
    assert len(world.rows(f"SELECT Id FROM T WHERE {conditions}")) == 3


def test_queries_need_no_working_directory(tmp_path: Path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert Duck().run("SELECT 1 + 1", {}, {}) == [(2,)]


@pytest.mark.parametrize(
    "sql", ["SELECT Id, UPPER(S) AS C FROM T t WHERE t.Id IN UNNEST(@q)", "SELECT * FROM T@{x=1}"]
)
def test_a_query_row_by_row_has_shares(shared_world, sql: str) -> None:
    shared_world.engine.check_partitionable(shared_world.engine.prepare(sql))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT Id FROM T ORDER BY Id", "ORDER BY"),
        ("SELECT MAX(Id) + 1 FROM T", "an aggregate function"),
        ("SELECT x.Id FROM T x, T y", "a join"),
        ("SELECT ARRAY(SELECT Id FROM T) FROM T", "a subquery"),
        ("SELECT x FROM UNNEST([1, 2]) AS x", "no table in FROM"),
        ("SELECT Id FROM T UNION ALL SELECT Id FROM T", "no single SELECT"),
    ],
)
def test_what_looks_at_several_rows_at_once_has_none(shared_world, sql: str, reason: str) -> None:
    with pytest.raises(SpannerError, match=reason):
        shared_world.engine.check_partitionable(shared_world.engine.prepare(sql))
