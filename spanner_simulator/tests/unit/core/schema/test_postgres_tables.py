from __future__ import annotations

import pytest

from spanner_simulator.core.schema.definitions import (
    Check,
    ForeignKey,
    Interleave,
    RowDeletionPolicy,
)
from spanner_simulator.core.schema.postgres_ddl import parse_ddl
from spanner_simulator.core.schema.statements import (
    AddColumn,
    AddConstraint,
    AlterColumnType,
    ColumnDefinition,
    CreateTable,
    DropColumn,
    DropConstraint,
    KeyColumn,
    SetColumnDefault,
    SetColumnNullable,
    SetOnDelete,
    SetRowDeletion,
    Statement,
)
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import SpannerError

INT64, STRING = ValueType("INT64"), ValueType("STRING")
TABLE = """
CREATE TABLE public.Tab (
    K bigint,
    "Q" varchar(9) DEFAULT coalesce('a', 'NOT') || 'x' NOT NULL CONSTRAINT cq CHECK ("Q" <> ''),
    r bigint NULL REFERENCES Other (k) ON DELETE CASCADE,
    ts spanner.commit_timestamp NOT NULL,
    g text GENERATED ALWAYS AS (upper("Q")) STORED,
    v bigint GENERATED ALWAYS AS (k + 1) VIRTUAL,
    PRIMARY KEY (k, "Q"),
    CONSTRAINT f FOREIGN KEY (r) REFERENCES other (k),
    CHECK (k > 1)
) INTERLEAVE IN PARENT P ON DELETE CASCADE TTL INTERVAL '5 days' ON ts
"""
STATEMENTS: list[tuple[str, Statement]] = [
    (
        TABLE,
        CreateTable(
            "tab",
            (
                ColumnDefinition("k", INT64, is_nullable=False),
                ColumnDefinition(
                    "Q",
                    ValueType("STRING", None, 9),
                    is_nullable=False,
                    default="coalesce('a', 'NOT') || 'x'",
                ),
                ColumnDefinition("r", INT64),
                ColumnDefinition(
                    "ts",
                    ValueType("TIMESTAMP"),
                    is_nullable=False,
                    commit_timestamp=True,
                ),
                ColumnDefinition("g", STRING, generated='upper("Q")', is_stored=True),
                ColumnDefinition("v", INT64, generated="k + 1"),
            ),
            (KeyColumn("k"), KeyColumn("Q")),
            interleave=Interleave("p", on_delete="CASCADE"),
            row_deletion=RowDeletionPolicy("ts", 5),
            foreign_keys=(
                ForeignKey("", ("r",), "other", ("k",), "CASCADE", is_named=False),
                ForeignKey("f", ("r",), "other", ("k",)),
            ),
            checks=(Check("cq", "\"Q\" <> ''"), Check("", "k > 1", is_named=False)),
        ),
    ),
    (
        "CREATE TABLE IF NOT EXISTS t (a bigint PRIMARY KEY) INTERLEAVE IN p",
        CreateTable(
            "t",
            (ColumnDefinition("a", INT64, is_nullable=False),),
            (KeyColumn("a"),),
            if_not_exists=True,
            interleave=Interleave("p", in_parent=False),
        ),
    ),
    (
        "ALTER TABLE t ADD COLUMN IF NOT EXISTS x bigint NOT NULL DEFAULT 3",
        AddColumn(
            "t",
            ColumnDefinition("x", INT64, is_nullable=False, default="3"),
            if_not_exists=True,
        ),
    ),
    ("ALTER TABLE t ADD x text", AddColumn("t", ColumnDefinition("x", STRING))),
    ("ALTER TABLE t DROP COLUMN x RESTRICT", DropColumn("t", "x")),
    ("ALTER TABLE t ALTER x TYPE text", AlterColumnType("t", "x", STRING)),
    ("ALTER TABLE t ALTER COLUMN x SET DATA TYPE text", AlterColumnType("t", "x", STRING)),
    ("ALTER TABLE t ALTER COLUMN x SET NOT NULL", SetColumnNullable("t", "x", is_nullable=False)),
    ("ALTER TABLE t ALTER COLUMN x DROP NOT NULL", SetColumnNullable("t", "x", is_nullable=True)),
    ("ALTER TABLE t ALTER COLUMN x SET DEFAULT 1 + 2", SetColumnDefault("t", "x", "1 + 2")),
    ("ALTER TABLE t ALTER COLUMN x SET DEFAULT 5;", SetColumnDefault("t", "x", "5")),
    ("ALTER TABLE t ALTER COLUMN x DROP DEFAULT", SetColumnDefault("t", "x", None)),
    (
        "ALTER TABLE t ADD CONSTRAINT c CHECK (x > 1)",
        AddConstraint("t", Check("c", "x > 1")),
    ),
    ("ALTER TABLE t DROP CONSTRAINT c", DropConstraint("t", "c")),
    (
        "ALTER TABLE t ADD TTL INTERVAL '1 week' ON ts",
        SetRowDeletion("t", "ADD", RowDeletionPolicy("ts", 7)),
    ),
    (
        "ALTER TABLE t ALTER TTL INTERVAL '3 DAYS' ON ts",
        SetRowDeletion("t", "REPLACE", RowDeletionPolicy("ts", 3)),
    ),
    ("ALTER TABLE t DROP TTL", SetRowDeletion("t", "DROP")),
    ("ALTER TABLE t SET ON DELETE NO ACTION", SetOnDelete("t", "NO ACTION")),
]


