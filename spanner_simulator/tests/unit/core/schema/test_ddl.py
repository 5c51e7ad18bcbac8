"""What a statement's text asks for, as far as the printed schema does not tell."""

from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statements import (
    AlterColumn,
    AlterStreamOptions,
    AlterStreamWatch,
    CreateProtoBundle,
    CreateRole,
    CreateStream,
    CreateTable,
    Drop,
    DropColumn,
    Grant,
    RowDeletionPolicy,
    SetRowDeletion,
    Statement,
    Watch,
)
from spanner_simulator.core.values import Dialect, ValueType
from spanner_simulator.errors import SpannerError

GOOGLE, POSTGRES = "GOOGLE_STANDARD_SQL", "POSTGRESQL"
STRING = ValueType("STRING")
BOTH: list[tuple[str, str, Statement]] = [
    (
        (
            "CREATE CHANGE STREAM IF NOT EXISTS S FOR T, s.U(a, b), V(), `ALL` OPTIONS "
            "(retention_period='36h', exclude_insert=TRUE, partition_mode=NULL)"
        ),
        (
            'CREATE CHANGE STREAM IF NOT EXISTS "S" FOR "T", s."U"(a, b), "V"(), "ALL" WITH '
            "(retention_period='36h', exclude_insert=TRUE, partition_mode=NULL)"
        ),
        CreateStream(
            "S",
            Watch(tables=(("T", None), ("s.U", ("a", "b")), ("V", ()), ("ALL", None))),
            (("retention_period", "36h"), ("exclude_insert", True), ("partition_mode", None)),
            if_not_exists=True,
        ),
    ),
    (
        "CREATE CHANGE STREAM s FOR ALL",
        "CREATE CHANGE STREAM public.s FOR ALL",
        CreateStream("s", Watch(everything=True)),
    ),
    (
        "ALTER CHANGE STREAM s SET FOR t",
        "ALTER CHANGE STREAM s SET FOR T",
        AlterStreamWatch("s", Watch(tables=(("t", None),))),
    ),
    ("ALTER CHANGE STREAM s DROP FOR ALL",) * 2 + (AlterStreamWatch("s", None),),
    (
        "ALTER CHANGE STREAM s SET OPTIONS (value_capture_type = NULL)",
        "ALTER CHANGE STREAM s RESET (value_capture_type)",
        AlterStreamOptions("s", (("value_capture_type", None),)),
    ),
    (
        "ALTER CHANGE STREAM s SET OPTIONS (allow_txn_exclusion = true)",
        "ALTER CHANGE STREAM s SET (allow_txn_exclusion = 'true')",
        AlterStreamOptions("s", (("allow_txn_exclusion", True),)),
    ),
    ("DROP CHANGE STREAM IF EXISTS s",) * 2 + (Drop("CHANGE STREAM", "s", if_exists=True),),
    ("DROP TABLE IF EXISTS s.t;",) * 2 + (Drop("TABLE", "s.t", if_exists=True),),
    ("DROP INDEX i", "DROP INDEX I RESTRICT", Drop("INDEX", "i")),
    ("CREATE ROLE IF NOT EXISTS r",) * 2 + (CreateRole("r", if_not_exists=True),),
    ("ALTER TABLE t DROP x", "ALTER TABLE t DROP COLUMN X", DropColumn("t", "x")),
    (
        "ALTER TABLE t ALTER COLUMN x SET DEFAULT (1 + 2)",
        "ALTER TABLE t ALTER x SET DEFAULT 1 + 2;",
        AlterColumn("t", "x", {"default": "1 + 2"}),
    ),
    (
        "ALTER TABLE t ALTER COLUMN x DROP DEFAULT",
        "ALTER TABLE t ALTER x DROP DEFAULT",
        AlterColumn("t", "x", {"default": None}),
    ),
    (
        "ALTER TABLE t REPLACE ROW DELETION POLICY (OLDER_THAN(c, INTERVAL 7 DAY))",
        "ALTER TABLE t ALTER TTL INTERVAL '1 week' ON c",
        SetRowDeletion("t", "REPLACE", RowDeletionPolicy("c", 7)),
    ),
    (
        "ALTER TABLE t DROP ROW DELETION POLICY",
        "ALTER TABLE t DROP TTL",
        SetRowDeletion("t", "DROP"),
    ),
    (
        "REVOKE INSERT, UPDATE ON TABLE s.T, u FROM ROLE a, b",
        'REVOKE INSERT, UPDATE ON s."T", public.u FROM a, b',
        Grant(True, ("INSERT", "UPDATE"), "TABLE", ("s.T", "u"), ("a", "b")),
    ),
    (
        "GRANT EXECUTE ON TABLE FUNCTION f, g TO ROLE a",
        "GRANT EXECUTE ON FUNCTION spanner.f, g TO a",
        Grant(False, ("EXECUTE",), "TABLE FUNCTION", ("f", "g"), ("a",)),
    ),
]


