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
        ("SELECT LEFT('abc', 2), RIGHT('abc', 2)", ["ab", "bc"]),
        ("SELECT ARRAY_AGG(F ORDER BY F) FROM T", [[None, -0.5, 1.5]]),
        ("SELECT COUNT(*) FROM (SELECT 1 AS x UNION ALL SELECT 2) WHERE x IN UNNEST(@list)", ["1"]),
        ("SELECT @list", [[2.0]]),
        ("SELECT @empty", [[]]),
        ("SELECT TO_BASE64(b'ab'), TO_HEX(b'ab'), TO_HEX(SHA256('')) LIKE 'e3b0c4%'",
         ["YWI=", "6162", True]),
        ("SELECT STRING_AGG(K, '-' ORDER BY K DESC), STRING_AGG(DISTINCT K ORDER BY K) FROM C",
         ["b-a-a", "a,b"]),
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
        ("SELECT 1.0 = ANY(ARRAY[1.00]), 1.0 IN (2, 1.00)", [True, True]),
        ("SELECT 1.0 IN (SELECT 1.00), 2.0 IN (SELECT n FROM t)", [True, None]),
        ("SELECT CASE n WHEN 1.25 THEN 'same' END FROM t WHERE id = 1", ["same"]),
        ("SELECT array_agg(n ORDER BY n DESC) FROM t", [[None, "1.250", "-3"]]),
        ("SELECT left('abc', -1), substr('abcdef', -1, 4), 7 % 3", ["ab", "ab", "1"]),
        ("SELECT ai[1 + 1], ai[id], ai[$1], ai[0] FROM t WHERE id = 1", ["2", "1", "2", None]),
        ("SELECT j -> s, j ->> 'z', j -> 'a' -> -1 FROM t WHERE id = 1", ["[1, 2]", "1", "2"]),
        ("SELECT 'abc'::bytea::text, avg(id), -n FROM t WHERE id = 1 GROUP BY n",
         ["\\x616263", "1.00000000000000000000", "-1.250"]),
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


UNSUPPORTED = [
    ("SELECT nofunc(1)", "the function NOFUNC"),
    ("SELECT x.f(1)", "the function x.f"),
    ("SELECT SAFE.LENGTH('a')", "SAFE before them"),
    ("SELECT 1 << 2", "BITWISELEFTSHIFT"),
    ("SELECT * FROM T PIVOT (COUNT(*) FOR S IN ('a'))", "PIVOTS in FROM"),
    ("SELECT * FROM T TABLESAMPLE RESERVOIR (1 ROWS)", "SAMPLE in FROM"),
    ("SELECT * FROM T NATURAL JOIN C", "METHOD in a join"),
    ("SELECT * FROM (T JOIN C USING (Id))", "in FROM"),
    ("SELECT * FROM generate_series(1, 2)", "the function generate_series in FROM"),
    ("SELECT x FROM UNNEST([1], [2]) AS x", "UNNEST of several arrays"),
    ("SELECT LENGTH(INTERVAL 1 DAY)", "INTERVAL values"),
    ("SELECT TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL '1:2' HOUR TO MINUTE)", "INTERVAL values"),
    ("SELECT Id FROM T GROUP BY ROLLUP (Id)", "ROLLUP expressions"),
    ("SELECT JSON '[1]'[0]", "a JSON literal with something right behind it"),
    ("SELECT COUNT(*) OVER () FROM T", "window functions"),
    ("SELECT ARRAY_AGG(S IGNORE NULLS) FROM T", "IGNORENULLS"),
    ("SELECT T.* EXCEPT (J) FROM T", "EXCEPT or REPLACE"),
    ("SELECT AS VALUE 1", "SELECT AS VALUE"),
    ("SELECT Id FROM T QUALIFY TRUE", "QUALIFY in a query"),
    ("SELECT Id FROM T ORDER BY S NULLS LAST", "NULLS FIRST"),
    ("WITH x(a) AS (SELECT 1) SELECT a FROM x", "column names"),
    ("WITH RECURSIVE x AS (SELECT 1) SELECT * FROM x", "WITH RECURSIVE"),
    ("MERGE INTO T USING C ON TRUE WHEN MATCHED THEN DELETE", "MERGE"),
    ("GRAPH G MATCH (n) RETURN n", "GRAPH"),
]
POSTGRES_UNSUPPORTED = [
    ("SELECT id FROM t WHERE id < ANY(ARRAY[1])", "< ANY and ALL"),
    ("SELECT id FROM t WHERE id BETWEEN SYMMETRIC 3 AND 1", "SYMMETRIC in BETWEEN"),
    ("SELECT id FROM t WHERE s ILIKE 'a'", "ILIKE"),
    ("SELECT DISTINCT ON (s) id FROM t", "DISTINCT ON"),
    ("SELECT * FROM t LEFT JOIN LATERAL (SELECT 1) x ON true", "LATERAL"),
    ("SELECT x.q FROM (SELECT 1) AS x(q)", "column names of an alias"),
    ("SELECT id FROM t FETCH FIRST 1 ROWS WITH TIES", "FETCH"),
    ("SELECT 1::money", "the type MONEY"),
]


@pytest.mark.parametrize(
    ("world", "sql", "name"),
    [
        *(("shared_world", *one) for one in UNSUPPORTED),
        *(("shared_pg_world", *one) for one in POSTGRES_UNSUPPORTED),
    ],
)
def test_what_is_not_there_is_named(request: Any, world: str, sql: str, name: str) -> None:
    with pytest.raises(SpannerError, match=name) as caught:
        request.getfixturevalue(world).run(sql)
    assert caught.value.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT id FROM t a JOIN c b ON a.id = b.id", Code.INVALID_ARGUMENT, "is ambiguous"),
        ("SELECT j = j FROM t", Code.INVALID_ARGUMENT, "not defined for arguments of type jsonb"),
        ("SELECT - s FROM t", Code.NOT_FOUND, "operator does not exist"),
        ("SELECT abs(s) FROM t", Code.NOT_FOUND, "function does not exist"),
        ("INSERT INTO t (id, b) VALUES (1, 5)", Code.INVALID_ARGUMENT, "cannot be assigned to b"),
        ("INSERT INTO t (id) SELECT 1, 2", Code.INVALID_ARGUMENT, "wrong column count"),
        ("UPDATE t SET s = 'a', s = 'b'", Code.INVALID_ARGUMENT, "more than once"),
        ('UPDATE t SET "S" = NULL', Code.INVALID_ARGUMENT, 'column "S" of relation "t"'),
    ],
)
def test_mistakes_in_postgresql(shared_pg_world: Any, sql, code, message) -> None:
    with pytest.raises(SpannerError, match=message) as caught:
        shared_pg_world.run(sql)
    assert caught.value.code is code
