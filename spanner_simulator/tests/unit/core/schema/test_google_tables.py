from __future__ import annotations

import pytest

from spanner_simulator.core.schema.definitions import Check, Interleave, RowDeletionPolicy
from spanner_simulator.core.schema.google_ddl import parse_ddl
from spanner_simulator.core.schema.statements import (
    AddColumn,
    AddConstraint,
    ColumnDefinition,
    CreateTable,
    DropColumn,
    DropConstraint,
    KeyColumn,
    ReplaceColumn,
    SetColumnDefault,
    SetColumnOptions,
    SetOnDelete,
    SetRowDeletion,
    Statement,
)
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError

INT64 = ValueType("INT64")
STATEMENTS: list[tuple[str, Statement]] = [
    (
        (
            "CREATE TABLE s.T (a INT64 NOT NULL, b STRING(0x24) DEFAULT ( 'x' ), "
            "c TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp=true), g INT64 AS (a + 1) "
            "STORED, "
            "v INT64 AS (a), CONSTRAINT ck CHECK (a > 1),) PRIMARY KEY (a, b DESC), "
            "INTERLEAVE IN PARENT P ON DELETE CASCADE, "
            "ROW DELETION POLICY (OLDER_THAN(c, INTERVAL 30 DAY))"
        ),
        CreateTable(
            "s.T",
            (
                ColumnDefinition("a", INT64, is_nullable=False),
                ColumnDefinition("b", ValueType("STRING", None, 36), default="'x'"),
                ColumnDefinition("c", ValueType("TIMESTAMP"), False, True),
                ColumnDefinition("g", INT64, generated="a + 1", is_stored=True),
                ColumnDefinition("v", INT64, generated="a"),
            ),
            (KeyColumn("a"), KeyColumn("b", descending=True)),
            interleave=Interleave("P", on_delete="CASCADE"),
            row_deletion=RowDeletionPolicy("c", 30),
            checks=(Check("ck", "a > 1"),),
        ),
    ),
    (
        "CREATE TABLE T (a INT64 NOT NULL PRIMARY KEY), INTERLEAVE IN P",
        CreateTable(
            "T",
            (ColumnDefinition("a", INT64, is_nullable=False),),
            (KeyColumn("a"),),
            interleave=Interleave("P", in_parent=False),
        ),
    ),
    ("CREATE TABLE T () PRIMARY KEY ()", CreateTable("T", (), ())),
    (
        "CREATE TABLE T (u UUID, f FLOAT32, PRIMARY KEY (u))",
        CreateTable(
            "T",
            (ColumnDefinition("u", ValueType("UUID")), ColumnDefinition("f", ValueType("FLOAT32"))),
            (KeyColumn("u"),),
        ),
    ),
    (
        "ALTER TABLE T ADD COLUMN IF NOT EXISTS x ARRAY<STRING(3)>",
        AddColumn(
            "T",
            ColumnDefinition("x", ValueType("ARRAY", ValueType("STRING", None, 3))),
            if_not_exists=True,
        ),
    ),
    ("ALTER TABLE T DROP COLUMN x", DropColumn("T", "x")),
    (
        "ALTER TABLE T ALTER COLUMN x INT64 NOT NULL DEFAULT (3)",
        ReplaceColumn("T", ColumnDefinition("x", INT64, is_nullable=False, default="3")),
    ),
    ("ALTER TABLE T ALTER COLUMN x SET DEFAULT (3)", SetColumnDefault("T", "x", "3")),
    ("ALTER TABLE T ALTER COLUMN x DROP DEFAULT", SetColumnDefault("T", "x", None)),
    (
        "ALTER TABLE T ALTER COLUMN x SET OPTIONS (allow_commit_timestamp = null)",
        SetColumnOptions("T", "x", commit_timestamp=False),
    ),
    (
        "ALTER TABLE T ADD CHECK (x > 1)",
        AddConstraint("T", Check("", "x > 1", is_named=False)),
    ),
    ("ALTER TABLE T DROP CONSTRAINT c", DropConstraint("T", "c")),
    (
        "ALTER TABLE T REPLACE ROW DELETION POLICY (OLDER_THAN(c, INTERVAL 1 DAY))",
        SetRowDeletion("T", "REPLACE", RowDeletionPolicy("c", 1)),
    ),
    ("ALTER TABLE T DROP ROW DELETION POLICY", SetRowDeletion("T", "DROP")),
    ("ALTER TABLE T SET ON DELETE NO ACTION", SetOnDelete("T", "NO ACTION")),
]


