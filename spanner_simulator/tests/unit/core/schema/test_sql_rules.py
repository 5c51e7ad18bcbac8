from __future__ import annotations

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.information_schema import information_schema_table
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


class Numbers:
    """An analyser that knows numbers and the columns of the table, and one query."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

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

    def view_columns(self, query: str) -> tuple[tuple[str, ValueType], ...]:
        if query.startswith("SELECT a FROM "):
            return self._column_a(query.removeprefix("SELECT a FROM "))
        if query.startswith("SELECT 1 AS "):
            return ((query[-1], ValueType("INT64")),)
        if query == "SELECT 1":
            return (("", ValueType("INT64")),)
        raise SpannerError(Code.INVALID_ARGUMENT, "Syntax error [at 2:1]")

    def _column_a(self, name: str) -> tuple[tuple[str, ValueType], ...]:
        catalogue = self._catalogue
        if name.lower() in catalogue.tables:
            return (("a", catalogue.table(name).column("a").value_type),)
        if name.lower() not in catalogue.views:
            raise SpannerError(Code.INVALID_ARGUMENT, f"Table not found: {name} [at 1:15]\n..\n^")
        if "a" not in dict(catalogue.view(name).columns):
            raise SpannerError(Code.INVALID_ARGUMENT, "Unrecognized name: a [at 1:8]\n..\n^")
        return (("a", dict(catalogue.view(name).columns)["a"]),)


def catalogue(*statements: str) -> Catalogue:
    made = Catalogue(analysis=Numbers)
    for statement in statements:
        apply_statement(made, parse_ddl(statement), now_us=1)
    return made


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "a STRING(9) DEFAULT (1)",
            (
                "Error parsing the default value of column `T`.`a`: Expected type STRING; found "
                "INT64 "
                "[at 1:1]\n1\n^"
            ),
        ),
        (
            "a INT64 AS (z) STORED",
            (
                "Error parsing the definition of generated column `T`.`a`: Unrecognized name: z "
                "[at 1:1]"
            ),
        ),
        (
            "a INT64, CHECK(a)",
            (
                "Error parsing expression 'a' from check constraint '<unnamed>' in table 'T': "
                "Expected "
                "type BOOL; found INT64 [at 1:1]\na\n^"
            ),
        ),
        (
            "a INT64, CONSTRAINT c CHECK(z)",
            (
                "Error parsing expression 'z' from check constraint 'c' in table 'T': Unrecognized "
                "name: z [at 1:1]"
            ),
        ),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused(columns: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        catalogue(f"CREATE TABLE T (k INT64, {columns}) PRIMARY KEY (k)")

    assert (caught.value.code, caught.value.message) == (Code.INVALID_ARGUMENT, message)


def test_what_the_analyser_has_not_is_said_as_it_says_it() -> None:
    with pytest.raises(SpannerError, match=r"^UNIMPLEMENTED: The simulator does not support: odd$"):
        catalogue("CREATE TABLE T (k INT64 DEFAULT (odd)) PRIMARY KEY (k)")


def test_an_alteration_is_looked_at_as_well() -> None:
    made = catalogue("CREATE TABLE T (k INT64, s STRING(9)) PRIMARY KEY (k)")

    with pytest.raises(SpannerError, match="Expected type STRING; found INT64"):
        apply_statement(made, parse_ddl("ALTER TABLE T ALTER COLUMN s SET DEFAULT (1)"), now_us=2)


def test_a_view_that_makes_no_sense_is_refused_where_it_goes_wrong() -> None:
    with pytest.raises(SpannerError) as caught:
        catalogue("CREATE VIEW V SQL SECURITY INVOKER AS SELECT a FROM x")

    assert caught.value.message == (
        "Error parsing the definition of view `V`: Table not found: x [at 1:55]\n"
        "CREATE VIEW `V` SQL SECURITY INVOKER AS SELECT a FROM x\n" + " " * 54 + "^"
    )


def test_a_views_columns_have_names_and_are_shown() -> None:
    with pytest.raises(SpannerError, match="columns must be named, but column 1 has no name"):
        catalogue("CREATE VIEW V SQL SECURITY INVOKER AS SELECT 1")
    made = catalogue("CREATE VIEW V SQL SECURITY INVOKER AS SELECT 1 AS a")
    _, rows = information_schema_table(made, "columns")

    assert [
        (row["COLUMN_NAME"], row["SPANNER_TYPE"]) for row in rows if row["TABLE_NAME"] == "V"
    ] == [("a", "INT64")]


def test_views_follow_what_they_are_made_of() -> None:
    made = catalogue(
        "CREATE TABLE T (k INT64, a STRING(9)) PRIMARY KEY (k)",
        "CREATE VIEW V SQL SECURITY INVOKER AS SELECT a FROM T",
        "CREATE VIEW W SQL SECURITY INVOKER AS SELECT a FROM V",
    )
    apply_statement(made, parse_ddl("ALTER TABLE T ALTER COLUMN a BYTES(9)"), now_us=2)

    assert made.view("W").columns == (("a", ValueType("BYTES", None, 9)),)


def test_a_view_may_not_be_replaced_beneath_another() -> None:
    made = catalogue(
        "CREATE TABLE T (k INT64, a STRING(9)) PRIMARY KEY (k)",
        "CREATE VIEW V SQL SECURITY INVOKER AS SELECT a FROM T",
        "CREATE VIEW W SQL SECURITY INVOKER AS SELECT a FROM V",
    )

    with pytest.raises(SpannerError) as caught:
        apply_statement(
            made,
            parse_ddl("CREATE OR REPLACE VIEW V SQL SECURITY INVOKER AS SELECT 1 AS b"),
            now_us=2,
        )

    assert caught.value.code is Code.FAILED_PRECONDITION
    assert caught.value.message.startswith(
        "Cannot alter VIEW `V`. The new definition causes the definition of VIEW `W` to become "
        "invalid with the following diagnostic message: Unrecognized name: a [at 1:48]"
    )
    assert made.view("V").query == "SELECT a FROM T"
