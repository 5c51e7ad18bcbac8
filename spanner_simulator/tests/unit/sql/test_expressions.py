"""Defaults, generated columns and checks, as the core asks for them."""

from __future__ import annotations

import pytest

from spanner_simulator.core.rows.mutations import PENDING
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.expressions import DuckExpressions
from unit.sql.conftest import NOW_US

ROW = {"Id": 2, "S": "é", "N": None, "B": True, "Ts": 1, "A": ("x",)}


def evaluated(world, expression: str, code: str, dialect: str = "GOOGLE_STANDARD_SQL"):
    return DuckExpressions().evaluate(
        expression, table=world.database.catalogue.tables["t"], row=ROW, result=ValueType(code),
        dialect=dialect, now_us=NOW_US,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "code", "expected"),
    [
        ("7", "FLOAT64", 7.0),
        ("NULL", "STRING", None),
        ("CURRENT_TIMESTAMP()", "TIMESTAMP", NOW_US * 1000),
        ("PENDING_COMMIT_TIMESTAMP()", "TIMESTAMP", PENDING),
        ("Id * 2 + 1", "INT64", 5),
        ("UPPER(S) || CAST(Id AS STRING) || '$now_ns'", "STRING", "É2$now_ns"),
        ("N IS NULL AND B AND T.Id > 1", "BOOL", True),
        ("ARRAY_LENGTH(A)", "INT64", 1),
        ("TIMESTAMP_ADD(Ts, INTERVAL 1 NANOSECOND)", "TIMESTAMP", 2),
        ("STRING(CURRENT_TIMESTAMP(), 'UTC')", "STRING", "2025-06-15 15:06:40+00"),
    ],
)
def test_values(shared_world, expression, code, expected) -> None:
    assert evaluated(shared_world, expression, code) == expected


@pytest.mark.parametrize(
    "expression",
    ["Nope + 1", "COUNT(*)", "1, 2", "SELECT", "1 FROM T", "DATE '2024-02-29'", "Id" + "+1" * 2000],
    ids=lambda text: text[:20],
)
def test_what_is_no_expression_of_a_row(shared_world, expression: str) -> None:
    with pytest.raises(SpannerError) as caught:
        evaluated(shared_world, expression, "INT64")
    assert caught.value.code in (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)


def test_checks_hold_rows_back(world) -> None:
    table = "CREATE TABLE K (A INT64, CONSTRAINT Small CHECK (A < 10)) PRIMARY KEY (A)"
    world.database.apply_ddl([table], now_us=NOW_US)
    world.run("INSERT INTO K (A) VALUES (9)")
    with pytest.raises(SpannerError, match="Small"):
        world.run("INSERT INTO K (A) VALUES (10)")


def test_one_text_means_what_it_means_in_each_dialect(shared_world) -> None:
    assert evaluated(shared_world, "1 / 2", "FLOAT64") == 0.5
    assert evaluated(shared_world, "1 / 2", "FLOAT64", "POSTGRESQL") == 0.0