@pytest.mark.parametrize(("text", "statement"), STATEMENTS)
def test_parse(text: str, statement: Statement) -> None:
    assert parse_ddl(text) == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE T (a INT64)", "Must specify either table or column PRIMARY KEY"),
        (
            "CREATE TABLE T (a INT64 PRIMARY KEY) PRIMARY KEY (a)",
            "Cannot specify both table and column PRIMARY KEY",
        ),
        (
            "CREATE TABLE T (a INT64 PRIMARY KEY, b INT64 PRIMARY KEY)",
            "Multiple columns declared as PRIMARY KEY",
        ),
        (
            "CREATE TABLE T (a TIMESTAMP OPTIONS (x = true)) PRIMARY KEY (a)",
            "Option: x is unknown.",
        ),
        ("ALTER TABLE T ADD COLUMN a INT64 PRIMARY KEY", "Unexpected PRIMARY KEY clause"),
        (
            "ALTER TABLE T ALTER COLUMN a SET NOT NULL",
            "ALTER COLUMN SET NOT NULL not supported without a column type",
        ),
        (
            (
                "CREATE TABLE T (a INT64) PRIMARY KEY (a), ROW DELETION POLICY "
                "(OLDER_THAN(a, INTERVAL 1 HOUR))"
            ),
            "Syntax error on line 1, column 89: Expecting 'DAY' but found 'HOUR'",
        ),
        (
            "CREATE TABLE T (At INT64) PRIMARY KEY (At)",
            "Syntax error on line 1, column 17: Expecting ')' but found 'At'",
        ),
        (
            "CREATE TABLE T (a INT64 DEFAULT 1) PRIMARY KEY (a)",
            "Syntax error on line 1, column 33: Expecting '(' but found '1'",
        ),
    ],
)
def test_syntax_errors(text: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text)

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == f"Error parsing Spanner DDL statement: {text} : {message}"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("CREATE TABLE T (a INT64 HIDDEN) PRIMARY KEY (a)", "HIDDEN of column a"),
        (
            "CREATE TABLE T (a INT64 GENERATED BY DEFAULT AS IDENTITY) PRIMARY KEY (a)",
            "GENERATED of column a",
        ),
        ("CREATE TABLE T (a TOKENLIST) PRIMARY KEY ()", "type TOKENLIST"),
        (
            "CREATE TABLE T (a ARRAY<FLOAT32>(vector_length=>3)) PRIMARY KEY ()",
            "vector_length of an ARRAY column",
        ),
        ("CREATE TABLE T (a INT64) PRIMARY KEY (a), OPTIONS (x = 1)", "OPTIONS of CREATE TABLE"),
        ("ALTER TABLE T RENAME TO U", "ALTER TABLE RENAME"),
        ("ALTER TABLE T ADD SYNONYM U", "ALTER TABLE ADD SYNONYM"),
    ],
)
def test_what_is_not_supported_is_named(text: str, what: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text)

    assert caught.value.code is Code.UNIMPLEMENTED
    assert caught.value.message == f"The simulator does not support: {what}"


def test_an_array_of_arrays_is_invalid() -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl("CREATE TABLE T (a ARRAY<ARRAY<INT64>>) PRIMARY KEY ()")

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == "Array of arrays type is not supported by the schema."


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE T (a INT64, PRIMARY KEY (a)) PRIMARY KEY (a)",
        "CREATE TABLE T (a INT64, PRIMARY KEY (a), PRIMARY KEY (a))",
        "CREATE TABLE T (a INT64) PRIMARY KEY (a), INTERLEAVE IN P, INTERLEAVE IN Q",
        (
            "CREATE TABLE T (a TIMESTAMP) PRIMARY KEY (a), "
            "ROW DELETION POLICY (OLDER_THAN(a, INTERVAL 1 DAY)), "
            "ROW DELETION POLICY (OLDER_THAN(a, INTERVAL 2 DAY))"
        ),
        (
            "CREATE TABLE T (a TIMESTAMP) PRIMARY KEY (a), INTERLEAVE IN P, "
            "ROW DELETION POLICY (OLDER_THAN(a, INTERVAL 1 DAY)), INTERLEAVE IN Q"
        ),
        "CREATE INDEX I ON T (a), INTERLEAVE IN P, INTERLEAVE IN Q",
    ],
)
def test_a_clause_stands_once(text: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text)

    assert caught.value.code is Code.INVALID_ARGUMENT


def test_the_word_column_may_be_left_out() -> None:
    assert parse_ddl("ALTER TABLE T ADD b INT64") == AddColumn("T", ColumnDefinition("b", INT64))
