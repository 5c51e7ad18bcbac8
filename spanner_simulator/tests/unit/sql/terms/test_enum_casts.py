"""Messages and enums in queries and DML; the answers are those of Google's emulator 1.5.28."""

from __future__ import annotations

import random

import pytest

from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.values import Plain, ValueType
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.analysis import SqlAnalysis
from spanner_simulator.sql.engine import SqlEngine
from spanner_simulator.sql.expressions import DuckExpressions
from spanner_simulator.sql.parameter import Parameter
from unit.shop_protos import BUNDLE, shop_descriptors
from unit.sql.conftest import NOW_US, World

TIER = ValueType("ENUM", proto_name="shop.Tier")
CUSTOMER = ValueType("PROTO", proto_name="shop.Customer")
ANN = "CgNBbm4="


class Shop(World):
    """One row with a member, one with a number that is none, one with NULL."""

    def __init__(self) -> None:
        self.database = Database(
            "shop",
            random.Random(1),
            DatabaseSettings(),
            expressions=DuckExpressions(),
            analysis=SqlAnalysis,
        )
        self.ddl(
            BUNDLE,
            "CREATE TABLE T (K INT64, C shop.Customer, E shop.Tier, A ARRAY<shop.Tier>, "
            "D shop.Tier DEFAULT ('GOLD'), G INT64 AS (CAST(D AS INT64)) STORED) PRIMARY KEY (K)",
            "CREATE TABLE ByTier (E shop.Tier, V INT64) PRIMARY KEY (E DESC)",
        )
        self.engine = SqlEngine(self.database)
        self.run("INSERT INTO T (K, C, E, A) VALUES (1, b'\\n\\003Ann', 'GOLD', [1, NULL])")
        self.run("INSERT INTO T (K, E, D) VALUES (2, 77, 2), (3, NULL, NULL)")
        self.run("INSERT INTO ByTier (E, V) VALUES ('SILVER', 5), (1, 6)")

    def ddl(self, *statements: str, descriptors: bytes = b"") -> None:
        protos = descriptors or shop_descriptors()
        self.database.apply_ddl(statements, now_us=NOW_US, proto_descriptors=protos)


@pytest.fixture(scope="module")
def shop() -> Shop:
    """For queries only."""
    return Shop()


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT * FROM T WHERE K = 1", [["1", ANN, "1", ["1", None], "1", "1"]]),
        ("SELECT E, D, G FROM T WHERE K > 1 ORDER BY K", [["77", "2", "2"], [None, None, None]]),
        ("SELECT K FROM T WHERE E = 1", [["1"]]),
        ("SELECT K FROM T WHERE E IN (1, 'SILVER')", [["1"]]),
        ("SELECT V FROM ByTier WHERE E = 'GOLD'", [["6"]]),
        ("SELECT E FROM ByTier", [["2"], ["1"]]),
        ("SELECT MAX(E), MIN(E), COUNT(DISTINCT E) FROM T", [["77", "1", "2"]]),
        ("SELECT CAST(E AS STRING) FROM T WHERE K > 1 ORDER BY K", [["77"], [None]]),
        ("SELECT CAST(1 AS shop.Tier), CAST('GOLD' AS `shop.Tier`)", [["1", "1"]]),
        ("SELECT SAFE_CAST('NOPE' AS shop.Tier), CAST(NULL AS shop.Tier)", [[None, None]]),
        ("SELECT CAST(S AS shop.Tier) FROM (SELECT 'SILVER' S UNION ALL SELECT NULL)",
         [["2"], [None]]),
        ("SELECT CAST(C AS BYTES) FROM T WHERE K = 1", [[ANN]]),
        ("SELECT CAST(b'\\n\\003Ann' AS shop.Customer)", [[ANN]]),
        ("SELECT COALESCE(E, 'SILVER') FROM T ORDER BY K", [["1"], ["77"], ["2"]]),
        ("SELECT E FROM T WHERE K = 1 UNION ALL SELECT 'SILVER'", [["1"], ["2"]]),
        ("SELECT [CAST(1 AS shop.Tier), 2]", [[["1", "2"]]]),
    ],
)  # fmt: skip
def test_queries(shop: Shop, sql: str, rows: list[list[Plain]]) -> None:
    assert shop.rows(sql) == rows


