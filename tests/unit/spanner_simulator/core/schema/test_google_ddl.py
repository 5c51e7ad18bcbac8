from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.schema.google_ddl import parse_ddl
from tidegate.spanner_simulator.core.schema.statements import (
    AddColumn,
    AlterStreamOptions,
    AlterStreamWatch,
    ColumnDefinition,
    CreateRole,
    CreateStream,
    CreateTable,
    DropColumn,
    DropStream,
    DropTable,
    Grant,
    KeyColumn,
    Statement,
    Watch,
)
from tidegate.spanner_simulator.core.values import ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError

STATEMENTS: list[tuple[str, Statement]] = [
    (
        (
            "CREATE TABLE T (A INT64 NOT NULL, B STRING(36), C ARRAY<FLOAT64>, "
            "D TIMESTAMP OPTIONS (allow_commit_timestamp=true),) PRIMARY KEY (A, B DESC);"
        ),
        CreateTable(
            "T",
            (
                ColumnDefinition("A", ValueType("INT64"), is_nullable=False),
                ColumnDefinition("B", ValueType("STRING", None, 36)),
                ColumnDefinition("C", ValueType("ARRAY", ValueType("FLOAT64"))),
                ColumnDefinition("D", ValueType("TIMESTAMP"), commit_timestamp=True),
            ),
            (KeyColumn("A"), KeyColumn("B", descending=True)),
        ),
    ),
    (
        "create table if not exists t (a int64 primary key)",
        CreateTable(
            "t", (ColumnDefinition("a", ValueType("INT64")),), (KeyColumn("a"),), if_not_exists=True
        ),
    ),
    ("DROP TABLE IF EXISTS T", DropTable("T", if_exists=True)),
    (
        "ALTER TABLE T ADD COLUMN X BYTES(MAX)",
        AddColumn("T", ColumnDefinition("X", ValueType("BYTES"))),
    ),
    ("ALTER TABLE T DROP COLUMN X", DropColumn("T", "X")),
    ("CREATE CHANGE STREAM S", CreateStream("S", None)),
    ("CREATE CHANGE STREAM S FOR ALL", CreateStream("S", Watch(everything=True))),
    (
        (
            "CREATE CHANGE STREAM S FOR T, U(a, b), V(), `ALL` "
            "OPTIONS (retention_period='36h', exclude_insert = true)"
        ),
        CreateStream(
            "S",
            Watch(tables=(("T", None), ("U", ("a", "b")), ("V", ()), ("ALL", None))),
            (("retention_period", "36h"), ("exclude_insert", True)),
        ),
    ),
    ("ALTER CHANGE STREAM S SET FOR T", AlterStreamWatch("S", Watch(tables=(("T", None),)))),
    ("ALTER CHANGE STREAM S DROP FOR ALL", AlterStreamWatch("S", None)),
    (
        "ALTER CHANGE STREAM S SET OPTIONS (value_capture_type = NULL)",
        AlterStreamOptions("S", (("value_capture_type", None),)),
    ),
    ("DROP CHANGE STREAM S", DropStream("S")),
    ("CREATE ROLE reader", CreateRole("reader")),
    (
        "GRANT SELECT ON CHANGE STREAM S TO ROLE reader",
        Grant(False, ("SELECT",), "CHANGE STREAM", ("S",), ("reader",)),
    ),
    (
        "GRANT EXECUTE ON TABLE FUNCTION READ_S TO ROLE reader",
        Grant(False, ("EXECUTE",), "TABLE FUNCTION", ("READ_S",), ("reader",)),
    ),
    (
        "REVOKE INSERT, UPDATE ON TABLE T, U FROM ROLE a, b",
        Grant(True, ("INSERT", "UPDATE"), "TABLE", ("T", "U"), ("a", "b")),
    ),
    ("GRANT ROLE a TO ROLE b", Grant(False, ("MEMBER",), "ROLE", ("a",), ("b",))),
]


@pytest.mark.parametrize(("text", "statement"), STATEMENTS)
def test_parse(text: str, statement: Statement) -> None:
    assert parse_ddl(text) == statement


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE T (A INT64)",
        "CREATE CHANGE STREAM S FOR ALL(a)",
        "CREATE CHANGE STREAM S FOR T, ALL",
        "CREATE CHANGE STREAM S OPTIONS ()",
        "CREATE CHANGE STREAM S OPTIONS (a = 1, a = 2)",
        "CREATE TABLE T (A STRING) PRIMARY KEY (A)",
        "DROP CHANGE STREAM S extra",
    ],
)
def test_syntax_errors(text: str) -> None:
    with pytest.raises(SpannerError, match="Error parsing Spanner DDL statement") as caught:
        parse_ddl(text)

    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("CREATE INDEX I ON T (A)", "CREATE INDEX"),
        ("CREATE TABLE T (A INT64 DEFAULT (1)) PRIMARY KEY (A)", "DEFAULT"),
        ("CREATE TABLE T (A INT64) PRIMARY KEY (A), INTERLEAVE IN PARENT P", "INTERLEAVE"),
        ("CREATE TABLE s.T (A INT64) PRIMARY KEY (A)", "named schemas"),
        ("CREATE TABLE T (A GEOGRAPHY) PRIMARY KEY (A)", "GEOGRAPHY"),
        ("ALTER TABLE T ALTER COLUMN A STRING(MAX)", "ALTER TABLE"),
    ],
)
def test_what_is_not_supported_is_named(text: str, what: str) -> None:
    with pytest.raises(SpannerError, match=what) as caught:
        parse_ddl(text)

    assert caught.value.code is Code.UNIMPLEMENTED
