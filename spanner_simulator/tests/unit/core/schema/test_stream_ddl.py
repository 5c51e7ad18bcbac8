from __future__ import annotations

import pytest

from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statements import (
    AlterStreamOptions,
    AlterStreamWatch,
    CreateStream,
    DropStream,
    Statement,
    Watch,
)
from spanner_simulator.errors import SpannerError

STATEMENTS: list[tuple[str, str, Statement]] = [
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
    ("CREATE CHANGE STREAM s", "CREATE CHANGE STREAM S", CreateStream("s", None)),
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
    (
        "ALTER CHANGE STREAM s DROP FOR ALL",
        "ALTER CHANGE STREAM s DROP FOR ALL",
        AlterStreamWatch("s", None),
    ),
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
    (
        "DROP CHANGE STREAM IF EXISTS s",
        "DROP CHANGE STREAM IF EXISTS s",
        DropStream("s", if_exists=True),
    ),
]


@pytest.mark.parametrize(("google", "postgres", "statement"), STATEMENTS)
def test_both_dialects_say_the_same(google: str, postgres: str, statement: Statement) -> None:
    assert parse_ddl(google) == statement
    assert parse_ddl(postgres, "POSTGRESQL") == statement


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FOR ALL(a)", "Syntax error on line 1, column 31: Expecting 'EOF' but found '('"),
        (
            "FOR t, ALL",
            "Syntax error on line 1, column 31: Encountered 'ALL' while parsing: identifier",
        ),
        (
            "OPTIONS ()",
            "Syntax error on line 1, column 33: Encountered ')' while parsing: identifier",
        ),
        ("OPTIONS (exclude_insert=true, exclude_insert=false)", "Duplicate option: exclude_insert"),
        (
            "OPTIONS (retention_period=3)",
            (
                "Unexpected value for option: retention_period. Supported option values are "
                "strings "
                "and NULL."
            ),
        ),
    ],
)
def test_googlesql_refusals(text: str, message: str) -> None:
    statement = f"CREATE CHANGE STREAM S {text}"
    with pytest.raises(SpannerError) as caught:
        parse_ddl(statement)

    assert str(caught.value) == (
        f"INVALID_ARGUMENT: Error parsing Spanner DDL statement: {statement} : {message}"
    )


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        (
            "CREATE CHANGE STREAM s WITH (bogus = 1)",
            (
                "INVALID_ARGUMENT: Invalid change stream option 'bogus' in <CREATE CHANGE STREAM> "
                "statement."
            ),
        ),
        (
            "ALTER CHANGE STREAM s SET (exclude_insert = 1)",
            (
                "INVALID_ARGUMENT: Failed to provide valid option value for 'exclude_insert' in "
                "<ALTER "
                "CHANGE STREAM> statement."
            ),
        ),
        (
            "CREATE CHANGE STREAM s WITH (exclude_insert = 'x')",
            (
                "FAILED_PRECONDITION: Unsupported option value in change stream option "
                "'exclude_insert' in <CREATE CHANGE STREAM> statement."
            ),
        ),
        (
            "CREATE CHANGE STREAM s WITH (exclude_insert = true, exclude_insert = true)",
            (
                "INVALID_ARGUMENT: Contains duplicate change stream option 'exclude_insert' in "
                "<CREATE "
                "CHANGE STREAM> statement."
            ),
        ),
        (
            "CREATE CHANGE STREAM s WITH ()",
            (
                'INVALID_ARGUMENT: [ERROR] syntax error at or near ")"; failed to parse the DDL '
                "statements."
            ),
        ),
        (
            "CREATE CHANGE STREAM n.s",
            (
                "INVALID_ARGUMENT: Schema name can only be 'public' in <CREATE CHANGE STREAM> "
                "statement."
            ),
        ),
        (
            "ALTER CHANGE STREAM s DROP FOR t",
            "INVALID_ARGUMENT: Only DROP FOR ALL is supported for now.",
        ),
    ],
)
def test_postgresql_refusals(statement: str, refusal: str) -> None:
    with pytest.raises(SpannerError) as caught:
        parse_ddl(statement, "POSTGRESQL")

    assert str(caught.value) == refusal


def test_streams_are_in_no_named_schema() -> None:
    with pytest.raises(
        SpannerError,
        match=r"Change Stream not yet supported in named schema: n\.S\.",
    ):
        parse_ddl("CREATE CHANGE STREAM n.S FOR ALL")
    with pytest.raises(SpannerError, match="change stream option per_placement_tvf"):
        parse_ddl("CREATE CHANGE STREAM S OPTIONS (per_placement_tvf = true)")
