from __future__ import annotations

import pytest

from spanner_simulator.core.schema.expression_names import column_names


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("UPPER(Name) || `b`", {"name", "b"}),
        ("DATE '2024-01-01'", set()),
        ("CAST(a AS date)", {"a"}),
        ("DATE_ADD(a, INTERVAL 1 day)", {"a"}),
        ("'b' -- c", set()),
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
    text = "t.a > 0 OR \"A\" || b::text || 'c' = ''"
    assert column_names(text, "POSTGRESQL", table="t") == {"a", "b"}
