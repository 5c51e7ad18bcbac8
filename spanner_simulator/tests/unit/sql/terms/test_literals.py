"""Messages and enums, beside the answers of `test_query_binder`."""

from __future__ import annotations

import pytest

from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.parameter import Parameter

TIER = ValueType("ENUM", proto_name="shop.Tier")
CUSTOMER = ValueType("PROTO", proto_name="shop.Customer")
ANN = "CgNBbm4="


@pytest.mark.parametrize(
    ("sql", "parameter", "rows"),
    [
        ("SELECT K, @p FROM T WHERE E = @p", Parameter("1", TIER), [["1", "1"]]),
        ("SELECT K FROM T WHERE E = @p", Parameter("GOLD", ValueType("STRING")), [["1"]]),
        ("SELECT @p", Parameter(ANN, CUSTOMER), [[ANN]]),
        ("SELECT K FROM T WHERE E IN UNNEST(@p)", Parameter(["1"], ValueType("ARRAY", TIER)),
         [["1"]]),
    ],
)  # fmt: skip
def test_parameters(shared_shop, sql: str, parameter: Parameter, rows) -> None:
    assert shared_shop.rows(sql, p=parameter) == rows


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ValueType("PROTO", proto_name="shop.X"), "Type not found: `shop.X`"),
        (ValueType("ENUM", proto_name="shop.Customer"), "Enum type not found: `shop.Customer`"),
    ],
)
def test_types_that_nobody_knows(shared_shop, kind: ValueType, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        shared_shop.run("SELECT @p", p=Parameter("1", kind))
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, message)


@pytest.mark.parametrize(
    ("source", "parameters", "row"),
    [
        ("VALUES (9, @c, @e)", {"c": Parameter(ANN, CUSTOMER), "e": Parameter("2", TIER)},
         [ANN, "2"]),
        ("VALUES (9, @c, @e)", {"c": Parameter(ANN, ValueType("BYTES")), "e": Parameter("2")},
         [ANN, "2"]),
        ("SELECT 9, C, D FROM T WHERE K = 1", {}, [ANN, "1"]),
    ],
)  # fmt: skip
def test_dml(shop, source: str, parameters: dict[str, Parameter], row) -> None:
    shop.run(f"INSERT INTO T (K, C, E) {source}", **parameters)
    assert shop.rows("SELECT C, E FROM T WHERE K = 9") == [row]


def test_what_no_enum_has_is_no_default(shop) -> None:
    with pytest.raises(SpannerError, match=r'Could not cast literal "NOPE" to type shop\.Tier'):
        shop.ddl("CREATE TABLE X (K INT64, E shop.Tier DEFAULT ('NOPE')) PRIMARY KEY (K)")
