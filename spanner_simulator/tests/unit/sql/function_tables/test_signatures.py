from __future__ import annotations

import pytest

from spanner_simulator.sql.function_tables.signatures import read_signatures, resolve
from spanner_simulator.sql.sql_types import DATE, FLOAT64, INT64, JSON, NUMERIC, STRING, array_of
from spanner_simulator.sql.terms.bound import Bound
from spanner_simulator.sql.terms.literals import literal

TABLE = read_signatures("""
F(INT64, INT64) -> INT64
F(FLOAT64, FLOAT64) -> FLOAT64 = f_float({0}, {1})
G(ORDERED, ORDERED...) -> ORDERED = g({*})
H(ARRAY<ANY>, ANY) -> ANY
""")


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("F", [INT64, INT64], INT64),
        ("F", [INT64, FLOAT64], FLOAT64),
        ("F", [None, INT64], INT64),
        ("F", [STRING, INT64], None),
        ("F", [INT64], None),
        ("G", [INT64, NUMERIC, INT64], NUMERIC),
        ("G", [JSON, JSON], None),
        ("G", [DATE, literal(STRING, "2024-01-01")], DATE),
        ("G", [literal(INT64, 1), literal(FLOAT64, 1.5)], FLOAT64),
        ("G", [literal(INT64, 1), literal(STRING, "x")], None),
        ("H", [array_of(STRING), STRING], STRING),
        ("H", [array_of(STRING), INT64], None),
        ("H", [STRING, STRING], None),
    ],
)
def test_the_cheapest_signature_that_fits(name, arguments, result) -> None:
    bounds = [one if isinstance(one, Bound) else Bound("x", one) for one in arguments]
    found = resolve(TABLE[name], bounds, "GOOGLE_STANDARD_SQL")
    assert (None if found is None else found.result) == result


def test_what_is_no_line_of_a_table() -> None:
    with pytest.raises(ValueError, match="not a signature"):
        read_signatures("F(INT64 -> INT64")