@pytest.mark.parametrize(("google", "postgres", "statement"), BOTH)
def test_both_dialects_say_the_same(google: str, postgres: str, statement: Statement) -> None:
    assert parse_ddl(google) == statement
    assert parse_ddl(postgres, "POSTGRESQL") == statement


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("TYPE varchar", {"value_type": STRING}),
        ("SET DATA TYPE text", {"value_type": STRING}),
        ("SET NOT NULL", {"is_nullable": False}),
        ("DROP NOT NULL", {"is_nullable": True}),
    ],
)
def test_postgresql_alters_one_field_of_a_column(text: str, changes: dict[str, object]) -> None:
    statement = parse_ddl(f"ALTER TABLE t ALTER COLUMN x {text}", "POSTGRESQL")
    assert statement == AlterColumn("t", "x", changes)


def test_googlesql_alters_all_fields_but_options_that_are_left_out() -> None:
    plain = parse_ddl("ALTER TABLE T ALTER COLUMN x STRING(MAX) NOT NULL DEFAULT ('y')")
    fields = {"value_type": STRING, "is_nullable": False, "default": "'y'", "generated": None}
    fields |= {"is_stored": False, "on_update": None, "identity": None}
    with_options = parse_ddl(
        "ALTER TABLE T ALTER COLUMN x TIMESTAMP OPTIONS (allow_commit_timestamp = null)"
    )
    assert plain == AlterColumn("T", "x", fields)
    assert isinstance(with_options, AlterColumn)
    assert with_options.changes["commit_timestamp"] is False


def test_a_bundle_names_types_in_any_spelling() -> None:
    bundle = parse_ddl("CREATE PROTO BUNDLE (`a.C`, a.`D`, a.order.set,)")
    table = parse_ddl("CREATE TABLE T (a x.Y, b ARRAY<`x.Y`>, c STRING.x) PRIMARY KEY ()")
    assert bundle == CreateProtoBundle(("a.C", "a.D", "a.order.set"))
    assert isinstance(table, CreateTable)
    assert [(one.value_type.element or one.value_type).proto_name for one in table.columns] == [
        "x.Y",
        "x.Y",
        "STRING.x",
    ]


UNSUPPORTED = [
    *((GOOGLE, text, text) for text in ("CREATE SEQUENCE", "DROP MODEL", "ALTER STATISTICS")),
    *((GOOGLE, text, text) for text in ("CREATE VIEW", "DROP VIEW", "DROP SCHEMA", "ALTER INDEX")),
    *((GOOGLE, text, text) for text in ("ALTER DATABASE", "ANALYZE", "ALTER PROTO", "RENAME")),
    (GOOGLE, "CREATE OR REPLACE VIEW", "CREATE OR REPLACE VIEW"),
    (POSTGRES, "CREATE PROTO BUNDLE (x)", "CREATE PROTO"),
    (GOOGLE, "CREATE CHANGE STREAM S OPTIONS (per_placement_tvf = true)", "change stream option"),
    (GOOGLE, "CREATE INDEX I ON T (a) WHERE a IS NOT NULL", "WHERE of CREATE INDEX"),
    (GOOGLE, "CREATE INDEX I ON T (a), INTERLEAVE IN P", "INTERLEAVE of CREATE INDEX"),
    (POSTGRES, "CREATE INDEX I ON t (a NULLS FIRST)", "NULLS FIRST and NULLS LAST"),
    (GOOGLE, "ALTER TABLE T ADD CONSTRAINT c CHECK (a > 1)", "ALTER TABLE ADD CONSTRAINT"),
    (GOOGLE, "ALTER TABLE T DROP CONSTRAINT c", "ALTER TABLE DROP CONSTRAINT"),
    (GOOGLE, "ALTER TABLE T SET ON DELETE CASCADE", "ALTER TABLE SET"),
    (POSTGRES, "ALTER TABLE t ADD b bigint CHECK (b > 1)", "constraints in ALTER TABLE ADD COLUMN"),
    (GOOGLE, "CREATE TABLE T (a INT64) PRIMARY KEY (a), INTERLEAVE IN P", "INTERLEAVE IN without"),
    (GOOGLE, "CREATE TABLE T (a INT64) PRIMARY KEY (a), OPTIONS (x = 1)", "OPTIONS of CREATE"),
    (GOOGLE, "CREATE TABLE T (a INT64, FOREIGN KEY (a) REFERENCES U (b))", "FOREIGN KEY"),
    (POSTGRES, "CREATE TABLE t (a bigint REFERENCES u (b))", "FOREIGN KEY"),
    (GOOGLE, "CREATE TABLE T (a INT64 AUTO_INCREMENT PRIMARY KEY)", "AUTO_INCREMENT of column a"),
    (GOOGLE, "CREATE TABLE T (a TOKENLIST) PRIMARY KEY ()", "type TOKENLIST"),
    (GOOGLE, "GRANT ROLE a TO ROLE b", "GRANT ROLE"),
    (POSTGRES, "GRANT a TO b", "GRANT of a role"),
    (GOOGLE, "GRANT SELECT (a) ON TABLE T TO ROLE r", "privileges on single columns"),
    (GOOGLE, "GRANT SELECT ON ALL TABLES IN SCHEMA s TO ROLE r", "privileges on ALL"),
]


