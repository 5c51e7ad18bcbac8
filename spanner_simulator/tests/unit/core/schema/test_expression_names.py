from __future__ import annotations

import pytest

from spanner_simulator.core.schema.expression_names import column_names, object_names


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("UPPER(Name) || `b`", {"name", "b"}),
        ("T.a + 1", {"a"}),
        ("DATE '2024-01-01'", set()),
        ("CAST(a AS date)", {"a"}),
        ("DATE_ADD(a, INTERVAL 1 day)", {"a"}),
        ("'b' -- c", set()),
    ],
)
def test_columns_of_googlesql(expression: str, names: set[str]) -> None:
    assert column_names(expression, "GOOGLE_STANDARD_SQL") == names


def test_columns_of_postgresql() -> None:
    assert column_names("\"A\" || b::text || 'c'", "POSTGRESQL") == {"a", "b"}


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("EXTRACT(YEAR FROM Ts)", {"ts"}),
        ("EXTRACT(HOUR FROM Ts AT TIME ZONE Home)", {"ts", "home"}),
        ("DATE_TRUNC(Day, DAY)", {"day"}),
        ("TIMESTAMP_TRUNC(Ts, MONTH, 'UTC')", {"ts"}),
        ("DATE_TRUNC(d, WEEK(MONDAY))", {"d", "monday"}),
        ("DATE_DIFF(a, day, DAY)", {"a", "day"}),
        ("LAST_DAY(a, YEAR)", {"a"}),
        ("GREATEST(a, day)", {"a", "day"}),
        ("a + INTERVAL '1' DAY", {"a"}),
        ("j.name.first", {"j"}),
        ("T.j.name", {"j"}),
        ("T.a + `T`.b", {"a", "b"}),
        ("SAFE.LOG(a)", {"a"}),
        ("IF((a) > 1, (b), LENGTH(c))", {"a", "b", "c"}),
    ],
)
def test_columns_of_an_expression_over_a_row(expression: str, names: set[str]) -> None:
    assert column_names(expression, "GOOGLE_STANDARD_SQL", table="n.T") == names


def test_a_column_of_postgresql_may_have_its_table_before_it() -> None:
    assert column_names("t.a > 0", "POSTGRESQL", table="t") == {"a"}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT t.a FROM ns.T AS t, `U`", {"ns.t", "u"}),
        ("SELECT T.a AS V, T.w FROM T WHERE T.x = V ORDER BY y", {"t"}),
        ("SELECT 1 FROM A JOIN B USING (c, d), E", {"a", "b", "e"}),
        ("SELECT 1 FROM (A JOIN B ON A.x = f(A.y, B.y)) LEFT JOIN C ON TRUE, D", {*"abcd"}),
        ("SELECT (SELECT MAX(b.x) FROM B b), a.y FROM (SELECT x, y FROM A) a", {"a", "b"}),
        ("SELECT 1 FROM A@{FORCE_INDEX=I, x=y} a, B b", {"a", "b"}),
        ("SELECT 1 FROM A, UNNEST(A.x) AS x, B UNION ALL SELECT 2, c FROM D", {"a", "b", "d"}),
        ("SELECT 1 FROM A WHERE EXISTS(SELECT 1 FROM B) AND A.x IN (A.y, A.z)", {"a", "b"}),
        ("SELECT 1 FROM A GROUP BY b, c HAVING MAX(d) > 1 LIMIT 1 OFFSET 2", {"a"}),
        (")", set()),
    ],
)
def test_objects_stand_in_the_from_clause(query: str, names: set[str]) -> None:
    assert object_names(query, "GOOGLE_STANDARD_SQL") == names


def test_postgresql_leaves_its_default_schema_out() -> None:
    assert object_names('select a, b from public.t join n."U" on true', "POSTGRESQL") == {
        "t",
        "n.u",
    }
