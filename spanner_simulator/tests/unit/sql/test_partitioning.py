from __future__ import annotations

import random

import pytest

from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.engine import SqlEngine


def check(sql: str, dialect="GOOGLE_STANDARD_SQL") -> None:
    database = Database("d", random.Random(1), DatabaseSettings(), dialect)
    engine = SqlEngine(database)
    engine.check_partitionable(engine.prepare(sql))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT A FROM T",
        "SELECT UPPER(B) AS C FROM T t WHERE t.A > @p AND A IN UNNEST(@q)",
        "SELECT * FROM T@{FORCE_INDEX=I}",
        "SELECT 1",
    ],
)
def test_one_table_row_by_row(sql: str) -> None:
    check(sql)


def test_the_other_dialect() -> None:
    check("SELECT a FROM t WHERE a > $1", "POSTGRESQL")
    with pytest.raises(SpannerError, match="an aggregate function"):
        check("SELECT count(*) FROM t", "POSTGRESQL")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT A FROM T ORDER BY A", "ORDER BY"),
        ("SELECT A FROM T LIMIT 1", "LIMIT"),
        ("SELECT DISTINCT A FROM T", "DISTINCT"),
        ("SELECT A FROM T GROUP BY A", "GROUP BY"),
        ("SELECT COUNT(*) FROM T", "an aggregate function"),
        ("SELECT MAX(A) + 1 FROM T", "an aggregate function"),
        ("SELECT x.A FROM T x JOIN T y USING (A)", "a join"),
        ("SELECT x.A FROM T x, T y", "a join"),
        ("SELECT A FROM T WHERE A IN (SELECT A FROM T)", "a subquery"),
        ("SELECT ARRAY(SELECT A FROM T) FROM T", "a subquery"),
        ("SELECT A FROM (SELECT A FROM T)", "no table in FROM"),
        ("SELECT x FROM UNNEST([1, 2]) AS x", "no table in FROM"),
        ("SELECT A FROM T UNION ALL SELECT A FROM T", "no single SELECT"),
        ("WITH x AS (SELECT 1 AS y) SELECT y FROM x", "WITH"),
    ],
)
def test_what_looks_at_several_rows_at_once_is_named(sql: str, reason: str) -> None:
    with pytest.raises(SpannerError, match=reason) as caught:
        check(sql)
    assert caught.value.code is Code.INVALID_ARGUMENT
