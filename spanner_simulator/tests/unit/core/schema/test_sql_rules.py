from __future__ import annotations

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


class Numbers:
    """An analyser that knows numbers and the columns of the table."""

    def mismatch(self, expression: str, *, table: Table, result: ValueType) -> str | None:
        name = expression.strip("()")
        if name == "odd":
            raise SpannerError(Code.UNIMPLEMENTED, "The simulator does not support: odd")
        if name.isdigit():
            found = ValueType("INT64")
        elif name in table.by_name:
            found = table.column(name).value_type
        else:
            raise SpannerError(Code.INVALID_ARGUMENT, f"Unrecognized name: {name} [at 1:1]")
        return None if found.code == result.code else found.code


def catalogue(*statements: str) -> Catalogue:
    made = Catalogue(analysis=lambda _: Numbers())
    for statement in statements:
        apply_statement(made, parse_ddl(statement), now_us=1)
    return made


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("a STRING(9) DEFAULT (1)", "the default value of column `T`.`a`: Expected type STRING"),
        ("a INT64 AS (z) STORED", "the definition of generated column `T`.`a`: Unrecognized name"),
        ("a INT64, CHECK(a)", "'a' from check constraint '<unnamed>' in table 'T': Expected type"),
        ("a INT64, CONSTRAINT c CHECK(z)", "'z' from check constraint 'c' in table 'T': Unrecogni"),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused(columns: str, message: str) -> None:
    with pytest.raises(SpannerError, match=r"^INVALID_ARGUMENT: Error parsing ") as caught:
        catalogue(f"CREATE TABLE T (k INT64, {columns}) PRIMARY KEY (k)")
    assert message in caught.value.message


def test_the_analyser_is_heard_in_its_own_words_and_of_alterations_too() -> None:
    with pytest.raises(SpannerError, match=r"^UNIMPLEMENTED: The simulator does not support: odd$"):
        catalogue("CREATE TABLE T (k INT64 DEFAULT (odd)) PRIMARY KEY (k)")
    table = "CREATE TABLE T (k INT64, s STRING(9)) PRIMARY KEY (k)"
    with pytest.raises(SpannerError, match="Expected type STRING; found INT64"):
        catalogue(table, "ALTER TABLE T ALTER COLUMN s SET DEFAULT (1)")


COMMITTED = "OPTIONS (allow_commit_timestamp = true)"
ALTERED = f"ALTER TABLE T ALTER COLUMN t SET {COMMITTED}"


@pytest.mark.parametrize(
    ("table", "statement", "refusal"),
    [
        ("t TIMESTAMP, CHECK (t IS NOT NULL)", ALTERED, "Column `t` has option commit_timestamp"),
        (
            "x INT64",
            f"CREATE TABLE U (k INT64, t TIMESTAMP {COMMITTED}, CHECK (t > 1)) PRIMARY KEY (k)",
            "Column `t` has option commit_timestamp",
        ),
        ("t TIMESTAMP DEFAULT (f())", ALTERED, "The only default value expression permitted"),
        (
            f"t TIMESTAMP {COMMITTED}",
            "ALTER TABLE T ADD COLUMN g TIMESTAMP AS (t) STORED",
            "Cannot use commit timestamp column `t` as a dependency",
        ),
        ("a INT64", "ALTER TABLE T ADD COLUMN x INT64 DEFAULT (a)", "`T`.`x`: Default value"),
        (
            "t TIMESTAMP",
            "ALTER TABLE T ALTER COLUMN t SET DEFAULT (f(PENDING_COMMIT_TIMESTAMP()))",
            "The PENDING_COMMIT_TIMESTAMP() function may only",
        ),
        (
            "a INT64 AS (k) STORED",
            "ALTER TABLE T ALTER COLUMN a SET DEFAULT (7)",
            "Column T.a with a DEFAULT value cannot be a generated",
        ),
        (
            "x INT64",
            "CREATE TABLE U (a INT64, b INT64 AS (c), c INT64 AS (b) STORED) PRIMARY KEY (a)",
            "Cycle detected while analysing generated column, which include objects (b,c)",
        ),
        (
            "x INT64",
            "CREATE TABLE U (a INT64, g INT64 AS (a)) PRIMARY KEY (g)",
            "Generated column `U`.`g` must be STORED",
        ),
        (
            "x INT64, CONSTRAINT ck CHECK (x > 1)",
            "CREATE TABLE U (a INT64, CONSTRAINT CK CHECK (a > 1)) PRIMARY KEY (a)",
            "Duplicate name in schema: CK.",
        ),
    ],
)
def test_what_words_alone_tell_is_refused(make, table: str, statement: str, refusal: str) -> None:
    made = make(f"CREATE TABLE T (k INT64, {table}) PRIMARY KEY (k)")
    assert refusal in made.refusal(statement)


def test_unnamed_checks_get_names_of_their_own(make) -> None:
    made = make("CREATE TABLE R (a INT64, CHECK (a > 1), CHECK (a > 2)) PRIMARY KEY (a)")
    names = [check.name for check in made.catalogue.table("R").checks]
    assert [(name[:5], name[-2:]) for name in names] == [("CK_R_", "_1"), ("CK_R_", "_2")]