@pytest.mark.parametrize(("text", "statement"), STATEMENTS)
def test_parse(text: str, statement: Statement) -> None:
    assert parse_ddl(text) == statement


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "CREATE TABLE t (a bigint)",
            'FAILED_PRECONDITION: Primary key must be defined for table "t".',
        ),
        (
            "CREATE TABLE t (a bigint PRIMARY KEY, b bigint UNIQUE)",
            (
                "FAILED_PRECONDITION: <UNIQUE> constraint is not supported, create a unique index "
                "instead."
            ),
        ),
        (
            "CREATE TABLE t (a bigint, CONSTRAINT k PRIMARY KEY (a))",
            "FAILED_PRECONDITION: Setting a name of a <PRIMARY KEY> constraint is not supported.",
        ),
        (
            "CREATE TABLE t (a bigint PRIMARY KEY, ts timestamptz) TTL INTERVAL '3 hours' ON ts",
            "INVALID_ARGUMENT: TTL interval must be a whole number of days",
        ),
        (
            "CREATE TABLE t (a bigint PRIMARY KEY, ts timestamptz) TTL INTERVAL '-3 days' ON ts",
            "FAILED_PRECONDITION: TTL interval must be greater than or equal to zero",
        ),
        (
            "CREATE TABLE t (a bigint PRIMARY KEY, v bigint GENERATED ALWAYS AS (a + 1))",
            (
                'INVALID_ARGUMENT: [ERROR] syntax error at or near ")"; failed to parse the DDL '
                "statements."
            ),
        ),
        (
            "CREATE TABLE t (a bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY)",
            (
                "UNIMPLEMENTED: The simulator does not support: GENERATED BY DEFAULT AS IDENTITY "
                "of "
                "column a"
            ),
        ),
        (
            "ALTER TABLE t ADD COLUMN x bigint CHECK (x > 1)",
            (
                "FAILED_PRECONDITION: Check constraint creation is not supported in <ALTER TABLE "
                "ADD "
                "COLUMN> statement"
            ),
        ),
        (
            "ALTER TABLE t DROP COLUMN IF EXISTS x",
            (
                "FAILED_PRECONDITION: <IF [NOT] EXISTS> is not supported in <ALTER> statement "
                "operations."
            ),
        ),
        (
            "ALTER TABLE t ADD COLUMN x bigint, ADD COLUMN y bigint",
            (
                "FAILED_PRECONDITION: For the provided action type of the <ALTER TABLE> "
                "statement only "
                "single action per statement is allowed."
            ),
        ),
        (
            "ALTER TABLE t ALTER COLUMN x TYPE bytea USING x",
            (
                "FAILED_PRECONDITION: <USING> clause is not supported in <ALTER TABLE ALTER COLUMN "
                "TYPE> statement"
            ),
        ),
        (
            "ALTER TABLE t ADD TTL INTERVAL '9999999999 days' ON x",
            'INVALID_ARGUMENT: interval field value out of range: "9999999999 days"',
        ),
        (
            "ALTER TABLE t ALTER COLUMN x DROP EXPRESSION",
            "FAILED_PRECONDITION: Operation is not supported in <ALTER TABLE> statement.",
        ),
    ],
)
def test_refusals(text: str, refusal: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text)

    assert str(caught.value) == refusal
