from __future__ import annotations

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import Dialect, ValueType
from spanner_simulator.errors import SpannerError
from spanner_simulator.sql.analysis import SqlAnalysis

PLACE = "CREATE VIEW `V` SQL SECURITY INVOKER AS "


def made(*statements: str, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> Catalogue:
    return apply(Catalogue(dialect, analysis=SqlAnalysis), *statements)


def apply(catalogue: Catalogue, *statements: str) -> Catalogue:
    for statement in statements:
        apply_statement(catalogue, parse_ddl(statement, catalogue.dialect), now_us=1)
    return catalogue


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "a INT64 DEFAULT ('x')",
            (
                "Error parsing the default value of column `T`.`a`: Expected type INT64; found "
                "STRING [at 1:1]\n'x'\n^"
            ),
        ),
        (
            "a INT64 AS (zz) STORED",
            (
                "Error parsing the definition of generated column `T`.`a`: Unrecognized name: zz "
                "[at 1:2]\n(zz)\n ^"
            ),
        ),
        (
            "a INT64, CHECK (a + 1)",
            (
                "Error parsing expression 'a + 1' from check constraint '<unnamed>' in table 'T': "
                "Expected type BOOL; found INT64 [at 1:1]\na + 1\n^"
            ),
        ),
        (
            "a INT64, CONSTRAINT c CHECK (zz > 1)",
            (
                "Error parsing expression 'zz > 1' from check constraint 'c' in table 'T': "
                "Unrecognized name: zz [at 1:1]\nzz > 1\n^"
            ),
        ),
    ],
)
def test_what_makes_no_sense_is_refused(columns: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        made(f"CREATE TABLE T (k INT64, {columns}) PRIMARY KEY (k)")

    assert str(caught.value) == f"INVALID_ARGUMENT: {message}"


def test_what_makes_sense_is_taken() -> None:
    catalogue = made(
        "CREATE TABLE T (k INT64, s STRING(9) DEFAULT (CONCAT('a', 'b')), n NUMERIC DEFAULT (1), "
        "t TIMESTAMP DEFAULT (CURRENT_TIMESTAMP()), g STRING(MAX) AS (UPPER(s)) STORED, "
        "CHECK (k > 0 AND s IS NOT NULL)) PRIMARY KEY (k)"
    )

    assert len(catalogue.table("T").columns) == 5


def test_a_view_knows_its_columns() -> None:
    catalogue = made(
        "CREATE TABLE T (k INT64, s STRING(9)) PRIMARY KEY (k)",
        "CREATE VIEW V SQL SECURITY INVOKER AS SELECT T.s, T.k + 1 AS n FROM T",
        "CREATE VIEW W SQL SECURITY INVOKER AS SELECT V.n FROM V",
        "ALTER TABLE T ALTER COLUMN s BYTES(9)",
    )

    assert [(name, kind.code) for name, kind in catalogue.view("V").columns] == [
        ("s", "BYTES"),
        ("n", "INT64"),
    ]
    assert catalogue.view("W").columns == (("n", ValueType("INT64")),)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT nope.x FROM nope",
            f"Table not found: nope [at 1:60]\n{PLACE}SELECT nope.x FROM nope\n{' ' * 59}^",
        ),
        ("SELECT 1", "CREATE VIEW columns must be named, but column 1 has no name"),
    ],
)
def test_a_view_that_makes_no_sense_is_refused(query: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        made(f"CREATE VIEW V SQL SECURITY INVOKER AS {query}")

    assert str(caught.value) == (
        f"INVALID_ARGUMENT: Error parsing the definition of view `V`: {message}"
    )


def test_postgresql_is_looked_at_in_its_own_way() -> None:
    table = (
        "CREATE TABLE t (k bigint PRIMARY KEY, s text DEFAULT 'a' || 'b', CHECK (length(s) > 0))"
    )
    catalogue = made(
        table, "CREATE VIEW v AS SELECT k, s FROM t WHERE s LIKE 'a%'", dialect="POSTGRESQL"
    )

    assert [name for name, _ in catalogue.view("v").columns] == ["k", "s"]
    with pytest.raises(SpannerError, match='relation "nope" does not exist'):
        made("CREATE VIEW v AS SELECT k FROM nope", dialect="POSTGRESQL")


def test_a_view_holds_back_the_columns_that_it_needs_and_no_others() -> None:
    catalogue = made(
        "CREATE TABLE T (k INT64, a JSON, b INT64) PRIMARY KEY (k)",
        "CREATE VIEW V SQL SECURITY INVOKER AS SELECT x.k b, x.a.name c FROM T x",
        "CREATE VIEW W SQL SECURITY INVOKER AS SELECT * FROM T",
    )
    apply(catalogue, "ALTER TABLE T DROP COLUMN b", "ALTER TABLE T ADD COLUMN d INT64")

    assert [name for name, _ in catalogue.view("W").columns] == ["k", "a", "d"]
    with pytest.raises(SpannerError) as refused:
        apply(catalogue, "ALTER TABLE T DROP COLUMN a")
    assert refused.value.message == (
        "Cannot drop column `a` on which there are dependent views: V."
    )
    assert "a" in catalogue.table("T").by_name
