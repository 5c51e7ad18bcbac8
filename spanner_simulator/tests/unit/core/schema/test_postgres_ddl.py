from __future__ import annotations

import pytest

from spanner_simulator.core.schema.postgres_ddl import parse_ddl
from spanner_simulator.core.schema.statements import (
    AlterDatabase,
    AlterIndex,
    Analyze,
    CreateIndex,
    CreateRole,
    CreateSchema,
    CreateView,
    DropIndex,
    DropSchema,
    DropTable,
    DropView,
    Grant,
    KeyColumn,
    Statement,
)
from spanner_simulator.errors import SpannerError

STATEMENTS: list[tuple[str, Statement]] = [
    (
        (
            "CREATE UNIQUE INDEX IF NOT EXISTS I ON s.T USING btree (A DESC, b NULLS FIRST, c) "
            "INCLUDE (d) INTERLEAVE IN p WHERE a IS NOT NULL AND (b IS NOT NULL);"
        ),
        CreateIndex(
            "i",
            "s.t",
            (
                KeyColumn("a", descending=True, nulls="FIRST"),
                KeyColumn("b", nulls="FIRST"),
                KeyColumn("c", nulls="LAST"),
            ),
            ("d",),
            is_unique=True,
            interleave_in="p",
            not_null=("a", "b"),
            if_not_exists=True,
        ),
    ),
    ("ALTER INDEX i ADD INCLUDE COLUMN c", AlterIndex("i", "ADD", "c")),
    ("ALTER INDEX i DROP INCLUDE COLUMN c", AlterIndex("i", "DROP", "c")),
    ("DROP INDEX IF EXISTS s.i", DropIndex("s.i", if_exists=True)),
    ('DROP TABLE "T"', DropTable("T")),
    ("DROP TABLE t RESTRICT", DropTable("t")),
    ("CREATE VIEW v AS SELECT 1 AS a", CreateView("v", "SELECT 1 AS a", "INVOKER")),
    (
        "CREATE OR REPLACE VIEW v SQL SECURITY DEFINER AS SELECT 1 AS a;",
        CreateView("v", "SELECT 1 AS a", "DEFINER", or_replace=True),
    ),
    ("DROP VIEW v", DropView("v")),
    ("CREATE SCHEMA IF NOT EXISTS s", CreateSchema("s", if_not_exists=True)),
    ("DROP SCHEMA s", DropSchema("s")),
    ("ANALYZE", Analyze()),
    (
        "ALTER DATABASE d SET spanner.version_retention_period TO '2d'",
        AlterDatabase("d", (("version_retention_period", "2d"),)),
    ),
    (
        'ALTER DATABASE "my-d" SET "spanner.optimizer_version" = 4',
        AlterDatabase("my-d", (("optimizer_version", 4),)),
    ),
    (
        "ALTER DATABASE d RESET spanner.default_leader",
        AlterDatabase("d", (("default_leader", None),)),
    ),
    ("CREATE ROLE R", CreateRole("r")),
    ("GRANT SELECT ON t TO r", Grant(False, ("SELECT",), "TABLE", ("t",), ("r",))),
]


@pytest.mark.parametrize(("text", "statement"), STATEMENTS)
def test_parse(text: str, statement: Statement) -> None:
    assert parse_ddl(text) == statement


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "INVALID_ARGUMENT: DDL statement is empty."),
        (
            "CREATE FOO",
            (
                'INVALID_ARGUMENT: [ERROR] syntax error at or near "FOO"; failed to parse the DDL '
                "statements."
            ),
        ),
        (
            "CREATE TABLE",
            (
                "INVALID_ARGUMENT: [ERROR] syntax error at end of input; failed to parse the DDL "
                "statements."
            ),
        ),
        (
            "CREATE TEMP TABLE t (a bigint PRIMARY KEY)",
            (
                "FAILED_PRECONDITION: TEMP/TEMPORARY or UNLOGGED objects are not supported in "
                "<CREATE "
                "TABLE> statement."
            ),
        ),
        (
            "CREATE INDEX ON t (a)",
            "FAILED_PRECONDITION: Index name is mandatory in <CREATE INDEX> statement.",
        ),
        (
            "CREATE INDEX i ON t (lower(a))",
            "FAILED_PRECONDITION: Expressions are not supported in <CREATE INDEX> statement.",
        ),
        (
            "CREATE INDEX i ON t (a) WHERE a > 1",
            (
                "FAILED_PRECONDITION: <WHERE> clause of <CREATE INDEX> statement supports only "
                "conjunction of <column IS NOT NULL> expressions using <AND>, where <column> is "
                "part "
                "of an index."
            ),
        ),
        (
            "DROP TABLE a, b",
            (
                "FAILED_PRECONDITION: <DROP> statements support deletion of only single object per "
                "statement."
            ),
        ),
        (
            "DROP TABLE a CASCADE",
            "FAILED_PRECONDITION: Only <RESTRICT> behavior is supported by <DROP> statement.",
        ),
        ("CREATE EXTENSION x", "FAILED_PRECONDITION: Statement is not supported."),
        (
            "ALTER DATABASE d SET spanner.bogus = 1",
            "FAILED_PRECONDITION: Invalid Alter Database Option: spanner.bogus.",
        ),
        (
            "CREATE SEQUENCE s BIT_REVERSED_POSITIVE",
            "UNIMPLEMENTED: The simulator does not support: CREATE SEQUENCE",
        ),
        (
            "ALTER TABLE t RENAME TO u",
            "UNIMPLEMENTED: The simulator does not support: ALTER TABLE RENAME",
        ),
    ],
)
def test_refusals(text: str, refusal: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text)

    assert str(caught.value) == refusal