@pytest.mark.parametrize(
    ("sql", "parameter", "rows"),
    [
        ("SELECT K, @p FROM T WHERE E = @p", Parameter("1", TIER), [["1", "1"]]),
        ("SELECT K FROM T WHERE E = @p", Parameter("1"), [["1"]]),
        ("SELECT K FROM T WHERE E = @p", Parameter("1", ValueType("INT64")), [["1"]]),
        ("SELECT K FROM T WHERE E = @p", Parameter("GOLD", ValueType("STRING")), [["1"]]),
        ("SELECT @p", Parameter(ANN, CUSTOMER), [[ANN]]),
        (
            "SELECT K FROM T WHERE E IN UNNEST(@p)",
            Parameter(["1"], ValueType("ARRAY", TIER)),
            [["1"]],
        ),
    ],
)
def test_parameters(shop: Shop, sql: str, parameter: Parameter, rows: list[list[Plain]]) -> None:
    assert shop.rows(sql, p=parameter) == rows


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT K FROM T WHERE E = 'NOPE'", Code.INVALID_ARGUMENT,
         'Could not cast literal "NOPE" to type shop.Tier'),
        ("SELECT CAST('NOPE' AS shop.Tier)", Code.OUT_OF_RANGE,
         "Out of range cast of string 'NOPE' to enum type shop.Tier"),
        ("SELECT CAST(S AS shop.Tier) FROM (SELECT 'x' S UNION ALL SELECT 'y')", Code.OUT_OF_RANGE,
         "to enum type shop.Tier"),
        ("SELECT CAST(3000000000 AS shop.Tier)", Code.OUT_OF_RANGE,
         "Out of range cast of integer 3000000000 to enum type shop.Tier"),
        ("SELECT CAST(1 AS shop.Nope)", Code.INVALID_ARGUMENT,
         "Type not found: shop.Nope"),
        ("SELECT CAST(TRUE AS shop.Tier)", Code.INVALID_ARGUMENT,
         "Invalid cast from BOOL to shop.Tier"),
        ("SELECT C FROM T ORDER BY C", Code.INVALID_ARGUMENT,
         "ORDER BY does not support expressions of type shop.Customer"),
        ("SELECT K FROM T WHERE C = C", Code.INVALID_ARGUMENT,
         "= is not defined for arguments of type PROTO<shop.Customer>"),
        ("SELECT E + 1 FROM T", Code.INVALID_ARGUMENT,
         "No matching signature for operator + for argument types: shop.Tier, INT64"),
        ("SELECT C.name FROM T", Code.UNIMPLEMENTED, "fields of messages (name of shop.Customer)"),
        ("SELECT CAST(C AS STRING) FROM T", Code.UNIMPLEMENTED,
         "CAST between messages and their text form"),
    ],
)  # fmt: skip
def test_refusals(shop: Shop, sql: str, code: Code, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        shop.run(sql)

    assert caught.value.code is code
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ValueType("PROTO", proto_name="shop.X"), "Type not found: `shop.X`"),
        (ValueType("ENUM", proto_name="shop.X"), "Enum type not found: `shop.X`"),
        (ValueType("ENUM", proto_name="shop.Customer"), "Enum type not found: `shop.Customer`"),
    ],
)
def test_parameters_of_types_that_nobody_knows(shop: Shop, kind: ValueType, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        shop.run("SELECT @p", p=Parameter("1", kind))

    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, message)


@pytest.mark.parametrize(
    ("sql", "parameters", "row"),
    [
        ("INSERT INTO T (K, C, E) VALUES (9, @c, @e)",
         {"c": Parameter(ANN, CUSTOMER), "e": Parameter("2", TIER)}, [ANN, "2"]),
        ("INSERT INTO T (K, C, E) VALUES (9, @c, @e)",
         {"c": Parameter(ANN, ValueType("BYTES")), "e": Parameter("2", ValueType("INT64"))},
         [ANN, "2"]),
        ("INSERT INTO T (K, C, E) SELECT 9, C, D FROM T WHERE K = 1", {}, [ANN, "1"]),
    ],
)  # fmt: skip
def test_dml(sql: str, parameters: dict[str, Parameter], row: list[Plain]) -> None:
    shop = Shop()
    shop.run(sql, **parameters)

    assert shop.rows("SELECT C, E FROM T WHERE K = 9") == [row]


def test_a_default_that_is_no_member_is_refused() -> None:
    with pytest.raises(SpannerError, match=r'Could not cast literal "NOPE" to type shop\.Tier'):
        Shop().ddl("CREATE TABLE X (K INT64, E shop.Tier DEFAULT ('NOPE')) PRIMARY KEY (K)")
