from __future__ import annotations

import pytest

from spanner_simulator.sql.function_tables.signatures import read_signatures, resolve
from spanner_simulator.sql.sql_types import (
    DATE,
    FLOAT64,
    INT64,
    JSON,
    NUMERIC,
    STRING,
    array_of,
)  # fmt: skip
from spanner_simulator.sql.terms.bound import Bound
from spanner_simulator.sql.terms.literals import literal

TABLE = read_signatures("""
F(INT64, INT64) -> INT64
F(FLOAT64, FLOAT64) -> FLOAT64 = f_float({0}, {1})
G(ORDERED, ORDERED...) -> ORDERED = g({*})
H(ARRAY<ANY>, ANY) -> ANY
@S(INT64) -> INT64 = s({args})
""")


def columns(*kinds):
    return [Bound("x", kind) for kind in kinds]


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("F", columns(INT64, INT64), INT64),
        ("F", columns(INT64, FLOAT64), FLOAT64),
        ("F", columns(None, INT64), INT64),
        ("F", columns(STRING, INT64), None),
        ("F", columns(INT64), None),
        ("G", columns(STRING), STRING),
        ("G", columns(INT64, NUMERIC, INT64), NUMERIC),
        ("G", columns(JSON, JSON), None),
        ("G", columns(STRING, INT64), None),
        ("G", [*columns(DATE), literal(STRING, "2024-01-01")], DATE),
        ("G", [literal(INT64, 1), literal(FLOAT64, 1.5)], FLOAT64),
        ("G", [literal(INT64, 1), literal(STRING, "x")], None),
        ("H", columns(array_of(STRING), STRING), STRING),
        ("H", columns(array_of(STRING), INT64), None),
        ("H", columns(STRING, STRING), None),
    ],
)
def test_the_cheapest_signature_that_fits(name, arguments, result) -> None:
    found = resolve(TABLE[name], arguments, "GOOGLE_STANDARD_SQL")
    assert (None if found is None else found.result) == result


def test_what_a_line_says() -> None:
    first, second = TABLE["F"]
    assert (first.text, second.text) == ("f({0}, {1})", "f_float({0}, {1})")
    assert [one.is_aggregate for one in (first, TABLE["S"][0])] == [False, True]
    with pytest.raises(ValueError, match="not a signature"):
        read_signatures("F(INT64 -> INT64")
