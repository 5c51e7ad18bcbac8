from __future__ import annotations

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import SpannerError
from spanner_simulator.sql.analysis import SqlAnalysis


def made(*statements: str, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> Catalogue:
    return apply(Catalogue(dialect, analysis=SqlAnalysis), *statements)


def apply(catalogue: Catalogue, *statements: str) -> Catalogue:
    for statement in statements:
        apply_statement(catalogue, parse_ddl(statement, catalogue.dialect), now_us=1)
    return catalogue


GENERATED = (
    "Error parsing the definition of generated column `T`.`a`: Unrecognized name: zz [at 1:2]\n"
    "(zz)\n ^"
)
CHECK = (
    "Error parsing expression 'a + 1' from check constraint '<unnamed>' in table 'T': "
    "Expected type BOOL; found INT64 [at 1:1]\na + 1\n^"
)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE T (k INT64, a INT64 AS (zz) STORED) PRIMARY KEY (k)", GENERATED),
        ("CREATE TABLE T (k INT64, a INT64, CHECK (a + 1)) PRIMARY KEY (k)", CHECK),
    ],
)
def test_what_makes_no_sense_is_refused(statement: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        made(statement)
    assert str(caught.value) == f"INVALID_ARGUMENT: {message}"


def test_what_makes_sense_is_taken() -> None:
    catalogue = made(
        "CREATE TABLE T (k INT64, s STRING(9) DEFAULT (CONCAT('a', 'b')), n NUMERIC DEFAULT (1), "
        "t TIMESTAMP DEFAULT (CURRENT_TIMESTAMP()), g STRING(MAX) AS (UPPER(s)) STORED, "
        "CHECK (k > 0 AND s IS NOT NULL)) PRIMARY KEY (k)"
    )
    assert len(catalogue.table("T").columns) == 5


def test_postgresql_is_looked_at_in_its_own_way() -> None:
    table = "CREATE TABLE t (k bigint PRIMARY KEY, s text DEFAULT {}, CHECK (length(s) > 0))"
    assert made(table.format("'a' || 'b'"), dialect="POSTGRESQL").tables
    with pytest.raises(SpannerError, match="INVALID_ARGUMENT"):
        made(table.format("'a' + 'b'"), dialect="POSTGRESQL")