@pytest.mark.parametrize(("dialect", "text", "what"), UNSUPPORTED)
def test_what_is_not_supported_is_named(dialect: Dialect, text: str, what: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text, dialect)
    assert str(caught.value).startswith(f"UNIMPLEMENTED: The simulator does not support: {what}")


INVALID = [
    (GOOGLE, "-- nothing", "INVALID_ARGUMENT: DDL statement is empty."),
    (GOOGLE, "SELECT 1", "Encountered 'SELECT' while parsing: ddl_statement"),
    (GOOGLE, "CREATE TABLE T (a INT64 DEFAULT 1) PRIMARY KEY (a)", "Expecting '(' but found '1'"),
    (GOOGLE, "CREATE TABLE T (a ARRAY<ARRAY<INT64>>)", "Array of arrays type is not supported"),
    (GOOGLE, "CREATE TABLE T (a INT64, PRIMARY KEY (a)) PRIMARY KEY (a)", "multiple primary keys"),
    (GOOGLE, "CREATE TABLE T (a x.Y(5)) PRIMARY KEY ()", "Expecting ')' but found '('"),
    (GOOGLE, "ALTER TABLE T ALTER COLUMN a INT64 PRIMARY KEY", "Unexpected PRIMARY KEY clause"),
    (GOOGLE, "CREATE CHANGE STREAM S FOR t, ALL", "Encountered 'ALL' while parsing: identifier"),
    (POSTGRES, "CREATE TABLE t (a bigint UNIQUE)", "FAILED_PRECONDITION: <UNIQUE> constraint is"),
    (POSTGRES, "CREATE TABLE t (a timestamp)", "Type <timestamp> is not supported."),
    (POSTGRES, "CREATE TABLE t (a numeric(10, 2))", "Type modifier is not supported for type"),
    (POSTGRES, "CREATE TABLE t (a varchar(2621441))", "Maximum length for <varchar> fields is"),
    (POSTGRES, "CREATE TABLE t (a bigint[][])", "Multi-dimensional arrays are not supported."),
    (POSTGRES, "ALTER TABLE t ADD TTL INTERVAL '3 hours' ON x", "must be a whole number of days"),
    (POSTGRES, "ALTER TABLE t ADD TTL INTERVAL '9999999999 days' ON x", "value out of range"),
    (POSTGRES, "ALTER TABLE t ALTER COLUMN x DROP EXPRESSION", "Operation is not supported"),
    (POSTGRES, "CREATE CHANGE STREAM n.s", "Schema name can only be 'public'"),
    (POSTGRES, "DROP TABLE t CASCADE", "Only <RESTRICT> behavior is supported"),
]


@pytest.mark.parametrize(("dialect", "text", "message"), INVALID)
def test_what_makes_no_sense_is_refused(dialect: Dialect, text: str, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(text, dialect)
    assert message in str(caught.value)
