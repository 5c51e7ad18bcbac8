from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.sql_syntax import (
    Call,
    Column,
    Comparison,
    Constant,
    InUnnest,
    IsNull,
    Join,
    Logic,
    OrderKey,
    Parameter,
    Select,
    SelectItem,
    Star,
    parse_select,
)
from tidegate.spanner_simulator.core.values import ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError


def test_a_whole_statement() -> None:
    sql = (
        "SELECT a, t.b AS c, COUNT(*) FROM T t WHERE a >= @P AND b IS NOT NULL "
        "ORDER BY a DESC, b LIMIT 3;"
    )

    assert parse_select(sql) == Select(
        (
            SelectItem(Column(None, "a"), "a"),
            SelectItem(Column("t", "b"), "c"),
            SelectItem(Call("COUNT", (Star(),)), ""),
        ),
        (Join("", "T", "t", None),),
        Logic(
            "AND",
            (
                Comparison(">=", Column(None, "a"), Parameter("p")),
                IsNull(Column(None, "b"), negated=True),
            ),
        ),
        (OrderKey(Column(None, "a"), True), OrderKey(Column(None, "b"), False)),
        Constant(3, ValueType("INT64")),
    )


def test_a_join_and_unnest() -> None:
    sql = (
        "SELECT x.all FROM information_schema.s AS x LEFT JOIN u ON u.a = x.a WHERE b IN UNNEST(@l)"
    )
    select = parse_select(sql)

    assert select.items == (SelectItem(Column("x", "all"), "all"),)
    assert select.joins[0] == Join("information_schema", "s", "x", None)
    assert select.joins[1].on == Comparison("=", Column("u", "a"), Column("x", "a"))
    assert select.where == InUnnest(Column(None, "b"), Parameter("l"))


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE T SET a = 1 WHERE TRUE",
        "SELECT a FROM T GROUP BY a",
        "SELECT a FROM T JOIN U ON TRUE",
        "SELECT UPPER(a) FROM T",
        "SELECT a FROM T@{FORCE_INDEX=i}",
        "@{hint=1} SELECT 1",
        "SELECT a + 1 FROM T",
        "SELECT a FROM T WHERE b IN UNNEST(c)",
    ],
)
def test_what_is_not_supported_is_refused(sql: str) -> None:
    with pytest.raises(SpannerError, match="does not support") as caught:
        parse_select(sql)

    assert caught.value.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize("sql", ["SELECT", "SELECT a FROM", "SELECT IF(a) FROM T", "SELECT -a"])
def test_syntax_errors(sql: str) -> None:
    with pytest.raises(SpannerError, match="Syntax error") as caught:
        parse_select(sql)

    assert caught.value.code is Code.INVALID_ARGUMENT
