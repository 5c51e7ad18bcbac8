"""Defaults, generated columns and checks, as the core asks for them."""

from __future__ import annotations

import pytest

from spanner_simulator.core.rows.mutations import PENDING
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.expressions import DuckExpressions
from unit.sql.conftest import NOW_US

EXPRESSIONS = DuckExpressions()
ROW = {"Id": 2, "S": "é", "N": None, "B": True, "Ts": 1, "A": ("x",)}


@pytest.mark.parametrize(
    ("expression", "code", "expected"),
    [
        ("7", "INT64", 7),
        ("7", "FLOAT64", 7.0),
        ("'x'", "STRING", "x"),
        ("NULL", "STRING", None),
        ("TRUE", "BOOL", True),
        ("CURRENT_TIMESTAMP()", "TIMESTAMP", NOW_US * 1000),
        ("PENDING_COMMIT_TIMESTAMP()", "TIMESTAMP", PENDING),
        ("Id * 2 + 1", "INT64", 5),
        ("UPPER(S) || CAST(Id AS STRING)", "STRING", "É2"),
        ("N IS NULL AND B", "BOOL", True),
        ("ARRAY_LENGTH(A)", "INT64", 1),
        ("T.Id > 1", "BOOL", True),
        ("TIMESTAMP_ADD(Ts, INTERVAL 1 NANOSECOND)", "TIMESTAMP", 2),
        ("DATE '2024-02-29'", "STRING", None),
    ],
)
def test_values(world, expression, code, expected) -> None:
    table = world.database.catalogue.tables["t"]
    evaluate = DuckExpressions().evaluate
    arguments = {
        "table": table,
        "row": ROW,
        "result": ValueType(code),
        "dialect": "GOOGLE_STANDARD_SQL",
        "now_us": NOW_US,
    }
    if expression.startswith("DATE"):
        with pytest.raises(SpannerError, match="does not convert to STRING"):
            evaluate(expression, **arguments)
    else:
        assert evaluate(expression, **arguments) == expected


@pytest.mark.parametrize(
    "expression",
    ["Nope + 1", "COUNT(*)", "1, 2", "SELECT", "1 FROM T", "Id" + " + 1" * 2000],
    ids=lambda text: text[:20],
)
def test_what_is_no_expression_of_a_row(world, expression: str) -> None:
    with pytest.raises(SpannerError) as caught:
        DuckExpressions().evaluate(
            expression,
            table=world.database.catalogue.tables["t"],
            row=ROW,
            result=ValueType("INT64"),
            dialect="GOOGLE_STANDARD_SQL",
            now_us=NOW_US,
        )

    assert caught.value.code in (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)


def test_checks_hold_rows_back(world) -> None:
    world.database.apply_ddl(
        ["CREATE TABLE K (A INT64, CONSTRAINT Small CHECK (A < 10)) PRIMARY KEY (A)"],
        now_us=NOW_US,
    )
    world.run("INSERT INTO K (A) VALUES (9)")

    with pytest.raises(SpannerError, match="Small"):
        world.run("INSERT INTO K (A) VALUES (10)")


def test_one_text_means_what_it_means_in_each_dialect(world) -> None:
    table = world.database.catalogue.tables["t"]
    found = [
        EXPRESSIONS.evaluate(
            "1 / 2", table=table, row=ROW, result=ValueType("FLOAT64"),
            dialect=dialect, now_us=NOW_US,
        )
        for dialect in ("GOOGLE_STANDARD_SQL", "POSTGRESQL")
    ]  # fmt: skip

    assert found == [0.5, 0.0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'$now_ns' || S", "$now_nsé"),
        ("STRING(CURRENT_TIMESTAMP(), 'UTC') || '$now_ns'", "2025-06-15 15:06:40+00$now_ns"),
    ],
)
def test_what_only_looks_like_the_time_or_a_mistake(world, expression, expected) -> None:
    table = world.database.catalogue.tables["t"]
    value = EXPRESSIONS.evaluate(
        expression, table=table, row=ROW, result=ValueType("STRING"),
        dialect="GOOGLE_STANDARD_SQL", now_us=NOW_US,
    )  # fmt: skip

    assert value == expected
