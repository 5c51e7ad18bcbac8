"""Every value of every type goes into DuckDB and comes out of it as it was."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest

from spanner_simulator.core.timestamps import MAX_NS, MIN_NS
from spanner_simulator.core.values import ValueType, encode
from spanner_simulator.sql import sql_types as types
from spanner_simulator.sql.binder.scans import Scan
from spanner_simulator.sql.duck import Duck
from spanner_simulator.sql.plans import scan_sql
from spanner_simulator.sql.sql_types import array_of, carrier, from_duck, to_duck
from spanner_simulator.sql.terms.literals import value_sql

LARGEST = Decimal("99999999999999999999999999999.999999999")
VALUES = {
    types.BOOL: (True, False),
    types.INT64: (0, 2**63 - 1, -(2**63)),
    types.FLOAT32: (0.0, -0.0, 1.5, math.inf, -math.inf, math.nan),
    types.FLOAT64: (0.0, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan),
    types.NUMERIC: (Decimal(0), Decimal("0.000000001"), LARGEST, LARGEST.copy_negate()),
    types.PG_NUMERIC: (Decimal("1.50"), Decimal("-1e-30"), Decimal("1e40"), Decimal("NaN")),
    types.STRING: ("", "a\0b", "it's \"q\" $p_a '~0'", "\U0001f600\u00e9e\u0301", "x" * 100_000),
    types.BYTES: (b"", b"\x00\xff'", bytes(range(256))),
    types.DATE: (dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    types.TIMESTAMP: (MIN_NS, MAX_NS, 0, -1, 1_700_000_000_123_456_789),
    types.JSON: ("null", '{"a":[1,"\\u0000"]}'),
    types.PG_JSONB: ('{"a": 1.50}',),
    types.UUID: ("12345678-1234-5678-1234-567812345678",),
}
CASES = [
    *[(kind, (*values, None)) for kind, values in VALUES.items()],
    *[(array_of(kind), ((*values, None), (), (None,), None)) for kind, values in VALUES.items()],
]


@pytest.fixture(scope="module", name="duck")
def duck_fixture():
    duck = Duck()
    yield duck
    duck.close()


def shown(kind: ValueType, value) -> str:
    return repr(encode(kind, value))  # tells -0.0 from 0.0, and NaN is like itself


def back(kind: ValueType, value):
    convert = from_duck(kind)
    return value if convert is None or value is None else convert(value)


@pytest.mark.parametrize(("kind", "values"), CASES, ids=lambda one: str(one)[:40])
def test_as_rows(duck, kind, values) -> None:
    scan = Scan(1, "T", {"C": kind}, used={"C": None})
    found = duck.run(
        f"WITH {scan_sql(scan)} SELECT * FROM scan1",
        {},
        {"raw1": ({"C": kind}, [{"C": value} for value in values])},
    )
    assert [shown(kind, back(kind, row[0])) for row in found] == [
        shown(kind, value) for value in values
    ]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=lambda one: str(one)[:40])
def test_as_parameters_and_as_literals(duck, kind, values) -> None:
    for value in values:
        sql = f"SELECT CAST($p AS {carrier(kind)}), {value_sql(kind, value)}"
        ((parameter, literal),) = duck.run(sql, {"p": to_duck(kind, value)}, {})
        assert [shown(kind, back(kind, one)) for one in (parameter, literal)] == [
            shown(kind, value)
        ] * 2


def test_a_struct_keeps_its_fields_apart_whatever_they_are_called(duck) -> None:
    kind = ValueType(
        "STRUCT", fields=(("", types.INT64), ("", types.PG_NUMERIC), ("a", types.TIMESTAMP))
    )
    value = (1, Decimal("1.50"), None)
    ((found,),) = duck.run(f"SELECT CAST($p AS {carrier(kind)})", {"p": to_duck(kind, value)}, {})
    assert back(kind, found) == value
