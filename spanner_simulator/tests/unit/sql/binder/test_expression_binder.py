"""What Google's emulator refuses or cannot do: the answers are the dialects' own."""

from __future__ import annotations

from typing import Any

import pytest

from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.parameter import Parameter


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("SELECT LEFT('abc', 2), RIGHT('abc', 2), INSTR('abcb', 'b', -1)", ["ab", "bc", "4"]),
        ("SELECT 1 IS DISTINCT FROM NULL, NULL IS NOT DISTINCT FROM NULL", [True, True]),
        ("SELECT CAST('nan' AS FLOAT64) IS NOT DISTINCT FROM CAST('nan' AS FLOAT64)", [True]),
        ("SELECT ARRAY_AGG(K ORDER BY K DESC LIMIT 2) FROM C", [["b", "a"]]),
        ("SELECT ARRAY_AGG(F ORDER BY F) FROM T", [[None, -0.5, 1.5]]),
        ("SELECT ARRAY_AGG(K RESPECT NULLS) FROM C WHERE Id = 3", [["a"]]),
        ("SELECT TO_JSON_STRING(9007199254740993), TO_JSON_STRING(NUMERIC '1.50')",
         ['"9007199254740993"', "1.5"]),
        ("SELECT TO_JSON_STRING(TRUE), TO_JSON_STRING(DATE '2024-01-02'), TO_JSON_STRING(b'ab')",
         ["true", '"2024-01-02"', '"YWI="']),
        ("SELECT EXTRACT(WEEK(MONDAY) FROM DATE '2024-01-01')", ["1"]),
        ("SELECT DATE_TRUNC(DATE '2024-01-03', WEEK(TUESDAY))", ["2024-01-02"]),
        ("SELECT COUNT(*) FROM (SELECT 1 AS x UNION ALL SELECT 2) WHERE x IN UNNEST(@list)", ["1"]),
        ("SELECT @list", [[2.0]]),
        ("SELECT @empty", [[]]),
    ],
)  # fmt: skip
def test_google(shared_world: Any, sql: str, row: list[Any]) -> None:
    given = {"list": [2.0], "empty": []} if "x IN" not in sql else {
        "list": Parameter(["2"], ValueType("ARRAY", ValueType("INT64")))
    }  # fmt: skip
    assert shared_world.rows(sql, **given) == [row]


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("SELECT greatest(9.5, 10.5), least(n, 9.9), nullif(1.0, 1.00) FROM t WHERE id = 1",
         ["10.5", "1.250", None]),
        ("SELECT 1.0 IS DISTINCT FROM 1.00, 1.0 = ANY(ARRAY[1.00]), 1.0 IN (2, 1.00)",
         [False, True, True]),
        ("SELECT 1.0 IN (SELECT 1.00), 2.0 IN (SELECT n FROM t)", [True, None]),
        ("SELECT CASE n WHEN 1.25 THEN 'same' END FROM t WHERE id = 1", ["same"]),
        ("SELECT count(*) FILTER (WHERE id > 1), string_agg(s, ',') FILTER (WHERE id = 1) FROM t",
         ["2", "a"]),
        ("SELECT array_agg(n ORDER BY n DESC) FROM t", [[None, "1.250", "-3"]]),
        ("SELECT position('c' in 'abc'), substring('abcd' from 2 for 2), 7 % 3", ["3", "bc", "1"]),
        ("SELECT left('abc', -1), right('abc', -1), split_part('a,b', ',', 2), chr(97)",
         ["ab", "bc", "b", "a"]),
        ("SELECT ai[1 + 1], ai[id], ai[id + 1], ai[$1], ai[0] FROM t WHERE id = 1",
         ["2", "1", "2", "2", None]),
        ("SELECT j -> s, j ->> 'z', j -> 'a' -> -1 FROM t WHERE id = 1", ["[1, 2]", "1", "2"]),
        ("SELECT to_timestamp(1.5), 'abc'::bytea::text", ["1970-01-01T00:00:01.5Z", "\\x616263"]),
        ("SELECT CASE WHEN true THEN s END, CASE WHEN true THEN 1 END FROM t WHERE id = 1",
         ["a", "1"]),
        ("SELECT count(*) FROM t LIMIT NULL", ["3"]),
    ],
)  # fmt: skip
def test_postgres(shared_pg_world: Any, sql: str, row: list[Any]) -> None:
    assert shared_pg_world.rows(sql, p1="2") == [row]


def test_a_nan_among_the_keys_is_greater_than_all_in_postgresql(pg_world: Any) -> None:
    pg_world.database.apply_ddl(["CREATE TABLE f (f float8 PRIMARY KEY, s text)"], now_us=1)
    pg_world.run("INSERT INTO f (f, s) VALUES ('NaN', 'n'), (1.5, 'o'), ('-Infinity', 'm')")

    assert sorted(pg_world.rows("SELECT s FROM f WHERE f > 1")) == [["n"], ["o"]]
    assert sorted(pg_world.rows("SELECT s FROM f WHERE f < 'NaN'")) == [["m"], ["o"]]
    assert pg_world.rows("SELECT s FROM f WHERE f = 'NaN'") == [["n"]]
    assert pg_world.rows("SELECT s FROM f ORDER BY f") == [["m"], ["o"], ["n"]]


