from __future__ import annotations

import pytest

from spanner_simulator.core.schema.google_ddl import parse_ddl
from spanner_simulator.core.schema.statements import (
    AlterDatabase,
    AlterIndex,
    Analyze,
    CreateIndex,
    CreateRole,
    CreateSchema,
    CreateStream,
    CreateView,
    DropIndex,
    DropRole,
    DropSchema,
    DropStream,
    DropTable,
    DropView,
    Grant,
    KeyColumn,
    Statement,
)
from spanner_simulator.errors import Code, SpannerError

STATEMENTS: list[tuple[str, Statement]] = [
    ("DROP TABLE IF EXISTS s.T;", DropTable("s.T", if_exists=True)),
    (
        (
            "CREATE UNIQUE NULL_FILTERED INDEX IF NOT EXISTS I ON T (a, b DESC) STORING (c, d) "
            "WHERE a IS NOT NULL AND c IS NOT NULL, INTERLEAVE IN P"
        ),
        CreateIndex(
            "I",
            "T",
            (KeyColumn("a"), KeyColumn("b", descending=True)),
            ("c", "d"),
            is_unique=True,
            is_null_filtered=True,
            interleave_in="P",
            not_null=("a", "c"),
            if_not_exists=True,
        ),
    ),
    ("ALTER INDEX I ADD STORED COLUMN a", AlterIndex("I", "ADD", "a")),
    ("ALTER INDEX s.I DROP STORED COLUMN a", AlterIndex("s.I", "DROP", "a")),
    ("DROP INDEX IF EXISTS I", DropIndex("I", if_exists=True)),
    (
        "create or replace view V sql security definer as SELECT 'x;' AS a -- end\n;",
        CreateView("V", "SELECT 'x;' AS a", "DEFINER", or_replace=True),
    ),
    ("DROP VIEW V", DropView("V")),
    ("CREATE SCHEMA IF NOT EXISTS s", CreateSchema("s", if_not_exists=True)),
    ("DROP SCHEMA s", DropSchema("s")),
    (
        (
            "ALTER DATABASE `my-db` SET OPTIONS (version_retention_period = '2d', "
            "optimizer_version = 4, default_leader = NULL)"
        ),
        AlterDatabase(
            "my-db",
            (
                ("version_retention_period", "2d"),
                ("optimizer_version", 4),
                ("default_leader", None),
            ),
        ),
    ),
    ("ANALYZE", Analyze()),
    ("CREATE CHANGE STREAM S", CreateStream("S", None)),
    ("DROP CHANGE STREAM S", DropStream("S")),
    ("CREATE ROLE reader", CreateRole("reader")),
    ("DROP ROLE reader", DropRole("reader")),
    (
        "REVOKE SELECT ON TABLE T FROM ROLE a",
        Grant(True, ("SELECT",), "TABLE", ("T",), ("a",)),
    ),
    ("GRANT ROLE a TO ROLE b", Grant(False, ("MEMBER",), "ROLE", ("a",), ("b",))),
]


@pytest.mark.parametrize(("text", "statement"), STATEMENTS)
def test_parse(text: str, statement: Statement) -> None:
    assert parse_ddl(text) == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "CREATE FOO x",
            "Syntax error on line 1, column 8: Encountered 'FOO' while parsing: create_statement",
        ),
        (
            "DROP TABLE T extra",
            "Syntax error on line 1, column 14: Expecting 'EOF' but found 'extra'",
        ),
        (
            "CREATE TABLE",
            "Syntax error on line 1, column 12: Encountered 'EOF' while parsing: identifier",
        ),
        (
            "ALTER DATABASE d SET OPTIONS (bogus = 1)",
            "Option: bogus is unknown.",
        ),
        (
            "SELECT 1",
            "Syntax error on line 1, column 1: Encountered 'SELECT' while parsing: ddl_statement",
        ),
        (
            "ALTER INDEX I RENAME TO J",
            (
                "Syntax error on line 1, column 15: Encountered 'RENAME' while parsing: "
                "alter_index_statement"
            ),
        ),
        (
            "CREATE INDEX I ON T (a) WHERE a > 1",
            "Syntax error on line 1, column 33: Expecting 'IS' but found '>'",
        ),
    ],
)
def test_syntax_errors(text: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text)

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == f"Error parsing Spanner DDL statement: {text} : {message}"


@pytest.mark.parametrize("text", ["", "  ", "-- nothing", ";"])
def test_an_empty_statement(text: str) -> None:
    with pytest.raises(SpannerError, match=r"DDL statement is empty\."):
        parse_ddl(text)


def test_a_view_says_with_whose_rights_it_reads() -> None:
    with pytest.raises(SpannerError, match="View `W` is missing the SQL SECURITY clause"):
        parse_ddl("CREATE VIEW W AS SELECT 1 AS x")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SEQUENCE s OPTIONS (sequence_kind = 'bit_reversed_positive')",
        "CREATE MODEL m REMOTE",
        "CREATE PLACEMENT p",
        "CREATE SEARCH INDEX i ON T (a)",
        "CREATE VECTOR INDEX i ON T (a)",
        "CREATE PROPERTY GRAPH g",
        "CREATE LOCALITY GROUP g",
        "CREATE FUNCTION f() AS (1)",
        "ALTER STATISTICS x",
        "DROP SEQUENCE s",
        "RENAME TABLE a TO b",
    ],
)
def test_what_is_not_supported_is_named(text: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text)

    named = caught.value.message.removeprefix("The simulator does not support: ")
    assert caught.value.code is Code.UNIMPLEMENTED
    assert text.startswith(named)
    assert len(named.split()) >= 2