GOOGLE_UNSUPPORTED = [
    ("SELECT * FROM T PIVOT (COUNT(*) FOR S IN ('a'))", "PIVOT and UNPIVOT"),
    ("SELECT * FROM (T JOIN C USING (Id))", "parentheses around joined tables"),
    ("SELECT x FROM UNNEST([1], [2]) AS x", "UNNEST of several arrays"),
    ("SELECT TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL '1:2' HOUR TO MINUTE)", "INTERVAL values"),
    ("SELECT LENGTH(INTERVAL 1 DAY)", "INTERVAL values"),
    ("SELECT Id FROM T GROUP BY ROLLUP (Id)", "ROLLUP expressions"),
    ("SELECT TO_JSON(1, stringify_wide_numbers => TRUE)", "KWARG expressions"),
    ("SELECT JSON '[1]'[0]", "a JSON literal with something right behind it"),
    ("WITH x AS (SELECT 1) DELETE FROM T WHERE TRUE", "WITH before DML"),
    ("MERGE INTO T USING C ON TRUE WHEN MATCHED THEN DELETE", "MERGE"),
]
POSTGRES_UNSUPPORTED = [
    ("SELECT id FROM t WHERE id < ANY(ARRAY[1])", "< ANY and ALL"),
    ("SELECT id FROM t WHERE id BETWEEN SYMMETRIC 3 AND 1", "BETWEEN SYMMETRIC"),
    ("SELECT id FROM t WHERE s ILIKE 'a'", "ILIKE"),
    ("SELECT row_number() OVER () FROM t", "window functions"),
    ("SELECT j < j FROM t", "< on values of jsonb"),
    ("SELECT j = j FROM t", "= on values of jsonb"),
    ("SELECT id FROM t ORDER BY j", "ORDER BY a value of jsonb"),
    ("SELECT DISTINCT ON (s) id FROM t", "DISTINCT ON"),
    ("SELECT * FROM generate_series(1, 2)", "the function generate_series in FROM"),
    ("SELECT * FROM t LEFT JOIN LATERAL (SELECT 1) x ON true", "LATERAL"),
    ("WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x", "WITH RECURSIVE"),
    ("SELECT id FROM t LIMIT -1", "negative LIMIT"),
    ("SELECT id FROM t FETCH FIRST 1 ROWS WITH TIES", "FETCH with PERCENT or WITH TIES"),
    ("INSERT INTO t DEFAULT VALUES", "DEFAULT in INSERT"),
    ("UPDATE t SET s = 'x' FROM c", "FROM in UPDATE"),
    ("DELETE FROM t USING c WHERE true", "USING in DELETE"),
    ("UPDATE t SET (s, b) = ('x', true)", "this form of SET"),
    ("INSERT INTO t (id) VALUES (1) ON CONFLICT ON CONSTRAINT x DO NOTHING", "ON CONFLICT ON"),
]


@pytest.mark.parametrize(("sql", "name"), GOOGLE_UNSUPPORTED)
def test_what_is_not_there_is_named(shared_world: Any, sql: str, name: str) -> None:
    with pytest.raises(SpannerError, match=name) as caught:
        shared_world.run(sql)
    assert caught.value.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize(("sql", "name"), POSTGRES_UNSUPPORTED)
def test_what_is_not_there_in_postgresql_is_named(shared_pg_world: Any, sql, name) -> None:
    with pytest.raises(SpannerError, match=name) as caught:
        shared_pg_world.run(sql)
    assert caught.value.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT count(*) FROM t a, t a", Code.INVALID_ARGUMENT, "specified more than once"),
        ("SELECT 1, 2 UNION ALL SELECT 1", Code.INVALID_ARGUMENT, "same number of columns"),
        ("SELECT id FROM t a JOIN c b ON a.id = b.id", Code.INVALID_ARGUMENT, "is ambiguous"),
        ("SELECT id FROM t ORDER BY 5", Code.INVALID_ARGUMENT, "ORDER BY position 5 is not in"),
        ("SELECT id FROM t GROUP BY 5", Code.INVALID_ARGUMENT, "GROUP BY position 5 is not in"),
        ("SELECT DISTINCT s FROM t ORDER BY id", Code.INVALID_ARGUMENT, "SELECT DISTINCT"),
        ("SELECT x.a FROM (SELECT 1) x(a, b)", Code.INVALID_ARGUMENT, "more column names than"),
        ("SELECT - s FROM t", Code.NOT_FOUND, "operator does not exist"),
        ("INSERT INTO t (id, id) VALUES (1, 2)", Code.INVALID_ARGUMENT, "more than once"),
        ("INSERT INTO t (id, b) VALUES (1, 5)", Code.INVALID_ARGUMENT, "is of type boolean but"),
        ("INSERT INTO t (id) SELECT 1, 2", Code.INVALID_ARGUMENT, "more expressions than target"),
        ("UPDATE t SET s = 'a', s = 'b'", Code.INVALID_ARGUMENT, "multiple assignments"),
        ('UPDATE t SET "S" = NULL', Code.INVALID_ARGUMENT, 'column "S" of relation "t"'),
    ],
)
def test_mistakes_in_postgresql(shared_pg_world: Any, sql, code, message) -> None:
    with pytest.raises(SpannerError, match=message) as caught:
        shared_pg_world.run(sql)
    assert caught.value.code is code
